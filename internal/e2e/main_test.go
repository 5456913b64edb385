//go:build unix

// Package e2e_test drives the program as its users do: real processes on a real
// PostgreSQL, calling providers that stand in a sandbox over real sockets. What
// holds is read from the API, the database and what the sandbox received, never
// from the inside of a process.
//
// E2E_NOTIFICATIONS sets how many notifications the tests under load send, in
// place of a number that suits every run.
package e2e_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	// The program is built by hand; this makes its code part of what decides
	// whether a cached result of these tests still holds.
	_ "github.com/notification-dispatcher/dispatcher/internal/cli"
)

// program is the path of the built binary, whose name is dispatcher.
var program string

// atOnce is how many tests run side by side where -parallel does not say: most of
// their time is the program's, and it waits.
const atOnce = 4

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	folder, err := os.MkdirTemp("", "dispatcher-e2e-")
	if err == nil {
		program = filepath.Join(folder, "dispatcher")
		err = build(program)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	if runtime.GOMAXPROCS(0) < atOnce {
		err = errors.Join(err, flag.Set("test.parallel", strconv.Itoa(atOnce))) // before the flags are parsed, which win
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	return m.Run()
}

// build makes the program as these tests were made: with the race detector or
// without.
func build(path string) error {
	args := []string{"build", "-o", path}
	if raceDetector {
		args = append(args, "-race")
	}
	args = append(args, "github.com/notification-dispatcher/dispatcher/cmd/dispatcher")
	cmd := exec.CommandContext(context.Background(), "go", args...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return errors.Join(errors.New("the program does not build"), err)
	}
	return nil
}

// notifications is how many notifications a test under load sends: usual, a
// quarter of it under the race detector, or what E2E_NOTIFICATIONS says.
func notifications(t *testing.T, usual int) int {
	t.Helper()
	if text := os.Getenv("E2E_NOTIFICATIONS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 100 {
			t.Fatalf("E2E_NOTIFICATIONS=%q: must be a number from 100", text)
		}
		return n
	}
	if raceDetector {
		return usual / 4
	}
	return usual
}

// busy is by how much a machine that has much else to do may be slower than an
// idle one, which is what limits of liveness are said for.
const busy = 4

// onBusy is a limit for a busy machine, where that is not beyond all patience.
func onBusy(within time.Duration) time.Duration { return max(within, min(busy*within, patience)) }

// eventually asks until ok says yes, and fails the test after within, or what that
// is on a busy machine.
func eventually(t *testing.T, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(onBusy(within))
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("not within %s: %s", onBusy(within), what)
		}
	}
}
