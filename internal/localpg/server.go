//go:build unix

package localpg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	startLimit = 2 * time.Minute // Recovery after a crash takes its time.
	pollEvery  = 20 * time.Millisecond

	stopLimit = 10 * time.Second
	quitLimit = 6 * time.Second // PostgreSQL kills what is left after 5 s.
	killLimit = 4 * time.Second
)

// launch is what a server is started with.
type launch struct {
	account  account
	programs programs
	data     string // made by initialize
	sockets  string
	log      string // truncated at the start
	settings map[string]string
	// ending is the signal that ends the server: SIGINT shuts it down cleanly,
	// SIGQUIT at once.
	ending syscall.Signal
	// litter is a folder to remove when this process dies without a stop.
	litter string
}

// server is a running postmaster.
type server struct {
	process *os.Process
	exited  <-chan struct{}
	ending  syscall.Signal
	keeper  *keeper
}

// start runs the server and returns when it answers.
func (l launch) start(ctx context.Context) (*server, error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()

	data, err := l.account.handOver(l.data)
	if err != nil {
		return nil, err
	}
	defer data.close()
	log, err := os.OpenFile(l.log, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }() // The server has its own descriptor.

	args := []string{"-D", data.arg, "-k", l.sockets, "-p", port, "-c", "listen_addresses="}
	for _, name := range slices.Sorted(maps.Keys(l.settings)) {
		args = append(args, "-c", name+"="+l.settings[name])
	}
	cmd := l.account.command(context.WithoutCancel(ctx), l.programs.postgres(), args...)
	cmd.ExtraFiles = data.files
	cmd.Stdout, cmd.Stderr = log, log
	dieWithParent(cmd.SysProcAttr, l.ending)

	exited, err := startOnOwnThread(cmd)
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", l.programs.postgres(), err)
	}
	s := &server{process: cmd.Process, exited: exited, ending: l.ending}
	if s.keeper, err = keep(context.WithoutCancel(ctx), cmd.Process.Pid, l.ending, l.litter); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	if err := s.waitReady(ctx, l.sockets); err != nil {
		stopErr := s.stop()
		if reason := lastComplaint(l.log); reason != "" && ctx.Err() == nil {
			err = fmt.Errorf("%w: %s", err, reason)
		}
		return nil, errors.Join(err, stopErr)
	}
	return s, nil
}

// startOnOwnThread starts a command and waits for it on one locked thread: Linux
// sends the parent-death signal when the thread that forked ends, not the
// process, and the Go runtime may end any thread that nothing is locked to.
func startOnOwnThread(cmd *exec.Cmd) (exited <-chan struct{}, err error) {
	started := make(chan error)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // Why it ended is in its log.
		}
	}()
	return done, <-started
}

var errEnded = errors.New("the server ended at once")

// waitReady returns when the server accepts a connection.
func (s *server) waitReady(ctx context.Context, sockets string) error {
	probe := Cluster{sockets: sockets}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		conn, err := pgx.Connect(ctx, probe.URL("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.exited:
			return errEnded
		case <-ctx.Done():
			return fmt.Errorf("wait for the server: %w", ctx.Err())
		case <-tick.C:
		}
	}
}

// stop ends the server, by force where it does not end in time.
func (s *server) stop() error {
	for _, try := range []struct {
		signal syscall.Signal
		within time.Duration
	}{{s.ending, stopLimit}, {syscall.SIGQUIT, quitLimit}, {syscall.SIGKILL, killLimit}} {
		// It may have ended by itself; then exited says so.
		_ = s.process.Signal(try.signal)
		select {
		case <-s.exited:
			s.keeper.dismiss()
			return nil
		case <-time.After(try.within):
		}
	}
	return fmt.Errorf("stop PostgreSQL: process %d does not end", s.process.Pid)
}

// lastComplaint returns the last fatal message of a server's or initdb's output,
// or its last line.
func lastComplaint(log string) string {
	text, err := os.ReadFile(log)
	if err != nil {
		return ""
	}
	return complaintIn(string(text))
}

func complaintIn(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	for _, line := range slices.Backward(lines) {
		for _, mark := range []string{"PANIC:", "FATAL:", "error:", "ERROR:"} {
			if _, message, ok := strings.Cut(line, mark); ok {
				return strings.TrimSpace(message)
			}
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return strings.TrimSpace(lines[len(lines)-1])
}
