//go:build unix

package bench

import (
	"fmt"
	"syscall"
	"time"
)

func ownUsage() (usage, error) {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return usage{}, fmt.Errorf("read usage: %w", err)
	}
	u := usage{CPU: time.Duration(r.Utime.Nano() + r.Stime.Nano())}
	u.RSS, u.Peak = memoryOf("self")
	return u, nil
}

// ownGroup keeps Ctrl-C in a terminal from a child: bench ends it.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
