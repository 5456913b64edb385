//go:build unix

package localpg

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"syscall"
)

// keeperScript waits at a pipe that only this process holds. A line means that
// all was stopped in order; the pipe's end means that this process is gone, also
// by kill -9, and that the keeper has to clean up: signal $1 to process $2, then
// remove folder $3. The wait is bounded because an orphan that nobody reaps stays
// visible.
const keeperScript = `read -r _ && exit
kill -"$1" "$2"
i=0
while kill -0 "$2" && [ "$i" -lt 100 ]; do sleep 0.1; i=$((i + 1)); done
[ -z "$3" ] || rm -rf "$3"`

// keeper is a small process that outlives this one to end its server and remove
// its litter, where no parent-death signal exists and where nobody is left to do it.
type keeper struct {
	pipe io.WriteCloser
	done <-chan struct{}
}

func keep(ctx context.Context, pid int, ending syscall.Signal, litter string) (*keeper, error) {
	name := map[syscall.Signal]string{syscall.SIGINT: "INT", syscall.SIGQUIT: "QUIT"}[ending]
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", keeperScript, "keeper", name, strconv.Itoa(pid), litter)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C must not end it first.
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the server's keeper: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the server's keeper: %w", err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = cmd.Wait() // Its status says nothing that matters.
	}()
	return &keeper{pipe: pipe, done: done}, nil
}

// dismiss ends the keeper without clean-up.
func (k *keeper) dismiss() {
	if k == nil {
		return
	}
	// Where the keeper is gone already, there is nothing to tell it.
	_, _ = io.WriteString(k.pipe, "stopped\n")
	_ = k.pipe.Close()
	<-k.done
}
