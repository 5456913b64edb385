//go:build unix

// Command withpg runs a command, as a rule `go test ./...`, with one PostgreSQL
// server for all the processes it starts. They find it in TEST_DATABASE_URL.
//
//	go run ./internal/pgtest/cmd/withpg go test ./...
//
// Where the server comes from is told at [pgserver.Start]. Without one the command
// still runs, so that tests can say what they miss, except in CI.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest/pgserver"
)

// graceful is how long the command may take to end after a signal.
const graceful = 10 * time.Second

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: withpg command [argument ...]")
		os.Exit(2)
	}
	status, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "withpg:", err)
	}
	os.Exit(status)
}

// run returns the exit status of the command.
func run(command []string) (status int, err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()

	environ := os.Environ()
	server, err := pgserver.Start(ctx)
	switch {
	case errors.Is(err, pgserver.ErrNone) && os.Getenv("CI") == "":
		fmt.Fprintf(os.Stderr, "withpg: %v; tests that need one are skipped\n", err)
	case err != nil:
		return 1, err
	default:
		defer func() {
			if stopErr := server.Stop(); stopErr != nil {
				status, err = 1, errors.Join(err, stopErr)
			}
		}()
		environ = environment(environ, server.URL)
	}

	// The command leads a process group, so that a signal ends all of it: go test
	// alone would leave its test programs running.
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = graceful
	cmd.Env = environ
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	if ctx.Err() != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // What the signal did not end.
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() > 0 {
		return exit.ExitCode(), nil // The command has said why.
	}
	if err != nil {
		return 1, err
	}
	return 0, nil
}

// environment names the server, and drops the variable that would pass it over.
func environment(environ []string, url string) []string {
	environ = slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		return strings.HasPrefix(v, pgserver.ChoiceVariable+"=") || strings.HasPrefix(v, pgserver.URLVariable+"=")
	})
	return append(environ, pgserver.URLVariable+"="+url)
}
