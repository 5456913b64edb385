//go:build unix

package localpg

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockName is the file in a cluster's folder that the process running it holds
// locked. The kernel frees the lock however that process ends, so a lock that can
// be had proves that nobody runs the cluster.
const lockName = "lock"

// lock takes a folder's lock, or returns [ErrInUse].
func lock(folder string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(folder, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// createLocked makes the lock file of a new folder. The file appears under its
// name only when it is locked, so that no reaper finds it free.
func createLocked(folder string) (*os.File, error) {
	draft := filepath.Join(folder, lockName+".new")
	f, err := os.OpenFile(draft, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if err := os.Rename(draft, filepath.Join(folder, lockName)); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func flock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return ErrInUse
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}
