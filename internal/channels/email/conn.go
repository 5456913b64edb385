package email

import (
	"context"
	"errors"
	"net"
	"time"
)

// maxAnswers bounds what is read from a server during one message, the TLS
// handshake included.
const maxAnswers = 1 << 20

var errTooMuch = errors.New("server sent more than 1 MiB")

// conn is a connection whose every read and write ends with the context that it
// is bound to. The SMTP library knows no context beyond the dial.
type conn struct {
	net.Conn
	// broken is the first error of a read or a write, after which the connection
	// is of no use.
	broken error
	// unwritten says that a write failed, so that not all of it can have reached
	// the server.
	unwritten bool
	unread    int64 // what may still be read
}

// bind ties the connection to ctx until the function that it returns is called,
// which reports whether the connection may be used again.
func (c *conn) bind(ctx context.Context) (release func() bool) {
	c.unread = maxAnswers
	deadline, _ := ctx.Deadline() // the zero time is no deadline
	_ = c.SetDeadline(deadline)   // a connection that is gone says so on its next use
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	return func() bool { return stop() && c.broken == nil }
}

// Read implements [net.Conn].
func (c *conn) Read(p []byte) (int, error) {
	if c.unread <= 0 {
		c.broken = errTooMuch
		return 0, errTooMuch
	}
	n, err := c.Conn.Read(p[:min(int64(len(p)), c.unread)])
	c.unread -= int64(n)
	if err != nil && c.broken == nil {
		c.broken = err
	}
	return n, err
}

// Write implements [net.Conn].
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.unwritten = true
		if c.broken == nil {
			c.broken = err
		}
	}
	return n, err
}
