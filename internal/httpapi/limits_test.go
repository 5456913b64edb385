package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// tokens is a source that hands out tokens from memory.
type tokens struct {
	mu   sync.Mutex
	keys map[string]*resilience.GCRA
}

func (s *tokens) TakeTokens(_ context.Context, asks []resilience.Ask) ([]resilience.Grant, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	grants := make([]resilience.Grant, len(asks))
	for i, a := range asks {
		if s.keys[a.Key] == nil {
			s.keys[a.Key] = &resilience.GCRA{}
		}
		grants[i] = s.keys[a.Key].Take(a.Limit, a.Want, a.Least, time.Now())
	}
	return grants, nil
}

// forget makes every key full again.
func (s *tokens) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.keys)
}

// refusals notes what an API tells of requests that it refused.
type refusals struct {
	mu     sync.Mutex
	counts map[string]int
}

func (r *refusals) add(class store.RouteClass, key *store.APIKey, count int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.counts == nil {
		r.counts = map[string]int{}
	}
	who := string(class)
	if key != nil {
		who += " of " + key.Project
	}
	r.counts[who] += count
}

// never is a rate that brings nothing back while a test runs.
const never = resilience.MinPerSecond

// running runs a limiter until the test ends.
func running(tb testing.TB, source resilience.TokenSource) *resilience.Limiter {
	tb.Helper()
	// Generous, since a limiter that hears nothing decides by itself.
	l := resilience.NewLimiter(resilience.LimiterConfig{Source: source, Prefix: "api/", Timeout: 10 * time.Second})
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	done := make(chan struct{})
	go func() { defer close(done); l.Run(ctx) }()
	tb.Cleanup(func() { cancel(); <-done })
	for l.Take(tb.Context(), "warm-up", resilience.Limit{PerSecond: 1, Burst: 1000}, 1).Local { // until it runs
		if tb.Context().Err() != nil {
			tb.Fatal("the limiter does not run")
		}
	}
	return l
}

// limitsOf limits every class to a burst that never comes back, and nobody by
// address.
func limitsOf(keys *resilience.Limiter, burst int) *httpapi.RateLimits {
	one := resilience.Limit{PerSecond: never, Burst: burst}
	return &httpapi.RateLimits{
		Keys: keys, Classes: map[store.RouteClass]resilience.Limit{store.ClassWrite: one, store.ClassRead: one, store.ClassAdmin: one},
		Addresses: resilience.NewLimiter(resilience.LimiterConfig{}), Address: resilience.Limit{PerSecond: 1000, Burst: 10_000},
	}
}

func limitedService(tb testing.TB, burst int) (*service, *refusals) {
	tb.Helper()
	var told refusals
	s := newService(tb, func(c *httpapi.Config) {
		c.Limits = limitsOf(running(tb, &tokens{keys: map[string]*resilience.GCRA{}}), burst)
		c.Limits.Refused = told.add
	})
	return s, &told
}

// limitHeaders are the fields of an answer that say how its limit stands.
func limitHeaders(h http.Header) map[string]string {
	out := map[string]string{}
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit", "RateLimit-Policy", "Retry-After"} {
		if v := h.Get(name); v != "" {
			out[name] = v
		}
	}
	return out
}

