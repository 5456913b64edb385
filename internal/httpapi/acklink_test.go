package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/links"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// ackLinks knows the projects of notifications.
type ackLinks struct {
	links.Signer
	projects map[uuid.UUID]string
	err      error
}

func (l *ackLinks) Acknowledged(_ context.Context, token string) (uuid.UUID, error) {
	if l.err != nil {
		return uuid.Nil, l.err
	}
	return l.Signer.Acknowledged(token)
}

func (l *ackLinks) ProjectOf(_ context.Context, id uuid.UUID) (string, error) {
	if project, ok := l.projects[id]; ok {
		return project, nil
	}
	return "", store.ErrNotFound
}

// withAckLinks returns a service, its links, and one to a notification of acme.
func withAckLinks(t *testing.T, change ...func(*httpapi.Config)) (*service, *ackLinks, string) {
	t.Helper()
	l := &ackLinks{Signer: links.NewSigner("", make([]byte, links.KeySize)), projects: map[uuid.UUID]string{}}
	s := newService(t, append(change, func(c *httpapi.Config) { c.AckLinks = l })...)
	id := uuid.New()
	l.projects[id] = "acme"
	s.canceled[id] = store.Canceled
	return s, l, l.Acknowledge(id)
}

func anonymous() header { return header{"Authorization", ""} }

func TestALinkInAMessageAcknowledgesIt(t *testing.T) {
	t.Parallel()
	s, _, link := withAckLinks(t)
	page := s.do(t, http.MethodGet, link, "", anonymous()).want(http.StatusOK)
	if s.writes != 0 {
		t.Error("looking at the link wrote something: programs that check links would acknowledge")
	}
	for _, want := range []string{`<form method="post">`, "<button>", "document.forms[0].submit()"} {
		if !strings.Contains(page.Body.String(), want) {
			t.Errorf("the page has no %q", want)
		}
	}
	done := s.do(t, http.MethodPost, link, "", anonymous()).want(http.StatusOK)
	if s.writes != 1 || !strings.Contains(done.Body.String(), "12:00:00 UTC on 1 December 2026") {
		t.Errorf("%d writes, and the page says %s", s.writes, done.Body)
	}
	for _, h := range []struct{ name, want string }{
		{"Referrer-Policy", "no-referrer"}, {"Cache-Control", "no-store"}, {"Content-Type", "text/html; charset=utf-8"},
	} {
		if got := done.Header().Get(h.name); got != h.want {
			t.Errorf("%s is %q, want %q", h.name, got, h.want)
		}
	}
	if policy := page.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "script-src 'sha256-") {
		t.Errorf("the policy is %q", policy)
	}
}

func TestABrowserThatLooksAheadClicksNothing(t *testing.T) {
	t.Parallel()
	s, _, link := withAckLinks(t)
	page := s.do(t, http.MethodGet, link, "", anonymous(), header{"Sec-Purpose", "prefetch;prerender"}).want(http.StatusOK)
	if strings.Contains(page.Body.String(), "<script") || !strings.Contains(page.Body.String(), "<button>") {
		t.Errorf("the page is %s", page.Body)
	}
}

func TestOnlyAGoodLinkAcknowledges(t *testing.T) {
	t.Parallel()
	s, l, link := withAckLinks(t)
	gone := l.Acknowledge(uuid.New()) // signed, and not kept any more
	for _, bad := range []string{link[:len(link)-1], link + "A", "/a/x", gone} {
		s.do(t, http.MethodPost, bad, "", anonymous()).want(http.StatusNotFound)
	}
	// A token that was never one is told from a good one before anything is read.
	s.do(t, http.MethodGet, "/a/x", "", anonymous()).want(http.StatusNotFound)
	if s.writes != 0 {
		t.Errorf("%d writes", s.writes)
	}
	l.err = errors.New("database of +14155550199 is down")
	answer := s.do(t, http.MethodPost, link, "", anonymous()).want(http.StatusServiceUnavailable)
	if answer.Header().Get("Retry-After") == "" || strings.Contains(answer.Body.String(), "database") {
		t.Errorf("the answer is %v %s", answer.Header(), answer.Body)
	}
	if strings.Contains(s.log.String(), link[3:]) {
		t.Error("the link is in the log")
	}
}

func TestLinksAreLimitedByAddress(t *testing.T) {
	t.Parallel()
	s, _, _ := withAckLinks(t, func(c *httpapi.Config) {
		c.Limits = &httpapi.RateLimits{
			Addresses: resilience.NewLimiter(resilience.LimiterConfig{}), Address: resilience.Limit{PerSecond: 1.0 / 3600, Burst: 2},
		}
	})
	for range 2 {
		s.do(t, http.MethodPost, "/a/guess", "", anonymous()).want(http.StatusNotFound)
	}
	if s.do(t, http.MethodPost, "/a/guess", "", anonymous()).want(http.StatusTooManyRequests).Header().Get("Retry-After") == "" {
		t.Error("no Retry-After")
	}
}

func TestWithoutLinksThereIsNoSuchPage(t *testing.T) {
	t.Parallel()
	newService(t).do(t, http.MethodGet, "/a/x", "").problem(http.StatusNotFound, httpapi.CodeNotFound)
}
