package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// noon is what the clock of the tests' API shows.
var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// fake keeps in memory what the API wants to have kept. It counts what reaches it.
type fake struct {
	mu       sync.Mutex
	writes   int
	accepted []store.Accept
	records  []store.Record
	keys     map[string]store.APIKey // by secret
	backlog  []store.Backlog
	pauses   []store.Pause
	filters  []store.Filter
	failures []store.Failures
	limits   []int
	backlogs []string // projects asked for
	canceled map[uuid.UUID]store.CancelResult
	problems []notify.Problem // of every Check
	operations
	err    error // of every call
	panics bool
}

func newFake() *fake {
	return &fake{
		keys: map[string]store.APIKey{
			"dsp_all":   {Project: "acme", Scopes: []string{"send", "read", "admin"}},
			"dsp_send":  {Project: "acme", Scopes: []string{"send"}},
			"dsp_read":  {Project: "acme", Scopes: []string{"read"}},
			"dsp_admin": {Project: "acme", Scopes: []string{"admin"}},
			"dsp_other": {Project: "other", Scopes: []string{"send", "read", "admin"}},
		},
		canceled: map[uuid.UUID]store.CancelResult{},
	}
}

func (f *fake) Accept(_ context.Context, a store.Accept) (store.Accepted, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	if f.panics {
		panic("the secret of +14155550199")
	}
	if f.err != nil {
		return store.Accepted{}, f.err
	}
	for i := range f.accepted { // without copying each
		if old := &f.accepted[i]; a.Key != "" && old.Key == a.Key && old.Notification.Project == a.Notification.Project {
			if old.Fingerprint != a.Fingerprint {
				return store.Accepted{}, store.ErrIdempotencyMismatch
			}
			return store.Accepted{ID: old.Notification.ID, Replayed: true, Answer: old.Answer}, nil
		}
	}
	f.accepted = append(f.accepted, a)
	return store.Accepted{ID: a.Notification.ID, Answer: a.Answer}, nil
}

func (f *fake) Get(_ context.Context, project string, id uuid.UUID) (store.Record, error) {
	for _, r := range f.records {
		if r.Notification.ID == id && r.Notification.Project == project {
			return r, f.err
		}
	}
	return store.Record{}, errors.Join(store.ErrNotFound, f.err)
}

func (f *fake) List(_ context.Context, filter store.Filter) ([]store.Record, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.filters = append(f.filters, filter)
	var out []store.Record
	for _, r := range f.records { // newest first
		older := filter.Cursor == uuid.Nil || bytes.Compare(r.Notification.ID[:], filter.Cursor[:]) < 0
		if r.Notification.Project == filter.Project && older && len(out) < filter.Limit {
			out = append(out, r)
		}
	}
	return out, f.err
}

func (f *fake) Cancel(_ context.Context, project string, id uuid.UUID, _ time.Time) (store.CancelResult, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	result, ok := f.canceled[id]
	if !ok || project != "acme" {
		return "", store.ErrNotFound
	}
	return result, f.err
}

func (f *fake) Backlog(_ context.Context, project string) ([]store.Backlog, error) {
	f.backlogs = append(f.backlogs, project)
	return f.backlog, f.err
}

func (f *fake) Pauses(context.Context) ([]store.Pause, error) { return f.pauses, f.err }

func (f *fake) Authenticate(_ context.Context, secret string) (store.APIKey, error) {
	key, ok := f.keys[secret]
	if !ok {
		return store.APIKey{}, store.ErrNotFound
	}
	return key, nil
}

func (f *fake) CreateKey(_ context.Context, project, name string, scopes []string, expires time.Time) (string, store.APIKey, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	secret := "dsp_" + name
	key := store.APIKey{
		ID: uuid.NewSHA1(uuid.Nil, []byte(name)), Project: project, Name: name, Hint: "dsp_", Scopes: scopes, CreatedAt: noon, ExpiresAt: expires,
	}
	f.keys[secret] = key
	return secret, key, f.err
}

func (f *fake) ListKeys(_ context.Context, project string) ([]store.APIKey, error) {
	var out []store.APIKey
	for _, k := range f.keys {
		if k.Project == project {
			out = append(out, k)
		}
	}
	return out, f.err
}

func (f *fake) RevokeKey(_ context.Context, project string, id uuid.UUID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.writes++
	for secret, k := range f.keys {
		if k.ID == id && k.ID != uuid.Nil && k.Project == project {
			delete(f.keys, secret)
			return nil
		}
	}
	return store.ErrNotFound
}

