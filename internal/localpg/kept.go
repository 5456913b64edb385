//go:build unix

package localpg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// keptSettings leave PostgreSQL's safety alone.
func keptSettings() map[string]string {
	return map[string]string{
		"jit": "off", "max_connections": "200", "timezone": "UTC", "log_timezone": "UTC",
	}
}

// startKept starts the cluster of a folder:
//
//	lock           held while the cluster runs
//	data/          PostgreSQL's data folder
//	postgres.log   what the server said since the last start
func startKept(ctx context.Context, found []programs, cfg Config) (*Cluster, error) {
	folder, err := filepath.Abs(cfg.Folder)
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	held, err := lock(folder)
	if errors.Is(err, ErrInUse) {
		return nil, fmt.Errorf("data folder %s is %w: stop that one, or choose another folder", folder, ErrInUse)
	}
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	c, err := startLocked(ctx, found, folder, cfg.Settings)
	if err != nil {
		return nil, errors.Join(err, held.Close())
	}
	removeSockets := c.release
	c.release = func() error { return errors.Join(removeSockets(), held.Close()) }
	return c, nil
}

func startLocked(ctx context.Context, found []programs, folder string, settings map[string]string) (*Cluster, error) {
	data := filepath.Join(folder, "data")
	a, err := keptAccount(data)
	if err != nil {
		return nil, err
	}
	major, err := dataVersion(data)
	if err != nil {
		return nil, err
	}
	p, err := choose(found, major)
	if err != nil {
		return nil, fmt.Errorf("%w: %s %w", ErrUnusable, data, err)
	}
	sockets, err := socketFolder(ctx, a, p, folder)
	if err != nil {
		return nil, err
	}
	l := launch{
		account: a, programs: p,
		data: data, sockets: sockets, log: filepath.Join(folder, "postgres.log"),
		settings: keptSettings(), ending: syscall.SIGINT,
	}
	maps.Copy(l.settings, settings)
	removeSockets := func() error { return os.RemoveAll(sockets) }

	s, err := startData(ctx, l, major == 0)
	if err != nil {
		return nil, errors.Join(err, removeSockets())
	}
	return &Cluster{sockets: sockets, server: s, release: removeSockets}, nil
}

func startData(ctx context.Context, l launch, isNew bool) (*server, error) {
	if isNew {
		if err := initialize(ctx, l.account, l.programs, l.data); err != nil {
			return nil, fmt.Errorf("make the data folder %s: %w", l.data, err)
		}
	} else if err := clearEarlierRun(ctx, l.data, l.sockets); err != nil {
		return nil, err
	}
	if err := removeStaleSockets(l.sockets); err != nil {
		return nil, fmt.Errorf("start PostgreSQL: %w", err)
	}
	s, err := l.start(ctx)
	if errors.Is(err, errEnded) {
		return nil, fmt.Errorf("%w: PostgreSQL does not start with %s: %w; see %s, or remove the folder to start empty",
			ErrUnusable, l.data, err, l.log)
	}
	if err != nil {
		return nil, fmt.Errorf("start PostgreSQL with %s: %w", l.data, err)
	}
	return s, nil
}

// dataVersion returns the major version that made a data folder, 0 where there is
// none yet.
func dataVersion(data string) (int, error) {
	entries, err := os.ReadDir(data)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnusable, err)
	}
	if len(entries) == 0 {
		return 0, os.Remove(data) // It is made anew as a whole.
	}
	version, err := os.ReadFile(filepath.Join(data, "PG_VERSION"))
	major := firstNumber(string(version))
	if err != nil || major == 0 {
		return 0, fmt.Errorf("%w: %s is not a whole PostgreSQL data folder (no PG_VERSION in it): "+
			"move it away, or remove it to start empty", ErrUnusable, data)
	}
	return major, nil
}

// keptAccount is the user that owns the data, which PostgreSQL insists on.
func keptAccount(data string) (account, error) {
	a, err := chooseAccount()
	if err != nil {
		return account{}, err
	}
	uid, gid, err := owner(data)
	switch {
	case errors.Is(err, os.ErrNotExist), err == nil && uid == a.uid:
		return a, nil
	case err != nil:
		return account{}, fmt.Errorf("%w: %w", ErrUnusable, err)
	case a.credential == nil:
		return account{}, fmt.Errorf("%w: %s belongs to another user (uid %d): run as that user, or choose another folder",
			ErrUnusable, data, uid)
	case uid == 0:
		return a, a.own(data) // Copied or restored by root.
	}
	return switchTo("uid "+strconv.Itoa(uid), uid, gid), nil
}

// clearEarlierRun deals with what a run that was killed left in the data folder,
// whose lock this process holds: a server still shutting down, or only its
// postmaster.pid.
func clearEarlierRun(ctx context.Context, data, sockets string) error {
	pid, ok := postmasterPID(data)
	if !ok {
		return nil
	}
	if runsWith(pid, sockets) {
		if err := endOrphan(ctx, pid, sockets); err != nil {
			return fmt.Errorf("data folder %s is %w: %w", data, ErrInUse, err)
		}
		return nil
	}
	if strings.Contains(commandLine(pid), "postgres") {
		return fmt.Errorf("data folder %s is %w: its postmaster.pid names process %d, a PostgreSQL: "+
			"stop that one, or remove postmaster.pid if it serves other data", data, ErrInUse, pid)
	}
	return disownPID(data)
}
