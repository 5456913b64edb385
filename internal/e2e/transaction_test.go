//go:build unix

package e2e_test

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	dispatcher "github.com/notification-dispatcher/dispatcher/client"
)

const loadReference = "under-load"

// steady is a load of so many a second, and what was seen of it. It is far below
// what the nodes can do, so that a rate that falls was held up by something.
type steady struct {
	mu                         sync.Mutex
	accepted, streamed, events []time.Time // of requests, of final events and of all events
	took                       []took
}

// took is how long a request took that was answered at an instant.
type took struct {
	at    time.Time
	delay time.Duration
}

// run posts until ctx ends. What it is late for it makes up.
func (s *steady) run(ctx context.Context, t *testing.T, c *cluster, nodes []*node, perSecond int) {
	t.Helper()
	const callers = 20
	var all sync.WaitGroup
	begun := time.Now()
	for i := range callers {
		all.Go(func() {
			due := time.NewTimer(0)
			defer due.Stop()
			for n := i; ; n += callers {
				due.Reset(time.Until(begun.Add(time.Duration(n) * time.Second / time.Duration(perSecond))))
				select {
				case <-ctx.Done():
					return
				case <-due.C:
				}
				m := c.alone("sms", n)
				m["reference"] = loadReference
				asked := time.Now()
				got, err := nodes[n%len(nodes)].call(t, http.MethodPost, "/v1/notifications", "", encode(t, m))
				if err != nil || got.status != http.StatusAccepted {
					t.Errorf("answered %d, %v: %s", got.status, err, got.body)
					return
				}
				s.mu.Lock()
				s.accepted = append(s.accepted, time.Now())
				s.took = append(s.took, took{time.Now(), time.Since(asked)})
				s.mu.Unlock()
			}
		})
	}
	all.Wait()
}

// follow reads the stream of events until ctx ends.
func (s *steady) follow(ctx context.Context, t *testing.T, n *node) {
	t.Helper()
	reader, err := dispatcher.New(n.url, n.key)
	if err != nil {
		t.Error(err)
		return
	}
	for e, err := range reader.Events(ctx, dispatcher.EventsOptions{After: dispatcher.AfterStart}) {
		if err != nil {
			if ctx.Err() == nil {
				t.Errorf("the events end: %v", err)
			}
			return
		}
		s.mu.Lock()
		s.events = append(s.events, time.Now())
		if e.Final {
			s.streamed = append(s.streamed, time.Now())
		}
		s.mu.Unlock()
	}
}

// perSecond is the median rate of what happened within a time, over windows of 5 s.
func perSecond(instants []time.Time, from, to time.Time) float64 {
	const window = 5 * time.Second
	var rates []float64
	for at := from; !at.Add(window).After(to); at = at.Add(window) {
		n := 0
		for _, i := range instants {
			if !i.Before(at) && i.Before(at.Add(window)) {
				n++
			}
		}
		rates = append(rates, float64(n)/window.Seconds())
	}
	slices.Sort(rates)
	return rates[len(rates)/2]
}

func (s *steady) delays(from, to time.Time) (median, p99 time.Duration) {
	var all []time.Duration
	for _, x := range s.took {
		if !x.at.Before(from) && x.at.Before(to) {
			all = append(all, x.delay)
		}
	}
	slices.Sort(all)
	return all[len(all)/2], all[len(all)*99/100]
}

// openTransactions enqueues in one transaction, and in another has everything of
// the load canceled. Both are left as they are.
func (c *cluster) openTransactions(t *testing.T) (enqueued, canceling pgx.Tx) {
	t.Helper()
	var open [2]pgx.Tx
	for i, sql := range []string{
		`select dispatcher.enqueue('{"project":"default","reference":"left open","idempotency_key":"left-open",
			"to":{"email":"ana@example.com"},"content":{"title":"Left open","body":"x"}}') is not null`,
		`select dispatcher.cancel_for('` + loadReference + `', 'default') >= 0`,
	} {
		connection, err := pgx.Connect(t.Context(), c.database)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = connection.Close(context.WithoutCancel(t.Context())) })
		if open[i], err = connection.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		var ok bool
		if err := open[i].QueryRow(t.Context(), sql).Scan(&ok); err != nil || !ok {
			t.Fatalf("%s: %t, %v", sql, ok, err)
		}
	}
	return open[0], open[1]
}

// blocked counts who waits for one of these backends' locks.
const blocked = `select count(*) from pg_stat_activity where pg_blocking_pids(pid) && $1::int[]`

func TestACallersTransactionLeftOpenHoldsUpNothing(t *testing.T) {
	const (
		rate   = 60
		closed = 10 * time.Second // before, and after
		open   = 35 * time.Second // longer than any transaction of the service may take
	)
	c := newCluster(t)
	nodes := c.three(t)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reading, stopReading := context.WithCancel(t.Context())
	defer stopReading()
	s := &steady{}
	var posting, following sync.WaitGroup
	posting.Go(func() { s.run(ctx, t, c, nodes, rate) })
	following.Go(func() { s.follow(reading, t, nodes[0]) })
	pass := func(d time.Duration, each func()) {
		end, tick := time.NewTimer(d), time.NewTicker(250*time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				each()
			case <-end.C:
				return
			}
		}
	}

	begun := time.Now()
	pass(closed, func() {})
	enqueued, canceling := c.openTransactions(t)
	opened := time.Now()
	pids := []int32{int32(enqueued.Conn().PgConn().PID()), int32(canceling.Conn().PgConn().PID())}
	pass(open, func() {
		if n := c.count(t, blocked, pids); n > 0 {
			t.Errorf("%d connections wait for the open transactions", n)
		}
	})
	lasted := time.Now()
	if err := canceling.Rollback(t.Context()); err != nil {
		t.Error(err)
	}
	if err := enqueued.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	pass(closed, func() {})
	ended := time.Now()
	stop()
	posting.Wait()
	c.settled(t, len(s.accepted)+1)
	stopReading()
	following.Wait()

	var received []time.Time
	for _, m := range c.received("twilio") {
		received = append(received, m.ReceivedAt)
	}
	for _, what := range []struct {
		name     string
		instants []time.Time
	}{{"accepted", s.accepted}, {"sent", received}, {"ended, says the stream", s.streamed}, {"events streamed", s.events}} {
		without := (perSecond(what.instants, begun, opened) + perSecond(what.instants, lasted, ended)) / 2
		with := perSecond(what.instants, opened, lasted)
		t.Logf("%s: %.1f a second without the transactions, %.1f with them", what.name, without, with)
		if with < 0.7*without || without < rate/2 {
			t.Errorf("%s: %.1f a second without the transactions, %.1f with them, at %d offered", what.name, without, with, rate)
		}
	}
	median, p99 := s.delays(begun, opened)
	medianOpen, p99Open := s.delays(opened, lasted)
	t.Logf("a request took %s (99 %%: %s) without the transactions, %s (99 %%: %s) with them", median, p99, medianOpen, p99Open)
	if medianOpen > 5*median+100*time.Millisecond {
		t.Errorf("a request took %s without the transactions and %s with them", median, medianOpen)
	}
	if mails := c.received("smtp"); len(mails) != 1 || mails[0].ReceivedAt.Before(lasted.Add(-time.Second)) {
		t.Errorf("of what the transaction enqueued was received %+v", mails)
	}
	if n := c.count(t, "select count(*) from dispatcher.status where status <> 'sent'"); n > 0 {
		t.Errorf("%d notifications were not sent", n)
	}
}
