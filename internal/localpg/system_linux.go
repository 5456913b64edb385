package localpg

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// dieWithParent makes the kernel signal the child when the thread that started it
// ends, so that not even kill -9 of this process leaves a server behind.
func dieWithParent(attr *syscall.SysProcAttr, signal syscall.Signal) { attr.Pdeathsig = signal }

// handOver names a folder for the account's programs. Root hands over an open
// descriptor: a path through the descriptor needs no parent folder, and those of
// root's home or of a test's temporary folder are closed to the account.
func (a account) handOver(folder string) (handedOver, error) {
	if a.credential == nil {
		return handedOver{arg: folder}, nil
	}
	f, err := os.Open(folder)
	if err != nil {
		return handedOver{}, err
	}
	// The first of exec.Cmd's ExtraFiles is descriptor 3.
	return handedOver{arg: "/proc/self/fd/3", files: []*os.File{f}}, nil
}

// commandLine returns the command of a running process, or "" where there is none.
func commandLine(pid int) string {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.ReplaceAll(strings.TrimRight(string(line), "\x00"), "\x00", " ")
}

// freeBytes returns how much an ordinary user can still write to a file system,
// 0 where it cannot be told.
func freeBytes(folder string) uint64 {
	var st syscall.Statfs_t
	if err := syscall.Statfs(folder, &st); err != nil {
		return 0
	}
	return st.Bavail * uint64(st.Bsize)
}
