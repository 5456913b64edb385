package dispatch

import (
	"context"
	"errors"

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

// Sweep looks at every delivery now.
func (d *Dispatcher) Sweep(ctx context.Context) error { return d.sweep(ctx) }
