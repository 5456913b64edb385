package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// unrecorded is the fate of a result that the end of the process overtook. Its
// claim stays; when this node is gone the reaper settles it as unknown.
const unrecorded store.Fate = -1

// record hands a result to the recorder and waits for its fate for as long as
// the process lives, whatever the database says: a result that is given up is a
// message that is sent again, or a delivery that nobody moves.
func (d *Dispatcher) record(ctx context.Context, r store.Result) store.Fate {
	for try := 0; ; try++ {
		fate, err := d.records.do(ctx, r)
		if err == nil {
			return fate
		}
		if errors.Is(err, errStopped) || ctx.Err() != nil {
			return unrecorded
		}
		if try == 0 {
			d.log.ErrorContext(ctx, "a result could not be stored and is tried again without its detail", idOf(r.DeliveryID), slog.Any("error", err))
			r = plainest(r)
		}
		select {
		case <-time.After(min(recordPause<<min(try, 16), recordPauseCap)):
		case <-ctx.Done():
		case <-d.records.done:
		}
	}
}

// Pauses between tries to store a result that the database refuses for reasons
// of its own.
const (
	recordPause    = 10 * time.Millisecond
	recordPauseCap = 10 * time.Second
)

// plainest drops from a result every text that came from outside.
func plainest(r store.Result) store.Result {
	if r.Attempt != nil {
		a := *r.Attempt
		a.ProviderCode, a.Detail, a.ProviderMessageID, a.HTTPStatus = "", "", "", 0
		r.Attempt = &a
	}
	if r.Wait != nil {
		w := *r.Wait
		w.Scope = ""
		r.Wait = &w
	}
	r.Suppress = nil
	return r
}

// flushRecords writes results, and counts what joining them meant once that is
// committed.
func (d *Dispatcher) flushRecords(ctx context.Context, results []store.Result) ([]store.Fate, error) {
	var counts []func()
	fates, err := d.store.Record(ctx, results, func(r store.Record, touched []store.DeliveryID) store.Joined {
		j, count := d.join(r, touched)
		counts = append(counts, count)
		return j
	})
	if err != nil {
		return nil, err
	}
	for _, count := range counts {
		count()
	}
	return fates, nil
}
