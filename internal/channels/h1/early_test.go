package h1

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// breaking is a connection whose server has hung up when it is written to.
type breaking struct{ net.Conn }

func (breaking) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestAnAnswerIsReadThoughTheRequestCouldNotBeWritten(t *testing.T) {
	t.Parallel()
	for name, size := range map[string]int{"small": 4, "large": 1 << 20} {
		for _, tt := range []struct {
			answer string
			status int
		}{
			{"HTTP/1.1 410 Gone\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", 410},
			{strings.Replace(ok, "Content-Length", "X: y\r\nContent-Length", 1), 200},
			{"", 0},
			{"HTTP/1.1 20", 0},
		} {
			addr, _ := serve(t, func(c net.Conn) { _, _ = io.WriteString(c, tt.answer) })
			c := New(Config{
				Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := new(net.Dialer).DialContext(ctx, network, addr)
					return breaking{c}, err
				},
				IdlePerHost: 4, Idle: 8, IdleFor: time.Minute,
			})
			r := to(addr)
			r.Body = bytes.Repeat([]byte("x"), size)
			x := c.Post(within(t), r)
			if x.Status != tt.status || x.Wrote != (tt.status != 0) {
				t.Errorf("%s request, answered %q: %+v", name, tt.answer, x)
			}
			if tt.status == 0 && size == 4 && !errors.Is(x.Err, syscall.EPIPE) || tt.status != 0 && x.Err != nil {
				t.Errorf("%s request, answered %q: error %v", name, tt.answer, x.Err)
			}
		}
	}
}
