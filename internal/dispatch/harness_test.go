package dispatch_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

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
	open  int // calls under way
	peak  int // the most there have been
}

type call struct {
	key          uuid.UUID
	notification uuid.UUID
	to           notify.Target
	at           time.Time
	outcome      notify.Outcome // empty while under way
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
	place := len(s.log)
	s.log = append(s.log, call{key: m.Key, notification: m.NotificationID, to: m.To, at: time.Now()})
	s.open++
	s.peak = max(s.peak, s.open)
	s.mu.Unlock()
	outcome := notify.Unknown // unless it comes to an answer
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open--
		s.log[place].outcome = outcome
	}()
	r := s.answer(n, m)
	outcome = r.Outcome
	return r
}

// flying returns how many calls are under way, and the most there have been.
func (s *script) flying() (now, peak int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open, s.peak
}

// scoped is a script with scopes below the account.
type scoped struct {
	*script
	scopes func(notify.Target) []string
}

func (s scoped) Scopes(t notify.Target) []string { return s.scopes(t) }

// door lets calls through once it is opened.
type door struct {
	once sync.Once
	c    chan struct{}
}

// newDoor returns a shut door that is opened at the latest when the test ends,
// before its nodes are stopped.
func newDoor(t *testing.T) *door {
	t.Helper()
	d := &door{c: make(chan struct{})}
	context.AfterFunc(t.Context(), d.open)
	return d
}

func (d *door) open() { d.once.Do(func() { close(d.c) }) }

