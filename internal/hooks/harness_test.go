package hooks_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/webhook"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/hooks"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

// world is a node with an SMS account that takes everything, and a receiver of
// webhooks.
type world struct {
	t        *testing.T
	store    *store.Store
	node     *dispatch.Dispatcher
	service  *hooks.Service
	receiver *receiver
}

// received is one call to the receiver.
type received struct {
	path   string
	id     string // webhook-id
	header http.Header
	raw    []byte
	body   struct {
		Type      string
		Timestamp time.Time
		Data      map[string]any
	}
}

// receiver is an HTTP server that answers each path as a test wants.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	calls  []received
	status map[string]int // by path; 200 where there is none
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{status: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c := received{path: req.URL.Path, id: req.Header.Get("webhook-id"), header: req.Header}
		var err error
		if c.raw, err = io.ReadAll(req.Body); err == nil {
			err = json.Unmarshal(c.raw, &c.body, json.MatchCaseInsensitiveNames(true))
		}
		if err != nil {
			t.Errorf("call cannot be read: %v", err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls = append(r.calls, c)
		if s := r.status[c.path]; s != 0 {
			w.WriteHeader(s)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) answer(path string, status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status[path] = status
}

// at returns the calls to a path.
func (r *receiver) at(path string) []received {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []received
	for _, c := range r.calls {
		if c.path == path {
			out = append(out, c)
		}
	}
	return out
}

// phone takes every message.
type phone struct{}

func (phone) Info() channels.Info {
	return channels.Info{Account: "sms-main", Channel: notify.SMS, Provider: "script", MaxObservable: notify.Sent}
}

func (phone) Send(context.Context, *channels.Message) channels.Result { return channels.Ok("id-1") }

func newWorld(t *testing.T) *world {
	t.Helper()
	base := context.WithoutCancel(t.Context())
	s, err := store.Open(base, pgtest.URL(t), store.Options{MaxConnections: 8})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, store: s, receiver: newReceiver(t)}
	log := slog.New(slog.DiscardHandler)
	host := strings.TrimPrefix(w.receiver.URL, "http://")
	provider, err := hooks.NewProvider(webhook.Config{AllowPrivate: []string{host}}, s, log)
	if err != nil {
		t.Fatal(err)
	}
	registry := dispatch.NewRegistry(map[notify.Channel]dispatch.Channel{
		notify.SMS: {MaxInFlight: 64, Accounts: []*dispatch.Account{{Provider: phone{}, Timeout: time.Second}}},
		notify.Webhook: {MaxInFlight: 64, Accounts: []*dispatch.Account{{
			Provider: provider, Timeout: hooks.Timeout, OnUnknown: notify.Resend, Hidden: true, Schedule: hooks.Schedule(),
		}}},
	})
	name := uuid.New()
	member := resilience.NewMember(s.Scopes(name), rand.Float64)
	w.node, err = dispatch.New(s, dispatch.Config{
		Node: name, Registry: registry, Admission: dispatch.NewCluster(member, nil), Metrics: (*telemetry.Metrics)(nil), Logger: log,
		Work: true, SoftStop: 5 * time.Second, WakeEvery: 20 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	w.service = hooks.New(w.config())
	ctx, stop := context.WithCancel(base)
	var parts sync.WaitGroup
	scopes := dispatch.Scopes{Member: member, Store: s, Logger: log}
	parts.Go(func() { scopes.Run(ctx) })
	parts.Go(func() {
		if err := w.node.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	t.Cleanup(func() { stop(); parts.Wait(); s.Close() })
	return w
}

func (w *world) config() hooks.Config {
	return hooks.Config{
		Store: w.store, Starter: w.node,
		Check:  func(n *notify.Notification) []notify.Problem { return w.node.Registry().Check(n) },
		Cursor: func(project string, position int64) string { return fmt.Sprintf("%s/%d", project, position) },
	}
}

// register makes a webhook whose path is its name.
func (w *world) register(project, name string, events ...string) (store.Webhook, secret.Value) {
	w.t.Helper()
	h, key, err := w.service.Create(w.t.Context(), store.Webhook{Project: project, URL: w.receiver.URL + "/" + name, Events: events})
	if err != nil {
		w.t.Fatal(err)
	}
	return h, key
}

// send accepts a notification of a project, and returns its id.
func (w *world) send(project string) uuid.UUID {
	w.t.Helper()
	at := time.Now().UTC().Truncate(time.Microsecond)
	n := notify.Notification{
		ID: uuid.Must(uuid.NewV7()), Project: project, To: notify.To{SMS: "+14155550100"}, Chain: []notify.Step{{Channel: notify.SMS}}, Mode: notify.First,
		Priority: notify.Normal, Content: notify.Content{Body: "hello"}, Reference: "order-1", CreatedAt: at, SendAt: at, ExpiresAt: at.Add(time.Hour),
	}
	if _, err := w.node.Accept(w.t.Context(), store.Accept{Notification: n}); err != nil {
		w.t.Fatal(err)
	}
	return n.ID
}

// ended waits until notifications have ended.
func (w *world) ended(ids ...uuid.UUID) {
	w.t.Helper()
	w.eventually("notifications end", func() bool {
		records, err := w.store.Records(w.t.Context(), ids)
		if err != nil {
			w.t.Fatal(err)
		}
		for i := range records {
			if _, final := records[i].Overall(); !final {
				return false
			}
		}
		return len(records) == len(ids)
	})
}

func (w *world) feed() {
	w.t.Helper()
	if err := w.service.Feed(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) calls(h store.Webhook) []hooks.Call {
	w.t.Helper()
	calls, err := w.service.Calls(w.t.Context(), h.Project, h.ID, uuid.Nil, 100)
	if err != nil {
		w.t.Fatal(err)
	}
	return calls
}

func (w *world) webhook(h store.Webhook) store.Webhook {
	w.t.Helper()
	got, err := w.service.Get(w.t.Context(), h.Project, h.ID)
	if err != nil {
		w.t.Fatal(err)
	}
	return got
}

func (w *world) exec(sql string, args ...any) {
	w.t.Helper()
	if _, err := w.store.Pool().Exec(w.t.Context(), sql, args...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) count(sql string, args ...any) int {
	w.t.Helper()
	var n int
	if err := w.store.Pool().QueryRow(w.t.Context(), sql, args...).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) eventually(what string, cond func() bool) {
	w.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !cond(); {
		if time.Now().After(deadline) {
			w.t.Fatalf("not in time: %s", what)
		}
		select {
		case <-w.t.Context().Done():
			w.t.Fatal("test ended")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func isNotFound(err error) bool { return errors.Is(err, store.ErrNotFound) }
