package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// ErrNoPrograms says that this machine has no PostgreSQL server programs. Its
// message tells a person what to install.
var ErrNoPrograms = errors.New("no PostgreSQL server programs (initdb, postgres) on this machine: " +
	"install them, e.g. `apt-get install postgresql` or `brew install postgresql@17`, or use a running server")

// programs is one installation.
type programs struct {
	dir   string // holds initdb and postgres
	major int    // 0 where it cannot be told
}

func (p programs) initdb() string   { return filepath.Join(p.dir, "initdb") }
func (p programs) postgres() string { return filepath.Join(p.dir, "postgres") }

// findPrograms returns the installations of this machine, the preferred one
// first: PATH, what pg_config names, then the newest of the places where Debian,
// Red Hat and Homebrew put them.
func findPrograms(ctx context.Context) []programs {
	var dirs []string
	if p, err := exec.LookPath("initdb"); err == nil {
		dirs = append(dirs, filepath.Dir(p))
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	dirs = append(dirs, newestFirst(
		"/usr/lib/postgresql/*/bin",
		"/usr/pgsql-*/bin",
		"/opt/homebrew/opt/postgresql@*/bin",
		"/usr/local/opt/postgresql@*/bin",
	)...)
	return installations(ctx, dirs)
}

// installations keeps the folders that hold both programs, each once.
func installations(ctx context.Context, dirs []string) []programs {
	var found []programs
	for _, dir := range dirs {
		// PATH often holds links; the real folder is also where postgres looks
		// for its libraries.
		initdb, err := filepath.EvalSymlinks(filepath.Join(dir, "initdb"))
		if err != nil {
			continue
		}
		p := programs{dir: filepath.Dir(initdb)}
		if !executable(p.initdb()) || !executable(p.postgres()) {
			continue
		}
		if slices.ContainsFunc(found, func(q programs) bool { return q.dir == p.dir }) {
			continue
		}
		p.major = majorOf(ctx, p)
		found = append(found, p)
	}
	return found
}

// newestFirst returns what the patterns match, by descending version number.
func newestFirst(patterns ...string) []string {
	var dirs []string
	for _, pattern := range patterns {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			continue
		}
		dirs = append(dirs, matches...)
	}
	slices.SortStableFunc(dirs, func(a, b string) int { return lastNumber(b) - lastNumber(a) })
	return dirs
}

// firstNumber and lastNumber return a run of digits in s, 0 where there is none.
func firstNumber(s string) int { return numberAt(s, 0) }
func lastNumber(s string) int  { return numberAt(s, -1) }

// numberAt returns the i-th number in s; -1 is the last.
func numberAt(s string, i int) int {
	runs := strings.FieldsFunc(s, func(r rune) bool { return r < '0' || r > '9' })
	if len(runs) == 0 {
		return 0
	}
	if i < 0 {
		i += len(runs)
	}
	n, err := strconv.Atoi(runs[i])
	if err != nil {
		return 0
	}
	return n
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// majorOf asks the server program for its version: "postgres (PostgreSQL) 17.2".
func majorOf(ctx context.Context, p programs) int {
	out, err := exec.CommandContext(ctx, p.postgres(), "--version").Output()
	if err != nil {
		return 0
	}
	_, version, _ := strings.Cut(string(out), "(PostgreSQL)")
	return firstNumber(version)
}

// choose picks the installation for a data folder made by major; 0 is a new one.
func choose(found []programs, major int) (programs, error) {
	if len(found) == 0 {
		return programs{}, ErrNoPrograms
	}
	if major == 0 {
		return found[0], nil
	}
	have := make([]string, 0, len(found))
	for _, p := range found {
		if p.major == major {
			return p, nil
		}
		have = append(have, strconv.Itoa(p.major))
	}
	return programs{}, fmt.Errorf("was made by PostgreSQL %d, and this machine has %s: "+
		"install PostgreSQL %d, or remove the folder to start empty", major, strings.Join(have, ", "), major)
}
