package httpapi_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// intake notes the callbacks that reach it.
type intake struct {
	account string
	got     *channels.Callback
	count   int
	answer  channels.CallbackAnswer
	err     error
}

func (i *intake) Receive(_ context.Context, account string, c *channels.Callback) (channels.CallbackAnswer, error) {
	i.account, i.got = account, c
	i.count++
	return i.answer, i.err
}

func withIntake(i *intake, base string) func(*httpapi.Config) {
	return func(c *httpapi.Config) { c.Receipts, c.PublicURL = i, base }
}

// post sends a callback from an address, without a key.
func (s *service) post(tb testing.TB, target, body string, change func(*http.Request)) answer {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), "POST", target, strings.NewReader(body))
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	return answer{w, tb}
}

func TestACallbackReachesItsAccountAsItWasSent(t *testing.T) {
	i := &intake{}
	s := newService(t, withIntake(i, "https://hooks.example.com/d"))
	s.post(t, "/v1/receipts/twilio-main/a%2Fb/c?x=%7e1&y=&x=2", "To=%2B1&A=1", nil).want(204)
	want := &channels.Callback{
		Method: "POST", URL: "https://hooks.example.com/d/v1/receipts/twilio-main/a%2Fb/c?x=%7e1&y=&x=2", Path: "a/b/c",
		Query: map[string][]string{"x": {"~1", "2"}, "y": {""}}, Body: []byte("To=%2B1&A=1"), Header: http.Header{},
	}
	if diff := cmp.Diff(want, i.got); diff != "" || i.account != "twilio-main" {
		t.Errorf("account %q, callback (-want +got):\n%s", i.account, diff)
	}
}

func TestACallbacksURLIsThatOfThePublic(t *testing.T) {
	proxy := func(r *http.Request) {
		r.RemoteAddr = "10.0.0.1:4711"
		r.Header.Set("X-Forwarded-Proto", "https, http")
		r.Header.Set("X-Forwarded-Host", "hooks.example.com:8443")
	}
	for _, tt := range []struct {
		name, base, target string
		change             func(*http.Request)
		want               string
	}{
		{"configured", "https://hooks.example.com", "/v1/receipts/a/x?b=1", nil, "https://hooks.example.com/v1/receipts/a/x?b=1"},
		{"configured, whatever a proxy says", "https://other.example.com:444", "/v1/receipts/a/x", proxy, "https://other.example.com:444/v1/receipts/a/x"},
		{"of a request with a whole URL", "", "http://inner:8080/v1/receipts/a/x?", nil, "http://inner:8080/v1/receipts/a/x?"},
		{"by a trusted proxy", "", "/v1/receipts/a/x", proxy, "https://hooks.example.com:8443/v1/receipts/a/x"},
		{"a proxy that says nonsense", "", "/v1/receipts/a/x", func(r *http.Request) {
			proxy(r)
			r.Header.Set("X-Forwarded-Proto", "gopher")
			r.Header.Del("X-Forwarded-Host")
		}, "http://example.com/v1/receipts/a/x"},
		{"by somebody else", "", "/v1/receipts/a/x", func(r *http.Request) {
			proxy(r)
			r.RemoteAddr = "192.0.2.1:4711"
		}, "http://example.com/v1/receipts/a/x"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := &intake{}
			s := newService(t, withIntake(i, tt.base), func(c *httpapi.Config) {
				c.Limits = &httpapi.RateLimits{
					Addresses: resilience.NewLimiter(resilience.LimiterConfig{}), Address: resilience.Limit{PerSecond: 1, Burst: 10},
					TrustedProxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")},
				}
			})
			s.post(t, tt.target, "x", tt.change).want(204)
			if i.got.URL != tt.want {
				t.Errorf("URL %s, want %s", i.got.URL, tt.want)
			}
		})
	}
}

func TestAProviderGetsTheAnswerThatItWants(t *testing.T) {
	i := &intake{answer: channels.CallbackAnswer{Status: 200, ContentType: "text/plain; charset=utf-8", Body: []byte("1158201444")}}
	s := newService(t, withIntake(i, ""))
	a := s.do(t, "GET", "/v1/receipts/meta-main/webhook?hub.challenge=1158201444", "", header{"Authorization", ""}).want(200)
	if a.Body.String() != "1158201444" || a.Header().Get("Content-Type") != "text/plain; charset=utf-8" || i.got.Method != http.MethodGet {
		t.Errorf("%v %s", a.Header(), a.Body)
	}
}

