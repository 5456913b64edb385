package dispatch

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// errAnswerLost stands for a connection that broke after the commit.
var errAnswerLost = errors.New("connection reset")

// LoseAnswers makes flushes fail although their transaction was committed, when
// lose says so of "accept", "claim" or "record". It must be called before Run.
func (d *Dispatcher) LoseAnswers(lose func(what string) bool) {
	d.accepts.flush = losing(d.accepts.flush, "accept", lose)
	d.durable.flush = losing(d.durable.flush, "claim", lose)
	d.plain.flush = losing(d.plain.flush, "claim", lose)
	d.records.flush = losing(d.records.flush, "record", lose)
}

func losing[T, R any](flush func(context.Context, []T) ([]R, error), what string, lose func(string) bool) func(context.Context, []T) ([]R, error) {
	return func(ctx context.Context, items []T) ([]R, error) {
		results, err := flush(ctx, items)
		if err == nil && lose(what) {
			return nil, errAnswerLost
		}
		return results, err
	}
}

// Queue is the job queue that New gave the store.
func (d *Dispatcher) Queue() store.Queue { return d.queue }

// Asking reports whether a provider is being asked what became of a message, or
// its answer is being written.
func (d *Dispatcher) Asking() bool { return d.lookups.free() < maxLookups }

// Sweep looks at every delivery now.
func (d *Dispatcher) Sweep(ctx context.Context) error { return d.sweep(ctx) }

// RunJob works an envelope as River does, until ctx ends.
func (d *Dispatcher) RunJob(ctx context.Context, e store.Envelope) bool { return d.run(ctx, e) }

// LoseListener breaks the connection of the queue's listener once, just before a
// topic of that name is listened to. It must be called before Run.
func (d *Dispatcher) LoseListener(topic string) error {
	q, err := newQueue(losingDriver{riverpgxv5.New(d.store.Pool()), topic}, d, d.cfg.Work, d.log)
	if err != nil {
		return err
	}
	d.queue = q
	d.store.SetQueue(q)
	return nil
}

type losingDriver struct {
	riverdriver.Driver[pgx.Tx]
	topic string
}

func (d losingDriver) GetListener(p *riverdriver.GetListenenerParams) riverdriver.Listener {
	return &losingListener{Listener: d.Driver.GetListener(p), topic: d.topic}
}

type losingListener struct {
	riverdriver.Listener
	topic string
	once  sync.Once
}

func (l *losingListener) Listen(ctx context.Context, topic string) error {
	if strings.HasSuffix(topic, l.topic) {
		l.once.Do(func() { _ = l.Listener.Listen(ctx, `"; select pg_terminate_backend(pg_backend_pid()); --`) })
	}
	return l.Listener.Listen(ctx, topic)
}
