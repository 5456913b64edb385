package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Intervals of the loops.
const (
	wakeInterval   = 100 * time.Millisecond
	wakeLimit      = 500
	wakeRounds     = 4
	sweepInterval  = 30 * time.Second
	sweepSlice     = 20_000
	sweepSlices    = 10 // a round; a larger table takes several
	expireInterval = time.Minute
	expireBatch    = 1000
	beatInterval   = time.Second
)

// beatTrust is how long after a confirmed beat a node may start calls: less than
// any other node waits before it takes it for dead.
const beatTrust = 4 * time.Second

// pulse is when the node's last beat was confirmed, and since when no other node
// can have taken it for dead.
type pulse struct {
	at    atomic.Pointer[time.Time]
	since atomic.Pointer[time.Time]
	once  sync.Once
	first chan struct{} // closed by the first
}

func newPulse() *pulse { return &pulse{first: make(chan struct{})} }

// confirm notes that a beat which was sent at an instant was written by now. Only
// one goroutine may confirm.
func (p *pulse) confirm(sent, now time.Time) {
	if last := p.at.Load(); last == nil || now.Sub(*last) >= beatTrust {
		p.since.Store(&sent) // before it is beating again
	}
	p.at.Store(&sent)
	p.once.Do(func() { close(p.first) })
}

// beating reports whether the node may count on being seen alive.
func (p *pulse) beating(now time.Time) bool {
	at := p.at.Load()
	return at != nil && now.Sub(*at) < beatTrust
}

// holds reports whether what the node claimed at an instant is still its own: a
// claim whose answer came only after a silence may have been taken over in it.
func (p *pulse) holds(claimed, now time.Time) bool {
	if !p.beating(now) {
		return false
	}
	since := p.since.Load()
	return since != nil && !claimed.Before(*since)
}

// beat keeps the node alive in the eyes of the others until ctx ends, over a
// connection of its own that is made again when it breaks.
func (d *Dispatcher) beat(ctx context.Context, name string) {
	var link *store.NodeLink
	defer func() {
		if link == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatTrust)
		defer cancel()
		if err := link.Leave(ctx); err != nil {
			d.log.WarnContext(ctx, "node could not sign off", slog.Any("error", err))
		}
		_ = link.Close(ctx)
	}()
	once := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, beatTrust)
		defer cancel()
		sent := d.cfg.Now() // before the round trip: the beat is at least as young
		var err error
		if link == nil {
			if link, err = d.store.LinkNode(ctx, d.node, name); err != nil {
				return err
			}
		}
		if err := link.Beat(ctx); err != nil {
			_ = link.Close(ctx)
			link = nil
			return err
		}
		confirmed := d.cfg.Now()
		d.alive.confirm(sent, confirmed)
		d.skew.measure(link.Clock(), sent, confirmed)
		return nil
	}
	d.every(ctx, beatInterval, "heartbeat", once)
}

// wake moves what is due into the queue, and what is held as far as there is
// room, and decides the timers.
func (d *Dispatcher) wake(ctx context.Context) error {
	if !d.mayCall(d.cfg.Now()) {
		return nil
	}
	// So many rounds and no more: however much is due, what is held must not wait
	// for all of it. Nor for a timer that cannot be decided.
	var failed error
	for range wakeRounds {
		woken, err := d.wakeDue(ctx)
		if err == nil {
			err = d.timers(ctx, woken.Timers)
		}
		if failed = err; err != nil || woken.Moved+woken.Kept+len(woken.Timers) < wakeLimit {
			break
		}
	}
	return errors.Join(failed, d.wakeHeld(ctx))
}

// wakeDue moves some of what is due, during which the queue is not counted.
func (d *Dispatcher) wakeDue(ctx context.Context) (store.Woken, error) {
	d.counting.Lock()
	defer d.counting.Unlock()
	return d.store.Wake(ctx, wakeLimit, d.keepBack)
}

