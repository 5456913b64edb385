package dispatch

import (
	"context"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// maxHolds bounds how many groups of held waits are looked at in one round.
const maxHolds = 5000

// heldBy reports whether a wait for this reason moves when its scope has room,
// rather than at an instant.
func heldBy(reason notify.WaitReason) bool {
	switch reason {
	case notify.WaitThrottled, notify.WaitBreakerOpen, notify.WaitPaused, notify.WaitCapacity:
		return true
	case notify.WaitScheduled, notify.WaitBackoff, notify.WaitBudget, notify.WaitAccountRejected, notify.WaitReceipt, notify.WaitReconcile,
		notify.WaitQuietHours:
	}
	return false
}

// wakeHeld moves held waits as far as their scopes have room, and notes what has
// to stay: whatever arrives later must not get ahead of it.
func (d *Dispatcher) wakeHeld(ctx context.Context) error {
	holds, err := d.store.Holds(ctx, d.heldAt, maxHolds)
	if err != nil {
		return err
	}
	if d.heldAt = (store.Hold{}); len(holds) == maxHolds {
		d.heldAt = holds[len(holds)-1] // the next round goes on there
	}
	deal := newDeal(d, d.cfg.Now())
	for _, h := range holds {
		deal.add(h)
	}
	var counts []int
	if asked := deal.ask(); len(asked) > 0 {
		if counts, err = d.store.CountRooms(ctx, asked); err != nil {
			return err
		}
	}
	rooms := deal.out(counts)
	d.flights.look(deal.behind)
	d.shares.look(deal.over, d.cfg.Now())
	if len(rooms) == 0 {
		return nil
	}
	d.counting.Lock()
	defer d.counting.Unlock()
	for _, r := range rooms {
		if d.shares.add(shareOf(r.Hold), r.N, d.cfg.Now()); !shareHolds(r.Hold) {
			d.flights.letGo(r.Channel, r.Scope, r.Priority, r.N)
		}
	}
	_, err = d.store.WakeHeld(ctx, rooms)
	return err
}

// room is how many deliveries held by a scope could be let go within a round.
// places says that nothing but places for calls limits them.
func (d *Dispatcher) room(scope string, c notify.Channel, now time.Time) (n int, places bool) {
	switch {
	case d.paused()[c]:
		return 0, false
	case scope == shareScope(c):
		return wakeLimit * wakeRounds, false
	}
	n = wakeLimit
	if b := d.registry.Load().bound(c, scope); b.places > 0 {
		n = min(d.flights.room(b), wakeLimit)
	}
	if scope == channelScope(c) {
		return n, true
	}
	if several, ok := store.EachOf(scope); ok {
		n = 0
		for _, s := range several {
			of, _ := d.room(s, c, now)
			n += of
		}
		return n, false
	}
	if of := d.cfg.Admission.Room(scope, d.cfg.WakeEvery, now); of != resilience.Unlimited {
		return min(n, of), false
	}
	return n, true
}
