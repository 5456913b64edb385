package dispatch_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

// script is a provider whose answers a test writes.
type script struct {
	info   channels.Info
	answer func(n int, m *channels.Message) channels.Result // n counts the calls of a key from 1

	mu    sync.Mutex
	calls map[uuid.UUID]int
	log   []call
}

type call struct {
	key uuid.UUID
	to  notify.Target
	at  time.Time
}

func newScript(c notify.Channel, answer func(n int, m *channels.Message) channels.Result) *script {
	return &script{
		info:   channels.Info{Account: string(c) + "-main", Channel: c, Provider: "script", MaxObservable: notify.Sent},
		answer: answer, calls: map[uuid.UUID]int{},
	}
}

func (s *script) Info() channels.Info { return s.info }

func (s *script) Send(_ context.Context, m *channels.Message) channels.Result {
	s.mu.Lock()
	s.calls[m.Key]++
	n := s.calls[m.Key]
	s.log = append(s.log, call{m.Key, m.To, time.Now()})
	s.mu.Unlock()
	return s.answer(n, m)
}

// sent returns the calls so far.
func (s *script) sent() []call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]call(nil), s.log...)
}

func ok(int, *channels.Message) channels.Result { return channels.Ok("id-1") }

func always(o notify.Outcome) func(int, *channels.Message) channels.Result {
	return func(int, *channels.Message) channels.Result { return channels.Result{Outcome: o} }
}

// node is a dispatcher that runs until the test ends.
type node struct {
	*dispatch.Dispatcher
	store *store.Store
	guard *resilience.Guard
	stop  func()
}

// quickly makes retries quick enough for a test.
var quickly = resilience.Backoff{Base: 20 * time.Millisecond, Cap: 50 * time.Millisecond, Floor: time.Millisecond}

// account wraps a provider with settings for tests.
func account(p channels.Provider) *dispatch.Account {
	return &dispatch.Account{
		Provider: p, Timeout: 5 * time.Second, Retry: quickly, SlowRetry: quickly,
		Breaker: resilience.BreakerConfig{Failures: 1000},
	}
}

func registry(accounts ...*dispatch.Account) *dispatch.Registry {
	byChannel := map[notify.Channel]dispatch.Channel{}
	for _, a := range accounts {
		c := a.Provider.Info().Channel
		channel := byChannel[c]
		channel.MaxInFlight = 64
		channel.Accounts = append(channel.Accounts, a)
		byChannel[c] = channel
	}
	return dispatch.NewRegistry(byChannel)
}

// start runs a node on databaseURL.
func start(t *testing.T, databaseURL string, r *dispatch.Registry, adapt ...func(*dispatch.Config)) *node {
	t.Helper()
	s, err := store.Open(t.Context(), databaseURL, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	guard := resilience.NewGuard(resilience.GuardConfig{Rand: rand.Float64})
	cfg := dispatch.Config{
		Registry: r, Admission: dispatch.NewLocal(guard), Metrics: (*telemetry.Metrics)(nil), Logger: testLogger(t), Work: true,
		SoftStop: 5 * time.Second,
	}
	for _, a := range adapt {
		a(&cfg)
	}
	d, err := dispatch.New(s, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	n := &node{Dispatcher: d, store: s, guard: guard}
	n.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		s.Close()
	})
	t.Cleanup(n.stop)
	return n
}

// single runs one node on a database of its own.
func single(t *testing.T, accounts ...*dispatch.Account) *node {
	t.Helper()
	return start(t, pgtest.URL(t), registry(accounts...))
}

// notification is one to accept; adapt changes it before.
func notification(to notify.To, chain ...notify.Step) notify.Notification {
	now := time.Now().UTC().Truncate(time.Microsecond)
	return notify.Notification{
		ID: uuid.Must(uuid.NewV7()), Project: "default", To: to, Chain: chain, Mode: notify.First, Priority: notify.Normal,
		Content: notify.Content{Title: "t", Body: "b"}, CreatedAt: now, SendAt: now, ExpiresAt: now.Add(time.Hour),
	}
}

func step(c notify.Channel) notify.Step { return notify.Step{Channel: c} }

func (n *node) accept(t *testing.T, what notify.Notification) uuid.UUID {
	t.Helper()
	a, err := n.Accept(t.Context(), store.Accept{Notification: what})
	if err != nil {
		t.Fatal(err)
	}
	return a.ID
}

// until reads a notification again and again until cond holds of it.
func (n *node) until(t *testing.T, id uuid.UUID, what string, cond func(store.Record) bool) store.Record {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		r, err := n.store.Get(t.Context(), "default", id)
		if err != nil {
			t.Fatal(err)
		}
		if cond(r) {
			return r
		}
		if time.Now().After(deadline) {
			t.Fatalf("not %s in time: deliveries %+v waits %+v attempts %+v", what, r.Deliveries, r.Waits, r.Attempts)
		}
		tick(t)
	}
}

// final waits for the end of a notification and returns its status.
func (n *node) final(t *testing.T, id uuid.UUID) (notify.Status, store.Record) {
	t.Helper()
	r := n.until(t, id, "final", func(r store.Record) bool { _, final := r.Overall(); return final })
	status, _ := r.Overall()
	return status, r
}

// tick waits a moment between two looks at the database.
func tick(t *testing.T) {
	t.Helper()
	select {
	case <-t.Context().Done():
		t.Fatal("test ended")
	case <-time.After(5 * time.Millisecond):
	}
}
