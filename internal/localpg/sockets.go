//go:build unix

package localpg

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// socketFolder makes the folder for the sockets of a data folder: the same one at
// every start, so that URLs stay true, and in a temporary folder, since the
// path of a socket must be short.
func socketFolder(ctx context.Context, a account, p programs, folder string) (string, error) {
	sum := sha256.Sum256([]byte(folder))
	name := fmt.Sprintf("dispatcher-%d-%x", a.uid, sum[:4])
	for _, base := range []string{os.TempDir(), "/tmp"} {
		sockets := filepath.Join(base, name)
		if !socketFits(sockets) || !a.reaches(ctx, p, base) {
			continue
		}
		if err := ownSocketFolder(a, sockets); err != nil {
			return "", fmt.Errorf("make the socket folder %s: %w", sockets, err)
		}
		return sockets, nil
	}
	return "", fmt.Errorf("start PostgreSQL: no temporary folder has a short path and is open to %s", a.name)
}

// ownSocketFolder makes the folder, or takes over an earlier run's. Anybody can
// make that name in /tmp, and who owns the folder could answer in the server's
// stead, so it must be the account's and closed to others.
func ownSocketFolder(a account, sockets string) error {
	if err := os.Mkdir(sockets, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(sockets)
	if err != nil {
		return err
	}
	uid, _, err := owner(sockets)
	if err != nil {
		return err
	}
	if !info.IsDir() || info.Mode().Perm() != 0o700 || (uid != a.uid && uid != os.Geteuid()) {
		return errors.New("somebody else's file has that name: remove it")
	}
	if a.credential == nil {
		return nil
	}
	return os.Lchown(sockets, a.uid, a.gid)
}

// removeStaleSockets removes what a killed server left there: PostgreSQL refuses
// a socket whose lock file names a living process, even another program's.
func removeStaleSockets(sockets string) error {
	left, err := os.ReadDir(sockets)
	if err != nil {
		return err
	}
	for _, entry := range left {
		if err := os.Remove(filepath.Join(sockets, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}
