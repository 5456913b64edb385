package channeltest

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

// patience is how long a Send may take that has nothing to wait for. It is only
// ever used up by an adapter that hangs.
const patience = 20 * time.Second

// rig is a server with one behaviour and a provider that calls it.
type rig struct {
	suite    Suite
	url      string
	provider channels.Provider
	sends    atomic.Int64 // requests for messages
	asides   atomic.Int64 // the others
}

// newRig starts a server that reads each request to its end and answers with h.
func newRig(t *testing.T, s Suite, h http.HandlerFunc) *rig {
	t.Helper()
	g := &rig{suite: s}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if aside, ok := s.Aside[r.URL.Path]; ok {
			g.asides.Add(1)
			aside(w, r)
			return
		}
		g.sends.Add(1)
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		h(w, r)
	}))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetHTTP1(true)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	g.url = srv.URL
	g.provider = s.New(t, srv.URL)
	return g
}

// newRefusingRig has a provider whose server does not listen.
func newRefusingRig(t *testing.T, s Suite) *rig {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{suite: s, url: "http://" + ln.Addr().String()}
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	g.provider = s.New(t, g.url)
	return g
}

// send sends the suite's message, checks what holds for every result, and that
// the message's request was made exactly wantRequests times.
func (g *rig) send(ctx context.Context, t *testing.T, wantRequests int64) channels.Result {
	t.Helper()
	return g.sendMessage(ctx, t, g.suite.Message(g.url), wantRequests)
}

func (g *rig) sendMessage(ctx context.Context, t *testing.T, m *channels.Message, wantRequests int64) channels.Result {
	t.Helper()
	before := g.sends.Load()
	done := make(chan channels.Result, 1)
	go func() { done <- g.provider.Send(ctx, m) }()
	var r channels.Result
	select {
	case r = <-done:
	case <-time.After(patience):
		t.Fatalf("Send did not return within %v", patience)
	}
	if n := g.sends.Load() - before; n != wantRequests {
		t.Errorf("Send made %d requests, want %d", n, wantRequests)
	}
	CheckResult(t, r, append(MessageSecrets(m), g.suite.Secrets...))
	g.checkScope(t, m, r)
	return r
}

// checkScope: a gate on a scope that the provider never names would hold nobody.
func (g *rig) checkScope(t *testing.T, m *channels.Message, r channels.Result) {
	t.Helper()
	if r.Scope == "" {
		return
	}
	scoper, ok := g.provider.(channels.Scoper)
	if !ok {
		t.Errorf("scope %q of a provider that is no channels.Scoper", r.Scope)
		return
	}
	if own := scoper.Scopes(m.To); !slices.Contains(own, r.Scope) {
		t.Errorf("scope %q is not one of the provider's own: %q", r.Scope, own)
	}
}

// answer is a handler that answers every request alike.
func answer(status int, header http.Header, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if strings.HasPrefix(body, "{") || strings.HasPrefix(body, "[") {
			w.Header().Set("Content-Type", "application/json")
		} else if body != "" {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		}
		for k, v := range header {
			w.Header()[http.CanonicalHeaderKey(k)] = v
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// acceptance is the status and the first half of the body with which the vendor
// takes a message.
func (s Suite) acceptance(t *testing.T) (status int, half string) {
	t.Helper()
	rec := httptest.NewRecorder()
	s.Accept(rec, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody))
	body := rec.Body.String()
	return rec.Code, body[:len(body)/2]
}

// expiring is a context whose deadline passes when the test says so, so that no
// check depends on how fast the machine is.
type expiring struct {
	context.Context
	done    chan struct{}
	expired atomic.Bool
}

func newExpiring(parent context.Context) *expiring {
	return &expiring{Context: parent, done: make(chan struct{})}
}

// expire makes the deadline pass; further calls do nothing.
func (e *expiring) expire() {
	if e.expired.CompareAndSwap(false, true) {
		close(e.done)
	}
}

func (e *expiring) Deadline() (time.Time, bool) { return time.Now().Add(2 * patience), true }
func (e *expiring) Done() <-chan struct{}       { return e.done }

func (e *expiring) Err() error {
	if e.expired.Load() {
		return context.DeadlineExceeded
	}
	return nil
}
