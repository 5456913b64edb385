//go:build unix

package localpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
)

// account is who the server runs as. Without a credential it is this process's
// own user.
type account struct {
	name       string
	uid, gid   int
	credential *syscall.Credential
}

// ownAccount is this process's user.
func ownAccount() account {
	return account{name: "uid " + strconv.Itoa(os.Geteuid()), uid: os.Geteuid(), gid: os.Getegid()}
}

// chooseAccount returns this process's user, or for root the one that may run a
// server.
func chooseAccount() (account, error) {
	if os.Geteuid() != 0 {
		return ownAccount(), nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.Atoi(u.Uid)
		gid, gidErr := strconv.Atoi(u.Gid)
		if uidErr == nil && gidErr == nil && uid > 0 {
			return switchTo(name, uid, gid), nil
		}
	}
	return account{}, errors.New("start PostgreSQL as root: it needs a user to run as, and there is neither postgres nor nobody")
}

// switchTo is the account that root becomes for its children.
func switchTo(name string, uid, gid int) account {
	return account{
		name: name, uid: uid, gid: gid,
		credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)},
	}
}

// own makes the account the owner of a folder and all that is in it.
func (a account) own(folder string) error {
	if a.credential == nil {
		return nil
	}
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }() // It was only read.
	return fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return root.Lchown(path, a.uid, a.gid)
	})
}

// command prepares a program of the installation: run as the account, in a
// process group of its own so that Ctrl-C in a terminal does not reach it, and
// without the PG* variables that would change what it does.
func (a account) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/" // This process's own may be closed to the account.
	cmd.Env = serverEnvironment(os.Environ())
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: a.credential}
	return cmd
}

func serverEnvironment(environ []string) []string {
	env := make([]string, 0, len(environ)+1)
	for _, v := range environ {
		if strings.HasPrefix(v, "PG") || strings.HasPrefix(v, "LC_") || strings.HasPrefix(v, "LANG") {
			continue
		}
		env = append(env, v)
	}
	return append(env, "LC_ALL=C")
}

// reaches reports whether the account can enter the folder: a parent may be
// closed to it. The kernel answers, since modes alone leave out access lists.
func (a account) reaches(ctx context.Context, p programs, folder string) bool {
	cmd := a.command(ctx, p.postgres(), "--version")
	cmd.Dir = folder
	return cmd.Run() == nil
}

// owner returns the user id that owns a path.
func owner(path string) (uid, gid int, err error) {
	info, err := os.Lstat(path)
	if err != nil {
		return 0, 0, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, 0, fmt.Errorf("no owner known of %s", path)
	}
	return int(st.Uid), int(st.Gid), nil
}
