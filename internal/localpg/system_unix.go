//go:build unix && !linux

package localpg

import (
	"context"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// dieWithParent does nothing: only Linux has a parent-death signal. The keeper
// ends the server here.
func dieWithParent(*syscall.SysProcAttr, syscall.Signal) {}

// handOver names a folder for the account's programs: by its path.
func (a account) handOver(folder string) (handedOver, error) { return handedOver{arg: folder}, nil }

// commandLine returns the command of a running process, or "" where there is none.
func commandLine(pid int) string {
	out, err := exec.CommandContext(context.Background(), "ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// freeBytes is asked only about memory file systems, which are Linux's.
func freeBytes(string) uint64 { return 0 }
