package h1

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// held is a connection that keeps what is written back until it is let go, so
// that several records of TLS arrive together.
type held struct {
	net.Conn
	on  bool
	out bytes.Buffer
}

func (h *held) Write(p []byte) (int, error) {
	if h.on {
		return h.out.Write(p)
	}
	return h.Conn.Write(p)
}

func (h *held) release() {
	_ = h.SetWriteDeadline(time.Time{}) // a farewell leaves one that has passed
	_, _ = h.Conn.Write(h.out.Bytes())
}

// TestWhatTLSHasReadAheadIsSeenBeforeAConnectionIsUsedAgain: it is not in the
// socket any more.
func TestWhatTLSHasReadAheadIsSeenBeforeAConnectionIsUsedAgain(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(srv.Close)
	const other = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
	for name, tt := range map[string]struct {
		follow      func(*tls.Conn)
		connections int64
	}{
		"nothing":        {func(*tls.Conn) {}, 1},
		"a farewell":     {func(c *tls.Conn) { _ = c.CloseWrite() }, 2},
		"another answer": {func(c *tls.Conn) { _, _ = io.WriteString(c, other) }, 2},
		"both":           {func(c *tls.Conn) { _, _ = io.WriteString(c, other); _ = c.CloseWrite() }, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr, connections := serve(t, func(raw net.Conn) {
				h := &held{Conn: raw}
				c := tls.Server(h, &tls.Config{Certificates: srv.TLS.Certificates})
				in := bufio.NewReader(c)
				for {
					r, err := http.ReadRequest(in)
					if err != nil {
						return
					}
					_, _ = io.Copy(io.Discard, r.Body)
					h.on = true
					_, _ = io.WriteString(c, ok)
					tt.follow(c)
					h.release()
					h.on = false
					h.out.Reset()
				}
			})
			c, _ := newClient(t)
			c.tls.RootCAs = x509.NewCertPool()
			c.tls.RootCAs.AddCert(srv.Certificate())
			r := to(addr)
			r.TLS = true
			for i := range 2 {
				if x := c.Post(within(t), r); x.Status != 200 || x.Err != nil {
					t.Errorf("call %d: %+v", i, x)
				}
			}
			if n := connections.Load(); n != tt.connections {
				t.Errorf("%d connections, want %d", n, tt.connections)
			}
		})
	}
}