func (f *fake) Infos(string) []channels.Info {
	return []channels.Info{
		{Account: "fcm-main", Channel: notify.Push, Provider: "fcm", MaxObservable: notify.Sent},
		{Account: "twilio-main", Channel: notify.SMS, Provider: "twilio", MaxObservable: notify.Delivered},
		{Account: "sms-poor", Channel: notify.SMS, Provider: "twilio", MaxObservable: notify.Sent},
		{Account: "meta-main", Channel: notify.WhatsApp, Provider: "meta", MaxObservable: notify.Read},
		{Account: "smtp-main", Channel: notify.Email, Provider: "smtp", MaxObservable: notify.Delivered},
		{Account: "slack-main", Channel: notify.Slack, Provider: "slack", MaxObservable: notify.Sent},
		{Account: "webhook-main", Channel: notify.Webhook, Provider: "webhook", MaxObservable: notify.Delivered},
	}
}

func (f *fake) Health(project string) []httpapi.AccountHealth {
	var out []httpapi.AccountHealth
	for _, info := range f.Infos(project) {
		h := httpapi.AccountHealth{Info: info, Breaker: httpapi.BreakerHealth{State: "closed"}, GateUntil: noon.Add(-time.Second)}
		if info.Account == "twilio-main" {
			h.Breaker = httpapi.BreakerHealth{State: "open", OpenUntil: noon.Add(30 * time.Second), Because: "5 failures"}
			h.GateUntil = noon.Add(time.Minute)
		}
		out = append(out, h)
	}
	return out
}

func (f *fake) Check(*notify.Notification) []notify.Problem { return f.problems }

// service is an API over a fake, and what it logged.
type service struct {
	*fake
	api *httpapi.API
	log *bytes.Buffer
}

func newService(tb testing.TB, change ...func(*httpapi.Config)) *service {
	tb.Helper()
	s := &service{fake: newFake(), log: &bytes.Buffer{}}
	c := httpapi.Config{
		Accept: s.fake, Store: s.fake, Keys: s.fake, Accounts: s.fake, Operations: s.fake, Retry: s.fake, Plan: s.fake, Batches: s.fake, Now: func() time.Time { return noon },
		Log: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	for _, f := range change {
		f(&c)
	}
	s.api = httpapi.New(c)
	return s
}

// answer is what came back of a request.
type answer struct {
	*httptest.ResponseRecorder
	t testing.TB
}

type header struct{ name, value string }

// do sends a request with the key that may do everything.
func (s *service) do(tb testing.TB, method, target, body string, headers ...header) answer {
	tb.Helper()
	var reader io.Reader
	if body != "" {
		reader = strings.NewReader(body)
	}
	r := httptest.NewRequestWithContext(tb.Context(), method, target, reader)
	r.Header.Set("Authorization", "Bearer dsp_all")
	for _, h := range headers {
		if h.value == "" {
			r.Header.Del(h.name)
			continue
		}
		r.Header.Add(h.name, h.value)
		if h.name == "Authorization" {
			r.Header.Set(h.name, h.value)
		}
	}
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, r)
	return answer{w, tb}
}

func (a answer) want(status int) answer {
	a.t.Helper()
	if a.Code != status {
		a.t.Fatalf("status %d, want %d: %s", a.Code, status, a.Body)
	}
	return a
}

// into decodes the answer.
func (a answer) into(v any) {
	a.t.Helper()
	if err := json.Unmarshal(a.Body.Bytes(), v); err != nil {
		a.t.Fatalf("%v in %s", err, a.Body)
	}
}

// problem checks that the answer is a problem document with this status and code
// and returns it.
func (a answer) problem(status int, code string) httpapi.Problem {
	a.t.Helper()
	a.want(status)
	if got := a.Header().Get("Content-Type"); got != "application/problem+json" {
		a.t.Errorf("Content-Type %q", got)
	}
	var p httpapi.Problem
	if err := json.Unmarshal(a.Body.Bytes(), &p, json.RejectUnknownMembers(true)); err != nil {
		a.t.Fatalf("%v in %s", err, a.Body)
	}
	if p.Status != status || p.Code != code || p.Type != "about:blank" || p.Title != http.StatusText(status) || p.Detail == "" {
		a.t.Errorf("problem %+v, want status %d and code %s", p, status, code)
	}
	return p
}

// places are where a problem's errors are, each with its code.
func places(p httpapi.Problem) []string {
	out := []string{}
	for _, e := range p.Errors {
		where := e.Pointer
		if e.Parameter != "" {
			where = e.Parameter
		}
		out = append(out, where+" "+e.Code)
	}
	slices.Sort(out)
	return out
}

// bodyOf is a recorded answer with this body.
func bodyOf(body string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	_, _ = w.WriteString(body)
	return w
}
