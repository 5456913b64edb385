package h1

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// piped is a client whose connections lead to a server that answers everything.
func piped(dials, open *atomic.Int64, cfg Config) *Client {
	cfg.Dial = func(context.Context, string, string) (net.Conn, error) {
		dials.Add(1)
		open.Add(1)
		near, far := net.Pipe()
		go func() {
			defer open.Add(-1)
			in := bufio.NewReader(far)
			for {
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				time.Sleep(time.Second)
				_, _ = io.WriteString(far, ok)
			}
		}()
		return near, nil
	}
	return New(cfg)
}

func TestIdleConnectionsAreBoundedAndEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var dials, open atomic.Int64
		c := piped(&dials, &open, Config{IdlePerHost: 2, Idle: 3, IdleFor: time.Minute})
		post := func(addr string) {
			if x := c.Post(t.Context(), to(addr)); x.Status != 200 {
				t.Errorf("exchange %+v", x)
			}
		}
		for range 5 { // at once
			go post("a:80")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if open.Load() != 2 {
			t.Errorf("%d are kept to one address, want 2", open.Load())
		}
		for i := range 5 {
			post(fmt.Sprintf("b%d:80", i))
		}
		synctest.Wait()
		if open.Load() != 3 {
			t.Errorf("%d are kept in all, want 3", open.Load())
		}
		dials.Store(0)
		post("b4:80")
		post("b3:80")
		post("b2:80")
		if dials.Load() != 0 {
			t.Error("those that were used last are not the ones that are kept")
		}
		time.Sleep(50 * time.Second)
		post("b4:80")
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if open.Load() != 1 {
			t.Errorf("%d are open after their time, want the one that was used since", open.Load())
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if open.Load() != 0 || dials.Load() != 0 {
			t.Errorf("%d are left open", open.Load())
		}
	})
}
