package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// usage is what a process has used since it began.
type usage struct {
	CPU  time.Duration // user and system
	RSS  int64         // bytes now, 0 where it cannot be known
	Peak int64         // bytes at most
}

// memoryOf reads RSS and its peak from Linux's status of a process.
func memoryOf(pid string) (rss, peak int64) {
	text, err := os.ReadFile(filepath.Join("/proc", pid, "status")) //nolint:gosec // no user's input
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) != 2 || fields[1] != "kB" {
			continue
		}
		kb, err := strconv.ParseInt(fields[0], 10, 64)
		switch {
		case err != nil:
		case name == "VmRSS":
			rss = kb << 10
		case name == "VmHWM":
			peak = kb << 10
		}
	}
	return rss, peak
}

// userHZ is the unit of CPU times in /proc, which Linux fixes at 100 a second for
// all its architectures that matter.
const userHZ = 100

// errNoServerUsage says that the server's processes cannot be seen from here.
var errNoServerUsage = errors.New("the CPU time of PostgreSQL is not known: its processes are not on this machine, or this is not Linux")

// serverCPU is the CPU time of a PostgreSQL server: of its postmaster, of the
// processes that it has now, and of those that have ended, which the kernel adds
// up for their parent.
func serverCPU(postmaster int) (time.Duration, error) {
	own, err := readStat(postmaster)
	if err != nil {
		return 0, err
	}
	ticks := own.own + own.ended
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			continue
		}
		if s, err := readStat(pid); err == nil && s.parent == postmaster { // others may end meanwhile
			ticks += s.own + s.ended
		}
	}
	return time.Duration(ticks) * time.Second / userHZ, nil
}

// stat is a part of /proc/PID/stat.
type stat struct {
	command    string
	parent     int
	own, ended int64 // ticks; ended is of children that were waited for
}

func readStat(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The command stands in parentheses and may hold anything.
	from, to := strings.IndexByte(string(text), '('), strings.LastIndexByte(string(text), ')')
	if from < 0 || to < from {
		return stat{}, errNoServerUsage
	}
	s := stat{command: string(text[from+1 : to])}
	f := strings.Fields(string(text[to+1:]))
	if len(f) < 15 {
		return stat{}, errNoServerUsage
	}
	// Fields are counted from the state, which is the third.
	if s.parent, err = strconv.Atoi(f[1]); err != nil {
		return stat{}, err
	}
	for i, sum := range map[int]*int64{11: &s.own, 12: &s.own, 13: &s.ended, 14: &s.ended} {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil {
			return stat{}, err
		}
		*sum += n
	}
	return s, nil
}

// findPostmaster returns the process id of the server, if its backends are
// processes of this machine.
func (b *bench) findPostmaster(ctx context.Context) (int, error) {
	var backend int
	if err := b.admin.QueryRow(ctx, "select pg_backend_pid()").Scan(&backend); err != nil {
		return 0, fmt.Errorf("find the server: %w", err)
	}
	s, err := readStat(backend)
	if err != nil || !strings.HasPrefix(s.command, "postgres") {
		return 0, errNoServerUsage
	}
	return s.parent, nil
}