func TestAnswersSayHowTheLimitStandsAndOneTooManyIsRefused(t *testing.T) {
	t.Parallel()
	s, told := limitedService(t, 2)
	fields := func(class string, remaining, reset int, more ...string) map[string]string {
		out := map[string]string{
			"X-RateLimit-Limit": "2", "X-RateLimit-Remaining": strconv.Itoa(remaining), "X-RateLimit-Reset": strconv.Itoa(reset),
			"RateLimit-Policy": `"` + class + `";q=2;w=7200`, "RateLimit": fmt.Sprintf(`"%s";r=%d;t=%d`, class, remaining, reset),
		}
		for i := 0; i < len(more); i += 2 {
			out[more[i]] = more[i+1]
		}
		return out
	}
	check := func(a answer, want map[string]string) {
		t.Helper()
		if diff := cmp.Diff(want, limitHeaders(a.Header())); diff != "" {
			t.Errorf("fields (-want +got):\n%s", diff)
		}
	}
	const nowhere = "/v1/notifications/0193a1b2-0000-7000-8000-000000000001"
	check(s.do(t, "POST", "/v1/notifications", good).want(202), fields("write", 1, 3600))
	check(s.do(t, "POST", "/v1/notifications", "{}").want(422), fields("write", 0, 7200))
	a := s.do(t, "POST", nowhere+"/cancel", "")
	a.problem(429, "rate_limited")
	check(a, fields("write", 0, 7200, "Retry-After", "3600"))
	if s.writes != 1 {
		t.Errorf("%d writes, want 1", s.writes)
	}
	// The other classes have limits of their own.
	check(s.do(t, "GET", nowhere, "").want(404), fields("read", 1, 3600))
	check(s.do(t, "GET", "/v1/keys", "").want(200), fields("admin", 1, 3600))
	// So has another key; and a key pays for what it may not do.
	f := s.fake
	f.keys["dsp_read"] = store.APIKey{ID: uuid.New(), Project: "acme", Scopes: []string{"read"}}
	check(s.do(t, "POST", "/v1/notifications", good, header{"Authorization", "Bearer dsp_read"}).want(403), fields("write", 1, 3600))
	// Nothing is said to the unknown, nor where there is no key.
	check(s.do(t, "GET", nowhere, "", header{"Authorization", "Bearer dsp_nobody"}).want(401), map[string]string{})
	for _, open := range []string{"/livez", "/readyz", "/docs", "/openapi.json"} {
		for range 4 {
			check(s.do(t, "GET", open, "").want(200), map[string]string{})
		}
	}
	if diff := cmp.Diff(map[string]int{"write of acme": 1}, told.counts); diff != "" {
		t.Errorf("told of refusals (-want +got):\n%s", diff)
	}
}

func TestALocalDecisionSaysNothingOfTheRest(t *testing.T) {
	t.Parallel()
	s := newService(t, func(c *httpapi.Config) {
		// It does not run, as if the database were away.
		c.Limits = limitsOf(resilience.NewLimiter(resilience.LimiterConfig{Source: &tokens{}, Nodes: func() int { return 2 }}), 4)
	})
	for range 2 {
		if got := limitHeaders(s.do(t, "POST", "/v1/notifications", good).want(202).Header()); len(got) != 0 {
			t.Errorf("fields %v", got)
		}
	}
	a := s.do(t, "POST", "/v1/notifications", good)
	a.problem(429, "rate_limited")
	if got := limitHeaders(a.Header()); len(got) != 1 || got["Retry-After"] != "3600" {
		t.Errorf("fields %v", got)
	}
}

