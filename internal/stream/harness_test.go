package stream_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/stream"
)

// db is a store whose jobs nobody works.
type db struct{ *store.Store }

func open(t testing.TB) *db {
	t.Helper()
	s, err := store.Open(t.Context(), pgtest.URL(t), store.Options{MaxConnections: 12})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.SetQueue(&noQueue{})
	return &db{s}
}

// noQueue gives out the ids of jobs that are nowhere.
type noQueue struct{ last atomic.Int64 }

func (q *noQueue) Insert(_ context.Context, _ pgx.Tx, envelopes []store.Envelope) ([]int64, error) {
	ids := make([]int64, len(envelopes))
	for i := range ids {
		ids[i] = q.last.Add(1)
	}
	return ids, nil
}

// accept accepts count notifications of a project in one flush, one event each.
func (d *db) accept(ctx context.Context, project string, count int) ([]store.Delivery, error) {
	rows := make([]store.Acceptance, count)
	var started []store.Delivery
	for i := range rows {
		at := time.Now().UTC()
		n := notify.Notification{
			ID: uuid.Must(uuid.NewV7()), Project: project, To: notify.To{SMS: "+15005550006"},
			Chain: []notify.Step{{Channel: notify.SMS}}, Mode: notify.First, Priority: notify.Normal,
			Content: notify.Content{Body: "b"}, CreatedAt: at, SendAt: at, ExpiresAt: at.Add(time.Hour),
		}
		rows[i].Notification = n
		rows[i].Starts = []store.Start{{Delivery: store.Delivery{
			DeliveryID: store.DeliveryID{Notification: n.ID}, Targets: 1, Project: project, Channel: notify.SMS, Priority: n.Priority,
			StartedWhy: "first", StartedAt: at, EndsAt: n.ExpiresAt, ExpiresAt: n.ExpiresAt,
		}}}
		started = append(started, rows[i].Starts[0].Delivery)
	}
	_, errs, err := d.Accept(ctx, rows, time.Now(), time.Hour)
	for _, e := range errs {
		if err == nil {
			err = e
		}
	}
	return started, err
}

// finish records, in one flush, that deliveries were sent: one event each.
func (d *db) finish(ctx context.Context, deliveries []store.Delivery) error {
	results := make([]store.Result, len(deliveries))
	for i, delivery := range deliveries {
		results[i] = store.Result{
			DeliveryID: delivery.DeliveryID, Project: delivery.Project,
			After: store.After{Status: notify.Sent, Final: true, FinishedAt: time.Now()},
			Events: []store.Event{{
				At: time.Now(), ID: delivery.DeliveryID, Project: delivery.Project, Type: string(notify.Sent), Final: true,
			}},
		}
	}
	_, err := d.Record(ctx, results, func(store.Record, []store.DeliveryID) store.Joined { return store.Joined{} })
	return err
}

// positions are those of a filter's events after a position, as the table has
// them.
func (d *db) positions(t testing.TB, f store.EventFilter) []int64 {
	t.Helper()
	rows, err := d.Pool().Query(t.Context(), `select id from dispatcher.events where id > $1 and project = $2
		and ($3 = '00000000-0000-0000-0000-000000000000'::uuid or notification_id = $3) order by id`, f.After, f.Project, f.Notification)
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// newest is the newest position.
func (d *db) newest(t testing.TB) int64 {
	t.Helper()
	n, err := d.NewestEvent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// server is a hub that runs, as a process has one.
type server struct {
	*stream.Hub
	stop func()
}

func serve(ctx context.Context, source stream.Source, c stream.Config) *server {
	if c.Interval == 0 {
		c.Interval = 2 * time.Millisecond
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &server{Hub: stream.New(source, c)}
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	s.stop = func() { cancel(); running.Wait() }
	return s
}

// start is serve for as long as the test runs.
func start(t testing.TB, source stream.Source, c stream.Config) *server {
	t.Helper()
	s := serve(t.Context(), source, c)
	t.Cleanup(s.stop)
	return s
}

// subscribe follows until the test ends, at the latest.
func subscribe(t testing.TB, h *server, f store.EventFilter, from stream.Start) *stream.Subscription {
	t.Helper()
	s, err := h.Subscribe(t.Context(), f, from)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// take reads count events, however long they take.
func take(t testing.TB, s *stream.Subscription, count int) []int64 {
	t.Helper()
	var seen []int64
	for len(seen) < count {
		events, err := s.Next(t.Context(), time.Minute)
		if err != nil {
			t.Fatalf("after %d of %d events: %v", len(seen), count, err)
		}
		seen = append(seen, seqs(events)...)
	}
	return seen
}

func seqs(events []*store.LoggedEvent) []int64 {
	out := make([]int64, len(events))
	for i, e := range events {
		out[i] = e.Seq
	}
	return out
}
