#!/usr/bin/env bash
# Starts docker-compose.yml beside whatever else runs, sends a notification through each channel, waits until all of them
# are sent, and takes everything down again.
#
# DISPATCHER_DOCKERFILE=Dockerfile.prebuilt puts bin/dispatcher (`make build`) in the image, in place of compiling there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

export COMPOSE_PROJECT_NAME=dispatcher-smoke DISPATCHER_TAG=smoke
export DISPATCHER_PORT=${DISPATCHER_PORT:-18080} SANDBOX_PORT=${SANDBOX_PORT:-18090}
api=http://127.0.0.1:$DISPATCHER_PORT
sandbox=http://127.0.0.1:$SANDBOX_PORT

if docker compose version >/dev/null 2>&1; then
  compose() { docker compose "$@"; }
else
  compose() { docker-compose "$@"; }
fi

# fail TEXT: ends with the text and what the services said
fail() {
  echo "smoke: $1" >&2
  compose ps >&2 || true
  compose logs --tail 40 >&2 || true
  exit 1
}

take_down() { compose down --volumes --remove-orphans --timeout 5 >/dev/null 2>&1 || true; }
trap take_down EXIT

# until_true SECONDS COMMAND...: tries the command twice a second
until_true() {
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ "$SECONDS" -lt "$end" ] || return 1
    sleep 0.5
  done
}

get() { curl -fsS --max-time 5 -H "Authorization: Bearer $key" "$1"; }

# member NAME: the first text of that member in the JSON on standard input
member() { grep -o "\"$1\":\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4; }

is_ready() { curl -fsS --max-time 5 -o /dev/null "$api/readyz" 2>/dev/null; }

# post CHANNEL ADDRESS: sends one notification and prints its id
post() {
  curl -sS --max-time 10 -H "Authorization: Bearer $key" -H 'Content-Type: application/json' -X POST "$api/v1/notifications" \
    -d "{\"to\":{\"$1\":$2},\"chain\":[{\"channel\":\"$1\"}],\"content\":{\"title\":\"Smoke\",\"body\":\"through $1\"}}" |
    tee /dev/stderr | member id
}

is_sent() {
  status=$(get "$api/v1/notifications/$1" | member status) || return
  case $status in
    sent | delivered | read) ;;
    failed | partially_failed | expired | canceled | suppressed) fail "the notification by $2 ended as $status" ;;
    *) return 1 ;;
  esac
}

take_down # what an interrupted run left
compose up -d --build || fail "the services do not start"
until_true 120 is_ready || fail "the service is not ready after 120 s"
key=$(compose exec -T dispatcher /dispatcher keys create --project smoke --scopes send,read,admin </dev/null | tr -d '\r\n')
case $key in dsp_*) ;; *) fail "keys create printed no key" ;; esac

channels=()
ids=()
while read -r channel address; do
  id=$(post "$channel" "$address" 2>/dev/null) || fail "the notification by $channel is not accepted: $(post "$channel" "$address" 2>&1)"
  channels+=("$channel")
  ids+=("$id")
done <<'ADDRESSES'
push {"provider":"fcm","token":"my-phone"}
sms "+14155550100"
whatsapp "+14155550100"
email "ana@sandbox.test"
slack {"channel":"#ops"}
webhook {"url":"http://sandbox:8090/webhook/smoke"}
ADDRESSES

for i in "${!ids[@]}"; do
  until_true 60 is_sent "${ids[$i]}" "${channels[$i]}" || fail "the notification by ${channels[$i]} is still $status after 60 s"
  echo "${channels[$i]}: $status"
done
for channel in "${channels[@]}"; do
  get "$sandbox/sandbox/messages" | grep -q "through $channel" || fail "the sandbox received nothing by $channel"
done
echo "smoke: all ${#ids[@]} channels deliver"