// timers decides all of them at once, so that they share their reads and writes.
func (d *Dispatcher) timers(ctx context.Context, waits []store.Wait) error {
	errs := make([]error, len(waits))
	var wg sync.WaitGroup
	for i, w := range waits {
		wg.Go(func() { errs[i] = d.safely(ctx, "timer", func() error { return d.timer(ctx, w) }) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// timer decides what it means that a wait for knowledge is over. Where a provider
// can be asked first, that goes on beside the waker; without a place for it the
// timer comes again.
func (d *Dispatcher) timer(ctx context.Context, w store.Wait) error {
	l, err := d.loads.do(ctx, w.DeliveryID)
	if err != nil {
		return fmt.Errorf("read delivery: %w", err)
	}
	if l == nil {
		return nil
	}
	if l.delivery.Turn != w.Turn || l.delivery.Final {
		return d.store.ForgetWait(ctx, w.DeliveryID, w.Turn) // or it would come again for ever
	}
	if w.Reason == notify.WaitReconcile && d.asks(l) {
		d.lookups.start(func() {
			_ = d.safely(ctx, "look-up", func() error { d.reconcile(ctx, l); return nil }) // the timer comes again
		})
		return nil
	}
	d.decideUncalled(ctx, l, passing, time.Time{}, func(s fallback.State, p fallback.Policy, _ *loaded) fallback.Decision {
		return fallback.Due(s, p, w.Reason, latest(d.now(), w.Due)) // the database says that it is over
	})
	return nil
}

// paused returns the channels that are paused, as last read.
func (d *Dispatcher) paused() map[notify.Channel]bool {
	if p := d.pauses.Load(); p != nil {
		return *p
	}
	return nil
}

func (d *Dispatcher) readPauses(ctx context.Context) error {
	pauses, err := d.store.Pauses(ctx)
	if err != nil {
		return err
	}
	paused := make(map[notify.Channel]bool, len(pauses))
	for _, p := range pauses {
		paused[p.Channel] = true
	}
	d.pauses.Store(&paused)
	return nil
}

// reap takes over what dead nodes left.
func (d *Dispatcher) reap(ctx context.Context) error {
	if !d.alive.beating(d.cfg.Now()) {
		return nil // whoever is cut off itself judges nobody
	}
	dead, err := d.store.DeadNodes(ctx)
	if err != nil {
		return err
	}
	for _, node := range dead {
		if node == d.node {
			continue
		}
		orphans, err := d.store.DeadWork(ctx, node)
		if err != nil {
			return err
		}
		for _, o := range orphans {
			if err := d.settleOrphan(ctx, o, passing); err != nil {
				return err
			}
		}
		requeued, err := d.store.Bury(ctx, node)
		if err != nil {
			return err
		}
		d.log.WarnContext(ctx, "took over a dead node's work", slog.String("node", node.String()),
			slog.Int("calls_with_unknown_outcome", len(orphans)), slog.Int("requeued", requeued))
	}
	return nil
}

// sweep walks all deliveries and puts right what nothing would move.
func (d *Dispatcher) sweep(ctx context.Context) error {
	if !d.alive.beating(d.cfg.Now()) {
		return nil
	}
	for range sweepSlices {
		swept, err := d.store.Sweep(ctx, d.swept, sweepSlice, d.cfg.Now())
		if err != nil {
			return err
		}
		for _, o := range swept.Orphans {
			if err := d.settleOrphan(ctx, o, passing); err != nil {
				return err
			}
		}
		if swept.Requeued+swept.Rewaited+len(swept.Orphans) > 0 {
			d.log.WarnContext(ctx, "sweep found deliveries that nothing would have moved", slog.Int("requeued", swept.Requeued),
				slog.Int("given_a_wait", swept.Rewaited), slog.Int("orphans", len(swept.Orphans)))
		}
		if d.swept = swept.Next; d.swept == (uuid.UUID{}) {
			return nil // at the end; the next round begins anew
		}
	}
	return nil
}

// expire deletes what is past retention, in small batches.
func (d *Dispatcher) expire(ctx context.Context) error {
	if err := d.store.ForgetScopes(ctx, d.cfg.Now().Add(-d.cfg.KeepFinal)); err != nil {
		return err
	}
	now := d.cfg.Now()
	_, err := d.store.Expire(ctx, now.Add(-d.cfg.KeepFinal), now, expireBatch)
	return err
}
