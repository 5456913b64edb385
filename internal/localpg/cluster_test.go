//go:build unix

package localpg_test

import (
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/localpg"
)

func TestThrowawayClusterAnswersAndLeavesNothing(t *testing.T) {
	t.Setenv("PGPORT", "1") // Neither server nor client may listen to it.
	c := start(t, localpg.Config{Settings: map[string]string{"work_mem": "9MB"}})
	address := c.URL("postgres")
	if got := query(t, address, "SHOW fsync"); got != "off" {
		t.Errorf("fsync = %s, want off", got)
	}
	if got := query(t, address, "SHOW listen_addresses"); got != "" {
		t.Errorf("listens on %q, want the socket only", got)
	}
	if got := query(t, address, "SHOW work_mem"); got != "9MB" {
		t.Errorf("work_mem = %s, want the caller's 9MB", got)
	}

	sockets := socketsOf(t, address)
	stop(t, c)
	stop(t, c) // A second stop must neither hang nor fail.
	if _, err := os.Stat(sockets); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Stop, %s: %v, want it gone", sockets, err)
	}
	if conn, err := pgx.Connect(t.Context(), address); err == nil {
		_ = conn.Close(t.Context())
		t.Error("after Stop, the server still answers")
	}
}

func TestClusterLivesWhenOnlyItsURLIsKept(t *testing.T) {
	t.Parallel()
	start(t, localpg.Config{}) // Or the test is skipped here.
	address := startForgotten(t)
	for range 3 {
		runtime.GC()
	}
	start(t, localpg.Config{}) // It removes what looks left behind.
	if got := query(t, address, "SELECT 'here'"); got != "here" {
		t.Errorf("the server says %q", got)
	}
}

func TestKeptClusterKeepsDataAndAddress(t *testing.T) {
	t.Parallel()
	// A test's temporary folder is closed to other users, as root's home is, and
	// this one is too deep for a socket.
	folder := filepath.Join(t.TempDir(), strings.Repeat("deep/", 30), "pg")
	first := start(t, localpg.Config{Folder: folder})
	execute(t, first.URL("postgres"), "CREATE DATABASE app")
	execute(t, first.URL("app"), "CREATE TABLE kept AS SELECT 'yes'::text AS value")
	if got := query(t, first.URL("app"), "SHOW fsync"); got != "on" {
		t.Errorf("fsync = %s, want on", got)
	}
	stop(t, first)

	second := start(t, localpg.Config{Folder: folder})
	if got := query(t, second.URL("app"), "SELECT value FROM kept"); got != "yes" {
		t.Errorf("value = %q, want it kept", got)
	}
	if got, want := second.URL("app"), first.URL("app"); got != want {
		t.Errorf("second URL = %s, want the first's, %s", got, want)
	}
}

func TestFolderInUseIsRefused(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "pg")
	c := start(t, localpg.Config{Folder: folder})
	_, err := localpg.Start(t.Context(), localpg.Config{Folder: folder})
	if !errors.Is(err, localpg.ErrInUse) {
		t.Errorf("second Start = %v, want ErrInUse", err)
	}
	if got := query(t, c.URL("postgres"), "SELECT 'here'"); got != "here" {
		t.Errorf("the first cluster says %q, want it untouched", got)
	}
}

func TestUnusableDataIsExplained(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "pg")
	stop(t, start(t, localpg.Config{Folder: folder}))
	data := filepath.Join(folder, "data")

	version, control := filepath.Join(data, "PG_VERSION"), filepath.Join(data, "global", "pg_control")
	tests := []struct {
		name  string
		spoil func() error
		want  string
	}{
		{"other version", func() error { return os.WriteFile(version, []byte("9\n"), 0o600) }, "made by PostgreSQL 9"},
		{"no version", func() error { return os.Remove(version) }, "not a whole PostgreSQL data folder"},
		{"no control file", func() error { return os.Remove(control) }, "pg_control"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			restore := stash(t, data)
			if err := test.spoil(); err != nil {
				t.Fatal(err)
			}
			_, err := localpg.Start(t.Context(), localpg.Config{Folder: folder})
			if !errors.Is(err, localpg.ErrUnusable) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Start = %v, want ErrUnusable that says %q", err, test.want)
			}
			if err != nil && !strings.Contains(err.Error(), "to start empty") {
				t.Errorf("Start = %v, want advice on what to do", err)
			}
			restore(t)
		})
	}
	start(t, localpg.Config{Folder: folder}) // All refusals left it usable.
}

func TestStaleProcessIDOfAnotherProgramIsPassedOver(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "pg")
	stop(t, start(t, localpg.Config{Folder: folder}))
	data := filepath.Join(folder, "data")

	// PostgreSQL minds only processes of its own user.
	var st syscall.Stat_t
	if err := syscall.Stat(data, &st); err != nil {
		t.Fatal(err)
	}
	other := exec.CommandContext(t.Context(), "sleep", "600")
	other.Dir = "/"
	if os.Geteuid() == 0 {
		other.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: st.Uid, Gid: st.Gid}}
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	pidFile := filepath.Join(data, "postmaster.pid")
	write(t, pidFile, strconv.Itoa(other.Process.Pid)+"\n/elsewhere\n")
	if err := os.Lchown(pidFile, int(st.Uid), int(st.Gid)); err != nil {
		t.Fatal(err)
	}

	start(t, localpg.Config{Folder: folder})
}

func TestInterruptedInitializationIsRepeated(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "pg")
	draft := filepath.Join(folder, "data.new")
	if err := os.MkdirAll(draft, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(draft, "PG_VERSION"), "15\n")
	start(t, localpg.Config{Folder: folder})
	if _, err := os.Stat(draft); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the draft: %v, want it gone", err)
	}
}

// startForgotten starts a cluster that ends with the process, and keeps no
// reference to it.
func startForgotten(t *testing.T) (address string) {
	t.Helper()
	c, err := localpg.Start(t.Context(), localpg.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return c.URL("postgres")
}

// socketsOf returns the socket folder in a cluster's URL.
func socketsOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Query().Get("host")
}

// stash copies a folder and returns what puts the copy in its place.
func stash(t *testing.T, folder string) (restore func(t *testing.T)) {
	t.Helper()
	saved := folder + ".saved"
	run(t, "cp", "-a", folder, saved)
	return func(t *testing.T) {
		t.Helper()
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(saved, folder); err != nil {
			t.Fatal(err)
		}
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
