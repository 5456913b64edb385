package dispatch

import (
	"context"

	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// panicked notes a panic on a delivery's way.
func (d *Dispatcher) panicked(ctx context.Context, id store.DeliveryID, p any) {
	d.guard.Caught(ctx, panics.Delivery, "delivery", p, idOf(id))
}

// safely is a round of a task that is nobody's loop.
func (d *Dispatcher) safely(ctx context.Context, task string, do func() error) error {
	return d.guard.Do(ctx, panics.Background, task, do)
}

// guarded is a flush that survives its panics. The batcher then splits what it
// holds, until the item that it panics of stands alone.
func guarded[T, R any](d *Dispatcher, task string, flush func(context.Context, []T) ([]R, error)) func(context.Context, []T) ([]R, error) {
	return func(ctx context.Context, items []T) (out []R, err error) {
		err = d.safely(ctx, task, func() (err error) {
			out, err = flush(ctx, items)
			return err
		})
		return out, err
	}
}