func TestAKeysOwnLimitIsSetAndTakenBack(t *testing.T) {
	t.Parallel()
	s, _ := limitedService(t, 50)
	id := uuid.New()
	s.keys["dsp_own"] = store.APIKey{ID: id, Project: "acme", Scopes: []string{"read"}}
	own := header{"Authorization", "Bearer dsp_own"}
	limit := func() string {
		// A limit that changes does not fill what was emptied: 200 or 429.
		return s.do(t, "GET", "/v1/channels", "", own).Header().Get("X-RateLimit-Limit")
	}
	target := "/v1/keys/" + id.String()
	type limits = map[string]map[string]float64
	type view struct {
		Limits limits `json:"limits"`
	}
	patch := func(body string) (v view) {
		s.do(t, "PATCH", target, body).want(200).into(&v)
		return v
	}
	if got := limit(); got != "50" {
		t.Errorf("limit %s, want the configured 50", got)
	}
	got := patch(`{"limits":{"read":{"per_second":0.5,"burst":7},"admin":{"per_second":2,"burst":3}}}`)
	if diff := cmp.Diff(limits{"read": {"per_second": 0.5, "burst": 7}, "admin": {"per_second": 2, "burst": 3}}, got.Limits); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if got := limit(); got != "7" {
		t.Errorf("limit %s, want the key's own 7", got)
	}
	got = patch(`{"limits":{"read":null}}`)
	if diff := cmp.Diff(limits{"admin": {"per_second": 2, "burst": 3}}, got.Limits); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
	if got := limit(); got != "50" {
		t.Errorf("limit %s, want the configured 50 again", got)
	}
	for body, want := range map[string]string{
		`{}`:                                   "/limits required",
		`{"limits":{}}`:                        "/limits required",
		`{"limits":{"sends":null}}`:            "/limits unknown_member",
		`{"limits":{"read":{"per_second":1}}}`: "/limits/read range",
		`{"limits":{"write":{"per_second":-1,"burst":1}}}`: "/limits/write range",
	} {
		if got := places(s.do(t, "PATCH", target, body).problem(422, "invalid_request")); !cmp.Equal(got, []string{want}) {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	s.do(t, "PATCH", "/v1/keys/"+uuid.NewString(), `{"limits":{"read":null}}`).problem(404, "not_found")
}

// counting counts how many secrets are looked up.
type counting struct {
	httpapi.Keys
	mu    sync.Mutex
	asked int
}

func (c *counting) Authenticate(ctx context.Context, secret string) (store.APIKey, error) {
	c.mu.Lock()
	c.asked++
	c.mu.Unlock()
	return c.Keys.Authenticate(ctx, secret)
}

// from sends a request from an address.
func from(tb testing.TB, api http.Handler, address, secret string, forwarded ...string) int {
	tb.Helper()
	r := httptest.NewRequestWithContext(tb.Context(), "GET", "/v1/channels", http.NoBody)
	r.RemoteAddr = address
	if secret != "" {
		r.Header.Set("Authorization", "Bearer "+secret)
	}
	for _, f := range forwarded {
		r.Header.Add("X-Forwarded-For", f)
	}
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	return w.Code
}

func TestAnAddressThatGuessesIsRefusedBeforeAnythingIsLookedUp(t *testing.T) {
	t.Parallel()
	var told refusals
	source := &tokens{keys: map[string]*resilience.GCRA{}}
	keys := &counting{}
	var limits *httpapi.RateLimits
	s := newService(t, func(c *httpapi.Config) {
		keys.Keys = c.Keys
		c.Keys, c.Limits = keys, limitsOf(running(t, source), 1000)
		limits = c.Limits
		limits.Address = resilience.Limit{PerSecond: never, Burst: 3}
		limits.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
		limits.Refused = told.add
	})
	asked := len(source.keys)
	// A good key pays once, however often it comes.
	for range 5 {
		if got := from(t, s.api, "192.0.2.1:1", "dsp_all"); got != 200 {
			t.Fatalf("a good key is answered %d", got)
		}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := map[int]int{}
	for i := range 50 { // all at once, with another secret each
		wg.Go(func() {
			code := from(t, s.api, "192.0.2.1:1", "dsp_"+strconv.Itoa(i))
			mu.Lock()
			defer mu.Unlock()
			got[code]++
		})
	}
	wg.Wait()
	if diff := cmp.Diff(map[int]int{401: 2, 429: 48}, got); diff != "" {
		t.Errorf("answers to guesses (-want +got):\n%s", diff)
	}
	if keys.asked != 5+2 {
		t.Errorf("%d look-ups, want 7", keys.asked)
	}
	if len(source.keys) > asked+1 { // the read class of the good key
		t.Errorf("the shared source was asked for %d keys", len(source.keys)-asked)
	}
	if told.counts["unauthenticated"] != 48 {
		t.Errorf("told of %v", told.counts)
	}
	for _, tt := range []struct {
		name, address, secret string
		forwarded             []string
		want                  int
	}{
		{"a good key behind the same address", "192.0.2.1:2", "dsp_all", nil, 200},
		{"nobody at the same address", "192.0.2.1:2", "", nil, 429},
		{"the address behind a proxy", "10.0.0.1:1", "", []string{"198.51.100.9, 192.0.2.1"}, 429},
		{"another behind the same proxy", "10.0.0.1:1", "", []string{"192.0.2.1, 198.51.100.9"}, 401},
		{"who claims to be another", "192.0.2.1:2", "", []string{"198.51.100.10"}, 429},
		{"another address", "192.0.2.2:1", "", nil, 401},
	} {
		if got := from(t, s.api, tt.address, tt.secret, tt.forwarded...); got != tt.want {
			t.Errorf("%s is answered %d, want %d", tt.name, got, tt.want)
		}
	}
}

func TestGuessesFromEverywhereCostABoundedMemory(t *testing.T) {
	t.Parallel()
	var limits *httpapi.RateLimits
	s := newService(t, func(c *httpapi.Config) {
		c.Limits = limitsOf(resilience.NewLimiter(resilience.LimiterConfig{}), 1000)
		limits = c.Limits
		limits.Addresses = resilience.NewLimiter(resilience.LimiterConfig{MaxKeys: 64})
		limits.Address = resilience.Limit{PerSecond: never, Burst: 1}
	})
	for i := range 500 {
		if got := from(t, s.api, fmt.Sprintf("[2001:db8:0:%x::1]:1", i), ""); got != 401 {
			t.Fatalf("the first guess of a network is answered %d", got)
		}
	}
	if got := from(t, s.api, "[2001:db8:0:1f3:abcd::2]:1", ""); got != 429 {
		t.Errorf("another address of the last network is answered %d, want 429", got)
	}
	if n := limits.Addresses.Stats().Keys; n != 64 {
		t.Errorf("%d addresses are remembered, want 64", n)
	}
}
