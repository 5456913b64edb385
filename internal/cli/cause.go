package cli

import (
	"errors"
	"os"
	"syscall"
)

// cause is the last word of a network error: "address already in use" in place of
// all that stands before it.
func cause(err error) error {
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return errors.New("another program listens there")
	}
	return err
}
