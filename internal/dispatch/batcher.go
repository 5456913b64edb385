package dispatch

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// errStopped is what waits on a batcher that has stopped.
var errStopped = errors.New("dispatcher is stopping")

// batcher lets many goroutines share transactions: what waits is written
// together (group commit). A flush that fails because of what is in it is split
// until the offender stands alone; one that fails because the database is away
// is tried again, so flush must be safe to repeat.
type batcher[T, R any] struct {
	// flush writes items and returns one result for each, in order.
	flush func(ctx context.Context, items []T) ([]R, error)
	// max is the most items of one flush.
	max int
	// linger is how long a flush waits for company after its first item, unless the
	// flusher's last one had fewer items than busy: alone there is nobody to wait for.
	linger time.Duration
	busy   int
	// patience is how long a transient failure is retried; 0 means as long as the
	// process lives.
	patience time.Duration
	// same, if not nil, names what no two items of one flush may share.
	same func(T) any

	in   chan *request[T, R]
	done chan struct{}
	wg   *sync.WaitGroup
}

type request[T, R any] struct {
	item  T
	reply chan reply[R]
}

type reply[R any] struct {
	result R
	err    error
}

// newBatcher readies b: what is handed in before start waits for it.
func newBatcher[T, R any](b batcher[T, R]) *batcher[T, R] {
	b.in, b.done, b.wg = make(chan *request[T, R], b.max), make(chan struct{}), new(sync.WaitGroup)
	return &b
}

// start runs n flushers until ctx ends and everything handed in before is
// written.
func (b *batcher[T, R]) start(ctx context.Context, n int) {
	for range n {
		b.wg.Go(func() { b.run(ctx) })
	}
	go func() { b.wg.Wait(); close(b.done) }()
}

// wait blocks until all flushers have ended.
func (b *batcher[T, R]) wait() { <-b.done }

// do hands in an item and waits for its result. When ctx ends first, the item
// may be written all the same.
func (b *batcher[T, R]) do(ctx context.Context, item T) (R, error) {
	var none R
	r := &request[T, R]{item, make(chan reply[R], 1)}
	select {
	case b.in <- r:
	case <-ctx.Done():
		return none, ctx.Err()
	case <-b.done:
		return none, errStopped
	}
	select {
	case a := <-r.reply:
		return a.result, a.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-b.done:
		select {
		case a := <-r.reply:
			return a.result, a.err
		default:
			return none, errStopped
		}
	}
}

func (b *batcher[T, R]) run(ctx context.Context) {
	var held []*request[T, R]
	for last := 0; ; {
		batch := held
		if len(batch) == 0 {
			select {
			case r := <-b.in:
				batch = append(batch, r)
			case <-ctx.Done():
				select {
				case r := <-b.in: // handed in before the end
					batch = append(batch, r)
				default:
					return
				}
			}
		}
		batch = b.gather(ctx, batch, last >= b.busy)
		last = len(batch)
		batch, held = b.part(batch)
		b.write(ctx, batch)
	}
}

// gather adds what else waits to batch, and what comes while it lingers.
func (b *batcher[T, R]) gather(ctx context.Context, batch []*request[T, R], linger bool) []*request[T, R] {
	var late <-chan time.Time
	if linger && b.linger > 0 && ctx.Err() == nil {
		timer := time.NewTimer(b.linger)
		defer timer.Stop()
		late = timer.C
	}
	for len(batch) < b.max {
		if late == nil {
			select {
			case r := <-b.in:
				batch = append(batch, r)
				continue
			default:
				return batch
			}
		}
		select {
		case r := <-b.in:
			batch = append(batch, r)
		case <-late:
			late = nil
		}
	}
	return batch
}

// part holds back items that name the same thing as an earlier one.
func (b *batcher[T, R]) part(batch []*request[T, R]) (now, later []*request[T, R]) {
	if b.same == nil {
		return batch, nil
	}
	seen := make(map[any]bool, len(batch))
	now = make([]*request[T, R], 0, len(batch))
	for _, r := range batch {
		if k := b.same(r.item); seen[k] {
			later = append(later, r)
		} else {
			seen[k] = true
			now = append(now, r)
		}
	}
	return now, later
}

// write flushes batch and replies to every request of it.
func (b *batcher[T, R]) write(ctx context.Context, batch []*request[T, R]) {
	items := make([]T, len(batch))
	for i, r := range batch {
		items[i] = r.item
	}
	results, err := b.persist(ctx, items)
	switch {
	case err == nil:
		for i, r := range batch {
			r.reply <- reply[R]{result: results[i]}
		}
	case !transient(err) && len(batch) > 1:
		half := len(batch) / 2
		b.write(ctx, batch[:half])
		b.write(ctx, batch[half:])
	default:
		for _, r := range batch {
			r.reply <- reply[R]{err: err}
		}
	}
}

// persist flushes items, again and again while the database is away.
func (b *batcher[T, R]) persist(ctx context.Context, items []T) ([]R, error) {
	begun := time.Now()
	for try := 0; ; try++ {
		results, err := b.once(ctx, items)
		if err == nil || !transient(err) {
			return results, err
		}
		if b.patience > 0 && time.Since(begun) > b.patience || b.patience == 0 && stopping(ctx, begun) {
			return nil, err
		}
		pause(min(time.Second, 10*time.Millisecond<<min(try, 7)))
	}
}

// transient reports whether the same flush may succeed later.
func transient(err error) bool {
	return store.Classify(err) == store.Transient
}

// flushLimit bounds one flush: a connection that was cut without a word would
// otherwise hold everything up until the kernel gives it up.
const flushLimit = 30 * time.Second

// once flushes items one time. A flush that has begun is not broken off by the
// end of the service.
func (b *batcher[T, R]) once(ctx context.Context, items []T) ([]R, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
	defer cancel()
	return b.flush(ctx, items)
}

// lastStand is how long results may still wait for the database after the
// service was told to stop.
const lastStand = 20 * time.Second

func stopping(ctx context.Context, begun time.Time) bool {
	return ctx.Err() != nil && time.Since(begun) > lastStand
}

// pause waits for about d; a flusher has nothing else to do meanwhile.
func pause(d time.Duration) {
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	<-timer.C
}
