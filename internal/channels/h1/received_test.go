package h1

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestWhatABrokenAnswerAskedForCountsFromItsHeader: a Retry-After does.
func TestWhatABrokenAnswerAskedForCountsFromItsHeader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New(Config{
			Dial: func(context.Context, string, string) (net.Conn, error) {
				near, far := net.Pipe()
				go func() {
					defer far.Close() //nolint:errcheck // a test's
					if r, err := http.ReadRequest(bufio.NewReader(far)); err == nil {
						_, _ = io.Copy(io.Discard, r.Body)
						_, _ = io.WriteString(far, "HTTP/1.1 503 Busy\r\nRetry-After: 5\r\nContent-Length: 9\r\n\r\n")
						time.Sleep(3 * time.Second) //nolint:forbidigo // the time of the bubble
					}
				}()
				return near, nil
			},
			IdlePerHost: 1, Idle: 1, IdleFor: time.Minute,
		})
		start := time.Now()
		x := c.Post(t.Context(), to("a:80"))
		if x.Status != 503 || x.Err == nil || !x.ReceivedAt.Equal(start) || time.Since(start) != 3*time.Second {
			t.Errorf("exchange %+v, %v after the call's start", x, time.Since(start))
		}
	})
}
