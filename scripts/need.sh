#!/usr/bin/env bash
# Makes sure that a program is there, installs it where that asks nobody (root on Debian or Ubuntu), and else says what to
# install.
#
# Usage: need.sh NAME...
#   make           make
#   postgres       PostgreSQL's server programs
#   test-postgres  any PostgreSQL that tests can use: those programs, TEST_DATABASE_URL, or Docker
#   cc             a C compiler, for the race detector
#   docker         a Docker Engine that answers
#   compose        Docker Compose, either version
#   curl           curl
#   psql           PostgreSQL's client, which documents use
#   jq             jq, which documents use
#   psycopg2       psycopg2 for Python 3, which an example uses
set -euo pipefail

has() { command -v "$1" >/dev/null 2>&1; }

has_postgres() {
  local dir
  has initdb && return
  for dir in "$(pg_config --bindir 2>/dev/null || true)" /usr/lib/postgresql/*/bin /usr/pgsql-*/bin \
    /opt/homebrew/opt/postgresql@*/bin /usr/local/opt/postgresql@*/bin; do
    [ -x "$dir/initdb" ] && return
  done
  return 1
}

has_docker() { has docker && docker version >/dev/null 2>&1; }

has_cc() { has "${CC:-gcc}" || has clang || has cc; }

# install PACKAGE ADVICE: installs a Debian package, or ends with the advice
install() {
  if [ "$(id -u)" = 0 ] && has apt-get; then
    echo "need.sh: installing $1" >&2
    { apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$1"; } >&2 </dev/null
    return
  fi
  echo "$2" >&2
  exit 1
}

postgres_advice='PostgreSQL is not installed here: `sudo apt-get install postgresql`, `brew install postgresql@17` or the like'

for name in "$@"; do
  case $name in
    make)
      has make || install make 'make is not installed here: `sudo apt-get install make` or the like.'
      ;;
    postgres)
      has_postgres || install postgresql "$postgres_advice."
      ;;
    test-postgres)
      [ -n "${TEST_DATABASE_URL:-}" ] || has_postgres || has_docker ||
        install postgresql "$postgres_advice; or start Docker; or set TEST_DATABASE_URL."
      ;;
    cc)
      has_cc || install gcc 'No C compiler is installed here, and the race detector needs one: `sudo apt-get install gcc libc6-dev` or the like; or run `make test-quick`.'
      ;;
    curl)
      has curl || install curl 'curl is not installed here: `sudo apt-get install curl` or the like.'
      ;;
    psql)
      has psql || install postgresql-client 'psql is not installed here: `sudo apt-get install postgresql-client` or the like.'
      ;;
    jq)
      has jq || install jq 'jq is not installed here: `sudo apt-get install jq` or the like.'
      ;;
    psycopg2)
      { /usr/bin/python3 -c 'import psycopg2' || python3 -c 'import psycopg2'; } 2>/dev/null ||
        install python3-psycopg2 'psycopg2 is not installed here: `sudo apt-get install python3-psycopg2` or `pip install psycopg2-binary`.'
      ;;
    compose)
      docker compose version >/dev/null 2>&1 || has docker-compose ||
        install docker-compose 'Docker Compose is not installed here: https://docs.docker.com/compose/install/.'
      ;;
    docker)
      has_docker || { echo 'No Docker Engine answers: install and start it (https://docs.docker.com/engine/install/).' >&2 && exit 1; }
      ;;
    *)
      echo "need.sh: unknown: $name" >&2
      exit 2
      ;;
  esac
done
