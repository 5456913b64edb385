//go:build unix

package localpg

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
)

// initialize makes a data folder. It does not exist at first, and exists only
// when it is whole: an interrupted run leaves a draft, which the next one removes.
func initialize(ctx context.Context, a account, p programs, data string, flags ...string) error {
	draft := data + ".new"
	if err := os.RemoveAll(draft); err != nil {
		return err
	}
	if err := os.Mkdir(draft, 0o700); err != nil {
		return err
	}
	if err := a.own(draft); err != nil {
		return err
	}
	if err := runInitdb(ctx, a, p, draft, flags...); err != nil {
		return errors.Join(err, os.RemoveAll(draft))
	}
	return os.Rename(draft, data)
}

func runInitdb(ctx context.Context, a account, p programs, data string, flags ...string) error {
	folder, err := a.handOver(data)
	if err != nil {
		return err
	}
	defer folder.close()
	args := append([]string{
		"-D", folder.arg, "--username", Superuser, "--auth", "trust", "--encoding", "UTF8", "--locale", "C",
	}, flags...)
	cmd := a.command(ctx, p.initdb(), args...)
	cmd.ExtraFiles = folder.files
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("run initdb: %w", ctx.Err())
		}
		return fmt.Errorf("run initdb as %s: %w: %s", a.name, err, complaintIn(output.String()))
	}
	return nil
}

// handedOver is a folder as the account's programs name it.
type handedOver struct {
	arg   string
	files []*os.File
}

func (h handedOver) close() {
	for _, f := range h.files {
		_ = f.Close() // The child has its own descriptor.
	}
}
