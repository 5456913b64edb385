//go:build unix

package h1

import (
	"net"
	"syscall"
)

// quiet reports whether nothing has come on a connection that waits for its next
// request. What comes then is its end, or nothing that a request should follow.
func quiet(c net.Conn) bool {
	s, ok := c.(syscall.Conn)
	if !ok {
		return true
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return false
	}
	silent := false
	err = raw.Read(func(fd uintptr) bool {
		var b [1]byte
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK)
		silent = err == syscall.EAGAIN
		return true
	})
	return err == nil && silent
}
