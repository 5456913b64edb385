//go:build unix

package localpg

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// orphanLimit bounds the wait for an earlier run's server to shut down.
const orphanLimit = 30 * time.Second

// postmasterPID reads the process id that a server noted in its data folder.
func postmasterPID(data string) (pid int, ok bool) {
	text, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return 0, false
	}
	first, _, _ := bytes.Cut(text, []byte("\n"))
	pid, err = strconv.Atoi(string(bytes.TrimSpace(first)))
	return pid, err == nil && pid > 1
}

// runsWith reports whether a process is a server of this package with that socket
// folder. It is false for a process that ended and waits to be reaped.
func runsWith(pid int, sockets string) bool {
	return strings.Contains(commandLine(pid), " -k "+sockets+" ")
}

// endOrphan shuts down the server of an earlier run.
func endOrphan(ctx context.Context, pid int, sockets string) error {
	ctx, cancel := context.WithTimeout(ctx, orphanLimit)
	defer cancel()
	if err := syscall.Kill(pid, syscall.SIGINT); err != nil {
		return fmt.Errorf("stop the PostgreSQL of an earlier run, process %d: %w", pid, err)
	}
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for runsWith(pid, sockets) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the PostgreSQL of an earlier run, process %d, does not stop: %w", pid, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}

// disownPID makes a postmaster.pid whose process id has passed to another program
// count as stale. PostgreSQL refuses to start while that process lives, except
// where it is its own parent. The rest of the file stays: by the shared memory it
// names PostgreSQL tells whether backends of the dead server are still at work.
func disownPID(data string) error {
	path := filepath.Join(data, "postmaster.pid")
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, rest, _ := bytes.Cut(text, []byte("\n"))
	text = append([]byte(strconv.Itoa(os.Getpid())+"\n"), rest...)
	return os.WriteFile(path, text, 0o600)
}