func TestRefusedCallbacksAreToldNothing(t *testing.T) {
	const secret = "ana.secret@example.com"
	refuse := func(status int) error {
		return &channels.CallbackError{Status: status, Reason: "reason for the log"}
	}
	for _, tt := range []struct {
		name   string
		err    error
		status int
		code   string
	}{
		{"not read", refuse(400), 400, "bad_request"},
		{"not proven", refuse(403), 403, "forbidden"},
		{"no such path", refuse(404), 404, "not_found"},
		{"nobody can say", refuse(503), 503, "unavailable"},
		{"no status at all", refuse(0), 400, "bad_request"},
		{"not kept", errors.New("connect to " + secret), 503, "unavailable"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newService(t, withIntake(&intake{err: tt.err}, ""))
			a := s.post(t, "/v1/receipts/a/"+secret+"?"+secret, secret, nil)
			a.problem(tt.status, tt.code)
			if said := a.Body.String(); strings.Contains(said, secret) || strings.Contains(said, "reason for the log") {
				t.Errorf("answer %s", said)
			}
			if retry := a.Header().Get("Retry-After"); (retry != "") != (tt.status == 503) {
				t.Errorf("Retry-After %q", retry)
			}
		})
	}
}

func TestCallbacksThatCannotBeReadReachNobody(t *testing.T) {
	i := &intake{}
	s := newService(t, withIntake(i, ""))
	s.post(t, "/v1/receipts/a/x", strings.Repeat("x", 4<<20+1), nil).problem(413, "body_too_large")
	s.post(t, "/v1/receipts/a/x", strings.Repeat("x", 4<<20+1), func(r *http.Request) { r.ContentLength = -1 }).problem(413, "body_too_large")
	s.post(t, "/v1/receipts/a/x?%zz", "x", nil).problem(400, "bad_request")
	s.post(t, "/v1/receipts/a/x", "", func(r *http.Request) { r.Body = io.NopCloser(brokenBody{}) }).problem(400, "bad_request")
	a := s.do(t, "PUT", "/v1/receipts/a/x", "x")
	a.problem(405, "method_not_allowed")
	if got := a.Header().Get("Allow"); got != "GET, HEAD, POST" {
		t.Errorf("Allow %q", got)
	}
	if i.count != 0 {
		t.Errorf("%d callbacks were read", i.count)
	}
	newService(t).post(t, "/v1/receipts/a/x", "x", nil).problem(404, "not_found")
	s.post(t, "/v1/receipts/a/x", strings.Repeat("x", 4<<20), nil).want(204)
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestOnlyRefusedCallbacksUseUpAnAddress(t *testing.T) {
	i, told := &intake{}, &refusals{}
	s := newService(t, withIntake(i, ""), func(c *httpapi.Config) {
		free := resilience.Limit{PerSecond: 1, Burst: 100}
		c.Limits = &httpapi.RateLimits{
			Keys: resilience.NewLimiter(resilience.LimiterConfig{}), Classes: map[store.RouteClass]resilience.Limit{store.ClassRead: free},
			Addresses: resilience.NewLimiter(resilience.LimiterConfig{}), Address: resilience.Limit{PerSecond: never, Burst: 3},
			Refused: told.add,
		}
	})
	for range 50 {
		s.post(t, "/v1/receipts/a/x", "x", nil).want(204)
	}
	i.err = errors.New("database is away")
	for range 50 {
		s.post(t, "/v1/receipts/a/x", "x", nil).problem(503, "unavailable")
	}
	i.err = &channels.CallbackError{Status: 403}
	for range 3 {
		s.post(t, "/v1/receipts/a/x", "x", nil).problem(403, "forbidden")
	}
	before := i.count
	a := s.post(t, "/v1/receipts/a/x", "x", nil)
	a.problem(429, "rate_limited")
	if i.count != before || told.counts["unauthenticated"] != 1 || a.Header().Get("Retry-After") == "" {
		t.Errorf("%d callbacks read, refusals %v told, Retry-After %q", i.count-before, told.counts, a.Header().Get("Retry-After"))
	}
	i.err = nil
	s.post(t, "/v1/receipts/a/x", "x", func(r *http.Request) { r.RemoteAddr = "198.51.100.7:1" }).want(204)
	s.do(t, "GET", "/v1/notifications", "").want(200) // a key's requests are another matter
}
