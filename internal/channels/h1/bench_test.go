package h1

import (
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

func BenchmarkPost(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer srv.Close()
	addr := strings.TrimPrefix(srv.URL, "http://")
	b.Run("h1", func(b *testing.B) {
		c := New(Config{Dial: new(net.Dialer).DialContext, IdlePerHost: 4, Idle: 8, IdleFor: time.Minute})
		defer c.CloseIdleConnections()
		b.ReportAllocs()
		for b.Loop() {
			if x := c.Post(b.Context(), to(addr)); x.Status != 200 {
				b.Fatal(x.Err)
			}
		}
	})
	b.Run("net-http", func(b *testing.B) {
		c := channels.NewHTTPClient(4)
		defer c.CloseIdleConnections()
		b.ReportAllocs()
		for b.Loop() {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, srv.URL+"/hook?x=1", strings.NewReader("body"))
			if err != nil {
				b.Fatal(err)
			}
			req.Header.Set("X-Mine", "a")
			if x := channels.Do(c, req); x.Status != 200 {
				b.Fatal(x.Err)
			}
		}
	})
}
