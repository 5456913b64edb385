package httpapi_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
)

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	e := withEvents(t, func(c *httpapi.Events) { c.MaxStreams, c.MaxStreamsPerKey = 3, 2 })
	problem := func(as header, status int, code string) {
		t.Helper()
		resp := e.connect(t, "/v1/events", as)
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != status || !strings.Contains(string(body), `"code":"`+code+`"`) || resp.Header.Get("Retry-After") == "" ||
			resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("status %d, want %d %s: %s", resp.StatusCode, status, code, body)
		}
	}
	first := e.listen(t, "/v1/events", e.acme)
	e.listen(t, "/v1/events", e.acme)
	problem(e.acme, 429, "too_many_streams")
	e.listen(t, "/v1/events", e.other)
	problem(e.other, 503, "unavailable")
	e.page(t, "/v1/events", e.acme) // polling is no stream
	_ = first.resp.Body.Close()
	for { // the server notices in its own time
		resp := e.connect(t, "/v1/events", e.acme)
		if resp.StatusCode == http.StatusOK {
			break
		}
	}
}

func TestAStreamEndsWithItsKey(t *testing.T) {
	t.Parallel()
	e := withEvents(t)
	secret, key, err := e.db.CreateKey(t.Context(), "acme", "short", []string{"read"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	s, stays := e.listen(t, "/v1/events", header{"Authorization", "Bearer " + secret}), e.listen(t, "/v1/events", e.acme)
	s.beats(3)
	if err := e.db.RevokeKey(t.Context(), "acme", key.ID); err != nil {
		t.Fatal(err)
	}
	s.ended()
	id := e.post(t, e.acme)
	if v := stays.next(); v.NotificationID != id {
		t.Errorf("event %+v", v)
	}
}

func TestOpenStreamsDoNotHoldUpShutdown(t *testing.T) {
	t.Parallel()
	e := withEvents(t)
	var open []*sse
	for range 5 {
		s := e.listen(t, "/v1/events", e.acme)
		s.beats(1)
		open = append(open, s)
	}
	began := time.Now()
	if err := e.server.Config.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	for _, s := range open {
		s.ended()
	}
}

// A reader that takes nothing off its connection is given up, and comes back to
// everything.
func TestAReaderThatDoesNotReadIsDropped(t *testing.T) {
	t.Parallel()
	e := withEvents(t, func(c *httpapi.Events) { c.WriteTimeout = time.Second; c.MaxStreamsPerKey = 1 })
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", e.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // broken by then
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	// Enough to fill what the kernel takes for both sides.
	_, err = e.db.Pool().Exec(t.Context(), `insert into dispatcher.events (at, notification_id, project, type, because)
		select now(), gen_random_uuid(), 'acme', 'waiting', repeat('x', 1000) from generate_series(1, 15000)`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /v1/events?after=start HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nAuthorization: "+e.acme.value+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") {
		t.Fatalf("%q, %v", line, err)
	}
	for { // until its place is free
		resp := e.connect(t, "/v1/events?after=start", e.acme)
		if resp.StatusCode != http.StatusOK {
			continue
		}
		s := &sse{t: t, resp: resp, lines: bufio.NewReader(resp.Body)}
		for range 15000 {
			s.next()
		}
		return
	}
}

func TestAStreamPassesAReverseProxy(t *testing.T) {
	t.Parallel()
	e := withEvents(t)
	behind, err := url.Parse(e.address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }})
	t.Cleanup(proxy.Close)
	e.address = proxy.URL
	s := e.listen(t, "/v1/events", e.acme)
	s.beats(2)
	for range 3 {
		id := e.post(t, e.acme)
		if v := s.next(); v.NotificationID != id {
			t.Errorf("event of %s, want %s", v.NotificationID, id)
		}
	}
	_ = s.resp.Body.Close()
}

func TestStreamsAreForEventsAlone(t *testing.T) {
	s := newService(t)
	wants := header{"Accept", "text/event-stream"}
	s.do(t, "GET", "/v1/notifications", "", wants).problem(406, "not_acceptable")
	s.do(t, "GET", "/v1/events", "", header{"Accept", "text/html"}).problem(406, "not_acceptable")
	s.do(t, "GET", "/v1/events", "", header{"Accept", "text/event-stream;q=0"}).problem(406, "not_acceptable")
	s.do(t, "GET", "/v1/events", "", wants).problem(503, "unavailable") // this one has none
	s.do(t, "GET", "/v1/notifications/x/events", "", wants).problem(404, "not_found")
}
