package httpapi_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
)

// listen serves the API on loopback with these limits.
func listen(t *testing.T, h http.Handler, l httpapi.Limits) string {
	t.Helper()
	server := httptest.NewUnstartedServer(nil)
	server.Config = httpapi.NewServer(h, l, nil)
	server.Start()
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// talk writes a request as it is and returns the answer and its body.
func talk(t *testing.T, address, request string) (*http.Response, string) {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // the answer was read
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

const start = "POST /v1/notifications HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer dsp_all\r\nContent-Type: application/json\r\n"

func TestBodiesThatDoNotArrive(t *testing.T) {
	tests := []struct {
		name, request string
		limits        httpapi.Limits
		status        int
		code          string
	}{
		{"broken chunks", start + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", httpapi.Limits{}, 400, "bad_request"},
		{"half a body", start + "Content-Length: 100\r\n\r\n{", httpapi.Limits{Read: time.Second}, 408, "request_timeout"},
		{"too much by its length", start + "Content-Length: 9999999\r\n\r\n", httpapi.Limits{}, 413, "body_too_large"},
		{"too much in chunks", start + "Transfer-Encoding: chunked\r\n\r\n200000\r\n" + strings.Repeat(" ", 0x200000), httpapi.Limits{}, 413, "body_too_large"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newService(t)
			resp, body := talk(t, listen(t, s.api, tt.limits), tt.request)
			if resp.StatusCode != tt.status || resp.Header.Get("Content-Type") != "application/problem+json" ||
				!strings.Contains(body, `"code":"`+tt.code+`"`) || s.writes != 0 {
				t.Errorf("status %d, %d writes: %s", resp.StatusCode, s.writes, body)
			}
		})
	}
}

func TestHeadersAreBounded(t *testing.T) {
	address := listen(t, newService(t).api, httpapi.Limits{MaxHeader: 8 << 10})
	resp, _ := talk(t, address, "GET /livez HTTP/1.1\r\nHost: x\r\nX-Padding: "+strings.Repeat("x", 20<<10)+"\r\n\r\n")
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d, want 431", resp.StatusCode)
	}
}

func TestChunkedBodiesAreRead(t *testing.T) {
	s := newService(t)
	resp, body := talk(t, listen(t, s.api, httpapi.Limits{}), start+"Transfer-Encoding: chunked\r\n\r\n"+
		"10\r\n"+good[:16]+"\r\n"+"200\r\n"+good[16:]+strings.Repeat(" ", 0x200-len(good)+16)+"\r\n0\r\n\r\n")
	if resp.StatusCode != http.StatusAccepted || len(s.accepted) != 1 {
		t.Errorf("status %d: %s", resp.StatusCode, body)
	}
}

func TestHalfAnAnswerIsNotAWholeOne(t *testing.T) {
	s := newService(t)
	s.api.Handle("GET /half", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "half")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Errorf("flush: %v", err)
		}
		panic("x")
	}))
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listen(t, s.api, httpapi.Limits{})+"/half", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // broken on purpose
	if body, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("%q came as a whole", body)
	}
}

func TestRequestsHaveAnID(t *testing.T) {
	s := newService(t)
	if got := s.do(t, "GET", "/livez", "", header{"X-Request-Id", "my-id.1"}).Header().Get("X-Request-Id"); got != "my-id.1" {
		t.Errorf("id %q, want the caller's", got)
	}
	for _, id := range []string{"", "ana@example.com", "a b", strings.Repeat("x", 65)} {
		if got := s.do(t, "GET", "/nowhere", "", header{"X-Request-Id", id}).Header().Get("X-Request-Id"); len(got) != 36 {
			t.Errorf("id %q for %q, want a new one", got, id)
		}
	}
}

func TestAccessLogHasNoAddresses(t *testing.T) {
	s := newService(t)
	s.do(t, "GET", "/v1/notifications?recipient=ana@example.com", "").want(200)
	if log := s.log.String(); !strings.Contains(log, `route="GET /v1/notifications"`) || strings.Contains(log, "ana@") {
		t.Errorf("log: %s", log)
	}
}

func TestAcceptHeaders(t *testing.T) {
	s := newService(t)
	for _, accept := range []string{"", "*/*", "application/json", "Application/JSON; charset=utf-8", "text/html, application/*;q=0.1", "application/problem+json", "text/html,*/*;q=0.8"} {
		s.do(t, "GET", "/v1/keys", "", header{"Accept", accept}).want(200)
	}
	for _, accept := range []string{"text/html", "application/xml", "*/*;q=0", "application/json;q=0.000"} {
		s.do(t, "GET", "/v1/keys", "", header{"Accept", accept}).problem(406, "not_acceptable")
	}
}

func TestCrookedPathsAreNotFoundAndNotRedirected(t *testing.T) {
	s := newService(t)
	for _, target := range []string{
		"/v1/notifications//ack", "/v1//notifications", "//v1/notifications", "/v1/notifications/./ack", "/v1/x/../notifications", "/v1/..", "/x/../v1/keys",
	} {
		for _, method := range []string{"POST", "GET"} {
			s.do(t, method, target, "{}").problem(404, "not_found")
		}
	}
	if s.writes != 0 {
		t.Errorf("%d writes", s.writes)
	}
	s.do(t, "GET", "/v1/notifications/a%2F%2Fb", "").problem(404, "not_found")
	s.do(t, "GET", "/v1/notifications?recipient=https://a.example//b/../c", "").want(200)
}
