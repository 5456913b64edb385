//go:build unix

package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest/pgserver"
)

// asCommand makes the test binary behave as withpg itself.
const asCommand = "WITHPG_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// withpg prepares a run of the command with a server of its own.
func withpg(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1", pgserver.URLVariable+"=", pgserver.ChoiceVariable+"=")
	return cmd
}

func TestCommandFindsTheServerAndItsStatusIsPassedOn(t *testing.T) {
	out, err := withpg(t, "sh", "-c", `echo "$TEST_DATABASE_URL"; exit 7`).Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Fatalf("ended with %v, want status 7", err)
	}
	url := strings.TrimSpace(string(out))
	if url == "" && os.Getenv("CI") == "" {
		t.Skip("no PostgreSQL on this machine")
	}
	if !strings.HasPrefix(url, "postgres:") {
		t.Errorf("TEST_DATABASE_URL = %q, want a URL", url)
	}
	if answers(t, url) {
		t.Error("the server answers after its command's end")
	}
}

func TestSignalEndsCommandAndServer(t *testing.T) {
	cmd := withpg(t, "sh", "-c", `echo "$TEST_DATABASE_URL"; sleep 600 & echo $!; wait`)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	url := readLine(t, lines)
	sleeper := readLine(t, lines)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("ended with status 0, want the signal to show")
	}
	if url != "" && answers(t, url) {
		t.Error("the server answers after the signal")
	}
	ended := time.After(10 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for exec.CommandContext(t.Context(), "kill", "-0", sleeper).Run() == nil {
		select {
		case <-ended:
			t.Fatalf("process %s of the command still runs", sleeper)
		case <-tick.C:
		}
	}
}

func readLine(t *testing.T, r *bufio.Reader) string {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

func answers(t *testing.T, url string) bool {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		return false
	}
	_ = conn.Close(t.Context())
	return true
}
