package dispatch

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// outcome is an attempt's outcome with what is recorded beside the decision.
type outcome struct {
	fallback.Outcome
	account     *Account
	suppress    bool
	suppressFor time.Duration
}

// settle decides what a call's outcome leads to and records both.
func (d *Dispatcher) settle(ctx context.Context, n *notify.Notification, delivery store.Delivery, a *store.Attempt, o outcome, p patience) {
	now := d.now()
	policy := d.policyAfter(n, &delivery, &o)
	decision := fallback.Decide(stateOf(&delivery), policy, o.Outcome, now)
	d.widen(&decision, &delivery, now)
	r := d.result(n, delivery, decision, now)
	r.Attempt = a
	r.Suppress = o.suppression(&delivery, now)
	if d.commit(ctx, n, &delivery, decision, r, p) == store.Late {
		d.late(ctx, delivery, o)
	}
}

// commit records what a decision leads to and counts it once that is written.
func (d *Dispatcher) commit(ctx context.Context, n *notify.Notification, delivery *store.Delivery, f fallback.Decision, r store.Result, p patience) store.Fate {
	fate := d.record(ctx, r, p)
	if fate == store.Written {
		d.count(n, delivery, f, r.Join)
	}
	return fate
}

// suppression is the entry on the suppression list that the outcome asks for, if
// it does.
func (o outcome) suppression(d *store.Delivery, now time.Time) *store.Suppression {
	if !o.suppress {
		return nil
	}
	s := &store.Suppression{
		Project: d.Project, Channel: d.Channel, Address: d.Address, Reason: string(o.Kind), Source: d.Account, At: now,
	}
	if o.suppressFor > 0 {
		s.Until = now.Add(o.suppressFor)
	}
	return s
}

// strikeOf is what counts against the address of a delivery that could not reach it.
func strikeOf(d *store.Delivery, now time.Time) *store.Strike {
	return &store.Strike{Project: d.Project, Channel: d.Channel, Address: d.Address, Account: d.Account, At: now}
}

// stateOf is the part of a delivery that decisions are made from.
func stateOf(d *store.Delivery) fallback.State {
	return fallback.State{
		Status: d.Status, Attempts: int(d.Attempts), Throttles: int(d.Throttles), Crashes: int(d.Crashes), Repeats: int(d.Repeats),
		Ends: d.EndsAt, Expires: d.ExpiresAt, Stop: d.Stop,
	}
}

// result turns a decision into what is written. It holds the next step's
// deliveries where this delivery alone decides; where others have a say, join
// finds them under lock.
func (d *Dispatcher) result(n *notify.Notification, delivery store.Delivery, f fallback.Decision, now time.Time) store.Result {
	r := store.Result{
		DeliveryID: delivery.DeliveryID, Turn: delivery.Turn, Project: delivery.Project,
		After: store.After{
			Status: f.Status, Final: f.Final, Because: f.Because,
			// A provider that asks for a second's quiet all day long outdoes a smallint.
			Attempts: f.Attempts, Throttles: min(f.Throttles, math.MaxInt16), Crashes: f.Crashes, Repeats: f.Repeats,
		},
	}
	if delivery.ClaimedBy != uuid.Nil {
		r.Claim = delivery.ClaimID
	}
	next := -1
	if f.MoveOn && n.Mode == notify.First && int(delivery.Step)+1 < len(n.Chain) {
		next = int(delivery.Step) + 1
	}
	r.Join = shared(n, &delivery) || f.Final && next < 0 && outdone(n, &delivery, f)
	w := f.Wait
	switch {
	case f.Final:
		r.After.FinishedAt = now
		if !taken(f.Status) && fallback.Unreachable(f.Because) {
			r.Strike = strikeOf(&delivery, now)
		}
	case f.Requeue:
		w = fallback.Wait{Reason: notify.WaitBackoff, Due: now}
		r.After.Status = notify.Waiting
		fallthrough
	default:
		r.Wait = &store.Wait{
			DeliveryID: delivery.DeliveryID, Turn: delivery.Turn + 1, Project: delivery.Project, Channel: delivery.Channel,
			Priority: delivery.Priority, Reason: w.Reason, Scope: w.Scope, Since: now, Until: w.Due, Due: w.Due,
		}
		switch {
		case f.Pass:
			r.Wait.Scope = store.RefusedBy(append(slices.Clone(delivery.Refused), delivery.Account))
		case w.Scope != "" && heldBy(w.Reason):
			r.Wait.Held, r.Wait.Due = true, delivery.EndsAt
		}
		if w.Reason == notify.WaitReceipt && d.polls(&delivery) {
			r.Wait.AskAt = fallback.PollAt(now, w.Due, now)
		}
	}
	if !r.Join && next >= 0 {
		r.Next = d.starts(n, next, "fallback: "+f.Because, now)
	}
	if e, ok := eventOf(delivery, f, now); ok {
		e.Final = f.Final && next < 0 && !r.Join
		r.Events = append(r.Events, e)
	} else if f.Final && next < 0 && !r.Join {
		r.Events = append(r.Events, finished(n, f.Status, now))
	}
	return r
}

// shared reports whether other deliveries have a say in what a delivery's end
// means.
func shared(n *notify.Notification, d *store.Delivery) bool {
	return d.Targets > 1 || n.Mode == notify.All
}

// outdone reports whether an earlier step of the chain may have come further than
// the delivery that ends it, so that the notification's status is not its own:
// accepted, say, but not delivered in time, or failed rather than suppressed.
func outdone(n *notify.Notification, d *store.Delivery, f fallback.Decision) bool {
	if d.Step == 0 {
		return false
	}
	if f.Stop == fallback.BecauseSuperseded {
		return true
	}
	return !f.Met || slices.ContainsFunc(n.Chain[:d.Step], func(s notify.Step) bool { return !s.Success.MetBy(notify.Sent) })
}

// eventOf is the line that a decision adds to the notification's story. There is
// none where nothing changed that a caller can see.
func eventOf(delivery store.Delivery, f fallback.Decision, now time.Time) (store.Event, bool) {
	e := store.Event{At: now, ID: delivery.DeliveryID, Project: delivery.Project, Because: f.Because, Type: string(f.Status), Until: f.Wait.Due}
	if f.Status == delivery.Status && f.Status != notify.Waiting {
		return e, false
	}
	if f.Status == notify.Waiting || f.Requeue {
		e.Type, e.Because = string(notify.Waiting), string(f.Wait.Reason)
		if f.Requeue {
			e.Because = string(notify.WaitBackoff)
		}
		// Stepping aside for a moment is no news, and there may be much of it.
		if f.Wait.Reason == notify.WaitCapacity {
			return e, false
		}
	}
	return e, true
}

// EventFinished is the last event of a notification where the last delivery's own
// event does not say so.
const EventFinished = "finished"

func finished(n *notify.Notification, s notify.Status, now time.Time) store.Event {
	return store.Event{
		At: now, ID: store.DeliveryID{Notification: n.ID}, Whole: true, Project: n.Project, Type: EventFinished, Because: string(s), Final: true,
	}
}
