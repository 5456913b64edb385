//go:build !unix

package h1

import "net"

// quiet cannot be known here: whether a connection has been closed shows when it
// is used.
func quiet(net.Conn) bool { return true }
