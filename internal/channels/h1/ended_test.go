package h1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

// TestACallThatHasEndedIsNotMade: a kept connection takes a request in no time,
// sooner than anything could stop it.
func TestACallThatHasEndedIsNotMade(t *testing.T) {
	t.Parallel()
	var requests atomic.Int64
	addr, connections := serve(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			requests.Add(1)
			_, _ = io.WriteString(c, ok)
		}
	})
	c, _ := newClient(t)
	if x := c.Post(within(t), to(addr)); x.Status != 200 {
		t.Fatalf("exchange %+v", x)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	expired, cancel := context.WithTimeout(t.Context(), -time.Second)
	defer cancel()
	for _, ctx := range []context.Context{canceled, expired} {
		if x := c.Post(ctx, to(addr)); !errors.Is(x.Err, ctx.Err()) || x.Wrote || x.Status != 0 {
			t.Errorf("exchange %+v after %v", x, ctx.Err())
		}
	}
	if x := c.Post(within(t), to(addr)); x.Status != 200 {
		t.Errorf("exchange %+v", x)
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests arrived, want the two of calls that had time", n)
	}
	if n := connections.Load(); n != 1 {
		t.Errorf("%d connections, want the kept one unharmed", n)
	}
}