// then answers with o once the door is open.
func (d *door) then(o notify.Outcome) func(int, *channels.Message) channels.Result {
	return func(int, *channels.Message) channels.Result {
		<-d.c
		return channels.Result{Outcome: o}
	}
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

// record is a notification as the store shows it.
type record = store.Record

// story joins what [node.events] returned.
func story(events []string) string { return strings.Join(events, " ") }

// node is a dispatcher that runs until the test ends.
type node struct {
	*dispatch.Dispatcher
	store  *store.Store
	member *resilience.Member
	stop   func()
}

// quickly makes retries quick enough for a test.
var quickly = resilience.Backoff{Base: 20 * time.Millisecond, Cap: 50 * time.Millisecond, Floor: time.Millisecond}

// account wraps a provider with settings for tests.
func account(p channels.Provider) *dispatch.Account {
	return &dispatch.Account{
		Provider: p, Timeout: 5 * time.Second, Retry: quickly, SlowRetry: quickly,
		Breaker: resilience.BreakerConfig{Failures: 1000}, Budget: resilience.BudgetConfig{PerFirst: 100},
	}
}

func registry(accounts ...*dispatch.Account) *dispatch.Registry { return limited(64, accounts...) }

// limited is a registry with room for so many calls of each channel.
func limited(calls int, accounts ...*dispatch.Account) *dispatch.Registry {
	byChannel := map[notify.Channel]dispatch.Channel{}
	for _, a := range accounts {
		c := a.Provider.Info().Channel
		channel := byChannel[c]
		channel.MaxInFlight = calls
		channel.Accounts = append(channel.Accounts, a)
		byChannel[c] = channel
	}
	return dispatch.NewRegistry(byChannel)
}

// setup is what a test may change of a node before it runs.
type setup struct {
	dispatch.Config
	prepare func(*dispatch.Dispatcher, *store.Store)
}

// start runs a node on databaseURL.
func start(t *testing.T, databaseURL string, r *dispatch.Registry, adapt ...func(*setup)) *node {
	t.Helper()
	// The node is stopped by the test's clean-up, when its context has ended.
	base := context.WithoutCancel(t.Context())
	s, err := store.Open(base, databaseURL, store.Options{MaxConnections: 8})
	if err != nil {
		t.Fatal(err)
	}
	name := uuid.New()
	member := resilience.NewMember(s.Scopes(name), rand.Float64)
	pacer := resilience.NewPacer(resilience.LimiterConfig{Source: s})
	cfg := setup{
		Config: dispatch.Config{
			Node: name, Registry: r, Admission: dispatch.NewCluster(member, pacer), Metrics: (*telemetry.Metrics)(nil), Logger: testLogger(t), Work: true,
			SoftStop: 5 * time.Second, SweepEvery: 300 * time.Millisecond, WakeEvery: 40 * time.Millisecond,
		},
		prepare: func(*dispatch.Dispatcher, *store.Store) {},
	}
	for _, a := range adapt {
		a(&cfg)
	}
	d, err := dispatch.New(s, cfg.Config)
	if err != nil {
		t.Fatal(err)
	}
	cfg.prepare(d, s)
	ctx, cancel := context.WithCancel(base)
	done := make(chan error, 1)
	go func() {
		var shared sync.WaitGroup
		scopes := dispatch.Scopes{Member: member, Store: s, Logger: testLogger(t)}
		shared.Go(func() { scopes.Run(ctx) })
		shared.Go(func() { pacer.Run(ctx) })
		err := d.Run(ctx)
		shared.Wait()
		done <- err
	}()
	n := &node{Dispatcher: d, store: s, member: member}
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

// pgURL is a database of the test's own.
func pgURL(t *testing.T) string {
	t.Helper()
	return pgtest.URL(t)
}

// single runs one node on a database of its own.
func single(t *testing.T, accounts ...*dispatch.Account) *node {
	t.Helper()
	return start(t, pgURL(t), registry(accounts...))
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

// acceptAll accepts many together, which lets them share transactions, and returns
// their ids in order.
func (n *node) acceptAll(t *testing.T, what ...notify.Notification) []uuid.UUID {
	t.Helper()
	ids := make([]uuid.UUID, len(what))
	var wg sync.WaitGroup
	for i := range what {
		wg.Go(func() { ids[i] = n.accept(t, what[i]) })
	}
	wg.Wait()
	return ids
}

// alike is so many notifications to the same person.
func alike(count int, to notify.To, chain ...notify.Step) []notify.Notification {
	out := make([]notify.Notification, count)
	for i := range out {
		out[i] = notification(to, chain...)
	}
	return out
}

// ended waits until so many deliveries are final, and no other is there.
func (n *node) ended(t *testing.T, count int) {
	t.Helper()
	eventually(t, "all have ended", func() bool {
		return n.count(t, "select count(*) filter (where final) - 1000000 * count(*) filter (where not final) from dispatcher.deliveries") == count
	})
}

const (
	// liveness is how long what must come may take on a machine that has much else to
	// do. Nothing is proven by its length.
	liveness = 2 * time.Minute
	// soon is what takes a moment even there, where the alternative is minutes, or
	// that it never comes.
	soon = 30 * time.Second
)

// until reads a notification again and again until cond holds of it.
func (n *node) until(t *testing.T, id uuid.UUID, what string, cond func(store.Record) bool) store.Record {
	t.Helper()
	deadline := time.Now().Add(liveness)
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

// exec runs a statement in the node's database.
func (n *node) exec(t *testing.T, sql string, args ...any) int64 {
	t.Helper()
	tag, err := n.store.Pool().Exec(t.Context(), sql, args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

// count reads one number from the node's database.
func (n *node) count(t *testing.T, sql string, args ...any) int {
	t.Helper()
	var got int
	if err := n.store.Pool().QueryRow(t.Context(), sql, args...).Scan(&got); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return got
}

// events returns a notification's story: type, and because after a colon, with a
// full stop where it ends.
func (n *node) events(t *testing.T, id uuid.UUID) []string {
	t.Helper()
	rows, err := n.store.Pool().Query(t.Context(), `
		select type || coalesce(':' || because, '') || case when final then '.' else '' end
		from dispatcher.events where notification_id = $1 order by id`, id)
	if err != nil {
		t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// eventually waits until cond holds.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(liveness); !cond(); tick(t) {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// waiting waits until the notification's first wait has the reason, and shows
// the delivery as it waits: a record's parts are read one after the other.
func (n *node) waiting(t *testing.T, id uuid.UUID, reason notify.WaitReason) store.Record {
	t.Helper()
	return n.until(t, id, "waiting for "+string(reason), func(r store.Record) bool {
		return len(r.Waits) > 0 && r.Waits[0].Reason == reason && slices.ContainsFunc(r.Deliveries, func(d store.Delivery) bool {
			return d.DeliveryID == r.Waits[0].DeliveryID && d.Turn == r.Waits[0].Turn
		})
	})
}

// pass lets the time of every wait be over.
func (n *node) pass(t *testing.T) {
	t.Helper()
	n.exec(t, "update dispatcher.waits set due = now()")
}

// passSteps lets the time of every delivery be over, and of its notification if
// that ends with it.
func (n *node) passSteps(t *testing.T) {
	t.Helper()
	n.exec(t, `update dispatcher.deliveries set ends_at = now(),
		expires_at = case when expires_at = ends_at then now() else expires_at end`)
	n.pass(t)
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
	case <-time.After(10 * time.Millisecond):
	}
}

// operate is an operator's decision about a breaker, as soon as the node knows it.
func (n *node) operate(t *testing.T, scope string, action store.Action, until time.Time) {
	t.Helper()
	if err := n.store.Operate(t.Context(), scope, action, resilience.Override{Who: "test", Until: until}); err != nil {
		t.Fatal(err)
	}
	if err := n.member.Refresh(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
}
