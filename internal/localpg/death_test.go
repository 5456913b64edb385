//go:build unix

package localpg_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/localpg"
)

func TestThrowawayClusterEndsWithItsKilledParent(t *testing.T) {
	t.Parallel()
	address, parent := startParent(t, "throwaway")
	kill(t, parent, syscall.SIGKILL)
	eventually(t, "the server is gone", func() bool { return !answers(t, address) })
	eventually(t, "the folder is gone", func() bool {
		_, err := os.Stat(socketsOf(t, address))
		return errors.Is(err, os.ErrNotExist)
	})
}

func TestKeptClusterStartsAgainAfterItsParentWasKilled(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "pg")
	address, parent := startParent(t, folder)
	execute(t, address, "CREATE TABLE kept AS SELECT 'yes'::text AS value")
	kill(t, parent, syscall.SIGKILL)

	// At once, while the old server may still be shutting down.
	c := start(t, localpg.Config{Folder: folder})
	if got := query(t, c.URL("postgres"), "SELECT value FROM kept"); got != "yes" {
		t.Errorf("value = %q, want it kept", got)
	}
}

func TestKeptClusterRecoversAfterServerAndParentWereKilled(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "pg")
	address, parent := startParent(t, folder)
	execute(t, address, "CREATE TABLE kept AS SELECT 'yes'::text AS value")
	killServer(t, folder)
	kill(t, parent, syscall.SIGKILL)
	eventually(t, "the server is gone", func() bool { return !answers(t, address) })

	c := start(t, localpg.Config{Folder: folder})
	if got := query(t, c.URL("postgres"), "SELECT value FROM kept"); got != "yes" {
		t.Errorf("value = %q, want it kept", got)
	}
}

func TestInterruptOfTheTerminalDoesNotReachTheServer(t *testing.T) {
	t.Parallel()
	address, parent := startParent(t, "throwaway")
	// What a terminal does on Ctrl-C: the signal goes to every process of the group.
	if err := syscall.Kill(-parent.Process.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if !answers(t, address) {
		t.Error("a signal to the parent's process group stopped the server, want it in a group of its own")
	}
	if err := syscall.Kill(-parent.Process.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

func TestNextStartRemovesWhatNobodyHolds(t *testing.T) {
	t.Parallel()
	address := start(t, localpg.Config{}).URL("postgres")
	base := filepath.Dir(socketsOf(t, address))
	left := filepath.Join(base, "dispatcher-pg-left-by-a-test")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(left, "lock"), "")

	start(t, localpg.Config{})
	if _, err := os.Stat(left); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder left behind: %v, want it gone", err)
	}
	if !answers(t, address) {
		t.Error("the first cluster was taken for one left behind")
	}
}

// startParent runs this test binary as a process of its own that starts a
// cluster, in a process group of its own.
func startParent(t *testing.T, folder string) (address string, parent *exec.Cmd) {
	t.Helper()
	parent = exec.CommandContext(t.Context(), os.Args[0])
	parent.Env = append(os.Environ(), asParent+"="+folder)
	parent.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var complaint strings.Builder
	parent.Stderr = &complaint
	if _, err := parent.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = parent.Wait()
		if strings.Contains(complaint.String(), localpg.ErrNoPrograms.Error()) && os.Getenv("CI") == "" {
			t.Skip(complaint.String())
		}
		t.Fatalf("the parent: %v: %s", err, complaint.String())
	}
	t.Cleanup(func() {
		if parent.ProcessState == nil {
			_ = parent.Process.Kill()
			_ = parent.Wait()
		}
	})
	return strings.TrimSpace(line), parent
}

func kill(t *testing.T, cmd *exec.Cmd, signal syscall.Signal) {
	t.Helper()
	if err := cmd.Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // It says that it was killed.
}

func answers(t *testing.T, address string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return false
	}
	_ = conn.Close(ctx)
	return true
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(20 * time.Second); !ok(); {
		select {
		case <-limit:
			t.Fatalf("not within 20 s: %s", what)
		case <-tick.C:
		}
	}
}

// killServer kills a cluster's postmaster the hard way.
func killServer(t *testing.T, folder string) {
	t.Helper()
	pid := firstLine(t, filepath.Join(folder, "data", "postmaster.pid"))
	run(t, "kill", "-KILL", pid)
}

func firstLine(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimSpace(first)
}
