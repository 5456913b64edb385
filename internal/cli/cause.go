package cli

import (
	"errors"
	"os"
	"syscall"
)

// cause is the last word of a network error: "address already in use" in place of
// all that stands before it.
func cause(err error) error {
	if call, ok := errors.AsType[*os.SyscallError](err); ok {
		err = call.Err
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return errors.New("another program listens there")
	}
	return err
}
