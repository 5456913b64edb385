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

// patience says what is done about a result that touches a row which somebody
// else has locked.
type patience bool

const (
	// lasting tries for as long as the process lives: nobody else knows the result.
	lasting patience = true
	// passing leaves it at that: what the result is about comes again by itself.
	passing patience = false
)

// record hands a result to the recorder and waits for its fate for as long as
// the process lives, whatever the database says: a result that is given up is a
// message that is sent again, or a delivery that nobody moves. Only a passing
// result may come back [store.Locked].
func (d *Dispatcher) record(ctx context.Context, r store.Result, p patience) store.Fate {
	recorder, refused := d.records, false
	for try := 0; ; try++ {
		fate, err := recorder.do(ctx, r)
		longest := lockedPauseCap
		switch {
		case err == nil && fate != store.Locked:
			return fate
		case errors.Is(err, errStopped) || ctx.Err() != nil:
			return unrecorded
		case err == nil || store.Classify(err) == store.Blocked:
			if p == passing {
				return store.Locked
			}
			// The others must not wait for it once more.
			recorder = d.locked
			d.sayLocked(ctx, r.DeliveryID)
		default:
			longest = recordPauseCap
			if !refused {
				d.log.ErrorContext(ctx, "a result could not be stored and is tried again without its detail", idOf(r.DeliveryID), slog.Any("error", err))
				r, refused = plainest(r), true
			}
		}
		select {
		case <-time.After(min(recordPause<<min(try, 16), longest)):
		case <-ctx.Done():
		case <-recorder.done:
		}
	}
}

// Pauses between tries to store a result that the database refuses for reasons
// of its own, or that has to wait for a row.
const (
	recordPause    = 10 * time.Millisecond
	recordPauseCap = 10 * time.Second
	lockedPauseCap = time.Second
)

// sayLocked logs that rows are locked, though not about each of them.
func (d *Dispatcher) sayLocked(ctx context.Context, id store.DeliveryID) {
	now := d.cfg.Now()
	last := d.saidLocked.Load()
	if last != nil && now.Sub(*last) < quietFor || !d.saidLocked.CompareAndSwap(last, &now) {
		return
	}
	d.log.WarnContext(ctx, "a delivery waits for a row that another database session has locked", idOf(id))
}

// plainest drops from a result every text that came from outside. A wait that a
// scope held is over at the instant at which that was expected to let it go.
func plainest(r store.Result) store.Result {
	if r.Attempt != nil {
		a := *r.Attempt
		a.ProviderCode, a.Detail, a.ProviderMessageID, a.HTTPStatus = "", "", "", 0
		r.Attempt = &a
	}
	if r.Wait != nil {
		w := *r.Wait
		if w.Scope = ""; w.Held {
			w.Held, w.Due = false, w.Until // nothing would let it go
		}
		r.Wait = &w
	}
	r.Suppress, r.Strike = nil, nil
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
