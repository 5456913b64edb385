package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// A panic in what the dispatcher does beside its deliveries is a fault of one
// round: it is logged with its stack, and the task goes on with the next round
// after a pause. To end the process would take every call under way with it, on
// every node that meets the same row.

// errPanicked is what became of a round that panicked.
var errPanicked = errors.New("panicked")

// panicPause is how long a task rests after a panic.
const panicPause = 5 * time.Second

// safely runs a round of a task and turns its panic into an error. What the panic
// says is not logged, since it may hold anything.
func (d *Dispatcher) safely(ctx context.Context, task string, do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			d.log.ErrorContext(ctx, "panic in a background task", slog.String("task", task), slog.String("kind", fmt.Sprintf("%T", p)),
				slog.String("stack", string(debug.Stack())))
			err = errPanicked
		}
	}()
	return do()
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
