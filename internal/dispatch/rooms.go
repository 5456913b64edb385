package dispatch

import (
	"context"
	"strings"
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

// wakeHeld moves held waits as far as their scopes have room.
func (d *Dispatcher) wakeHeld(ctx context.Context) error {
	holds, err := d.store.Holds(ctx, d.heldAt, maxHolds)
	if err != nil {
		return err
	}
	if d.heldAt = (store.Hold{}); len(holds) == maxHolds {
		d.heldAt = holds[len(holds)-1] // the next round goes on there
	}
	if len(holds) == 0 {
		return nil
	}
	rooms := d.rooms(holds, d.cfg.Now())
	if len(rooms) == 0 {
		return nil
	}
	for _, r := range rooms {
		if _, shared := d.shareRoom(r.Hold); shared {
			d.shares.add(store.Share{Project: r.Project, Channel: r.Channel, Priority: r.Priority}, r.N)
		}
	}
	_, err = d.store.WakeHeld(ctx, rooms)
	return err
}

// rooms decides how many waits of each group may move: as many as their scope
// and their channel have room for, critical ones first, and within a priority the
// same share for every project. holds are by scope, priority and project.
func (d *Dispatcher) rooms(holds []store.Hold, now time.Time) []store.Room {
	var out []store.Room
	left := map[notify.Channel]int{}
	for len(holds) > 0 {
		if n, shared := d.shareRoom(holds[0]); shared {
			if n > 0 {
				out = append(out, store.Room{Hold: holds[0], N: n})
			}
			holds = holds[1:]
			continue
		}
		scope, channel := holds[0].Scope, holds[0].Channel
		n := 1
		for n < len(holds) && holds[n].Scope == scope {
			n++
		}
		if _, ok := left[channel]; !ok {
			left[channel] = d.free(channel)
		}
		room := min(d.room(scope, channel, now), left[channel])
		for _, r := range deal(holds[:n], room) {
			left[channel] -= r.N
			out = append(out, r)
		}
		holds = holds[n:]
	}
	return out
}

// free is how many calls of a channel could start.
func (d *Dispatcher) free(c notify.Channel) int {
	n, _ := d.flights.free(c, "", d.registry.Load().Channel(c).MaxInFlight)
	return min(n, wakeLimit)
}

// room is how many calls of a scope could start within a round.
func (d *Dispatcher) room(scope string, c notify.Channel, now time.Time) int {
	if d.paused()[c] {
		return 0
	}
	if scope == channelScope(c) {
		return d.free(c)
	}
	if several, ok := store.EachOf(scope); ok {
		n := 0
		for _, s := range several {
			n += d.room(s, c, now)
		}
		return n
	}
	_, n := d.flights.free(c, scope, d.registry.Load().Channel(c).MaxInFlight)
	if !strings.Contains(scope, "/") && len(d.registry.Load().Channel(c).Accounts) < 2 {
		n = wakeLimit // the account is the whole channel: see destinationOf
	}
	if of := d.cfg.Admission.Room(scope, d.cfg.WakeEvery, now); of != resilience.Unlimited {
		n = min(n, of)
	}
	return n
}

// deal shares out room over groups that are in order of priority. Each priority
// is offered three quarters of what those above it left, and the last one all of
// it, since nobody has counted how many waits a group has. What is not taken is
// dealt in the next round.
func deal(holds []store.Hold, room int) []store.Room {
	var out []store.Room
	for len(holds) > 0 && room > 0 {
		n := 1
		for n < len(holds) && holds[n].Priority == holds[0].Priority {
			n++
		}
		mine := room
		if n < len(holds) {
			mine = max(room*3/4, 1)
		}
		for i, h := range holds[:n] {
			share := mine / n
			if i < mine%n {
				share++
			}
			if share > 0 {
				out = append(out, store.Room{Hold: h, N: share})
			}
		}
		room -= mine
		holds = holds[n:]
	}
	return out
}
