//go:build unix

package localpg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	throwawayPrefix = "dispatcher-pg-"
	// memoryFolder is Linux's memory file system; enoughMemory is what must be
	// free there. It makes tests two to seven times as fast as a disk.
	memoryFolder = "/dev/shm"
	enoughMemory = 1 << 30
)

// throwawaySettings trade all safety for speed.
func throwawaySettings() map[string]string {
	return map[string]string{
		"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off",
		"wal_level": "minimal", "max_wal_senders": "0",
		"autovacuum": "off", "jit": "off",
		"shared_buffers": "64MB", "max_connections": "300",
		"timezone": "UTC", "log_timezone": "UTC",
	}
}

func startThrowaway(ctx context.Context, p programs, settings map[string]string) (*Cluster, error) {
	a, err := chooseAccount()
	if err != nil {
		return nil, err
	}
	for _, base := range throwawayBases() {
		reap(base)
	}
	folder, held, err := makeThrowawayFolder(ctx, a, p)
	if err != nil {
		return nil, fmt.Errorf("start a throwaway PostgreSQL: %w", err)
	}
	release := func() error { return errors.Join(os.RemoveAll(folder), held.Close()) }

	l := launch{
		account: a, programs: p,
		data: filepath.Join(folder, "data"), sockets: folder, log: filepath.Join(folder, "postgres.log"),
		settings: throwawaySettings(), ending: syscall.SIGQUIT, litter: folder,
	}
	maps.Copy(l.settings, settings)
	err = initialize(ctx, a, p, l.data, "--no-sync")
	var s *server
	if err == nil {
		s, err = l.start(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a throwaway PostgreSQL: %w", err), release())
	}
	return &Cluster{sockets: folder, server: s, release: release}, nil
}

// throwawayBases lists where throwaway clusters can live, the best first.
func throwawayBases() []string {
	var bases []string
	if freeBytes(memoryFolder) > enoughMemory {
		bases = append(bases, memoryFolder)
	}
	return append(bases, os.TempDir(), "/tmp")
}

// makeThrowawayFolder makes a locked folder that the account owns and reaches.
func makeThrowawayFolder(ctx context.Context, a account, p programs) (folder string, held *os.File, err error) {
	for _, base := range throwawayBases() {
		folder, err = os.MkdirTemp(base, throwawayPrefix)
		if err != nil {
			continue
		}
		held, err = createLocked(folder)
		if err == nil {
			err = a.own(folder)
		}
		if err == nil && socketFits(folder) && a.reaches(ctx, p, folder) {
			return folder, held, nil
		}
		err = errors.Join(err, os.RemoveAll(folder), closeLock(held))
	}
	if err == nil {
		err = fmt.Errorf("no temporary folder has a short path and is open to %s", a.name)
	}
	return "", nil, err
}

func closeLock(f *os.File) error {
	if f == nil {
		return nil
	}
	return f.Close()
}

// unlockedAge is how old a folder without a lock file must be to count as left
// behind, and not as one that is being made.
const unlockedAge = 10 * time.Minute

// reap removes what runs that were killed together with their keeper left behind.
// What cannot be removed, another user's for one, stays.
func reap(base string) {
	folders, err := filepath.Glob(filepath.Join(base, throwawayPrefix+"*"))
	if err != nil {
		return
	}
	for _, folder := range folders {
		if !abandoned(folder) {
			continue
		}
		if pid, ok := postmasterPID(filepath.Join(folder, "data")); ok && runsWith(pid, folder) {
			_ = syscall.Kill(pid, syscall.SIGQUIT)
		}
		_ = os.RemoveAll(folder)
	}
}

func abandoned(folder string) bool {
	f, err := os.OpenFile(filepath.Join(folder, lockName), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		info, err := os.Stat(folder)
		return err == nil && time.Since(info.ModTime()) > unlockedAge
	}
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	return flock(f) == nil
}
