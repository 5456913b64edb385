package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

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
func (d *Dispatcher) settle(ctx context.Context, n *notify.Notification, delivery store.Delivery, a *store.Attempt, o outcome) {
	now := d.cfg.Now()
	policy := d.registry.Load().policy(n, int(delivery.Step), o.account, rand.Float64())
	decision := fallback.Decide(stateOf(&delivery), policy, o.Outcome, now)
	r := d.result(n, delivery, decision, now)
	r.Attempt = a
	if o.suppress {
		r.Suppress = &store.Suppression{
			Project: delivery.Project, Channel: delivery.Channel, Address: delivery.Address, Reason: string(o.Kind),
			Source: a.Account, At: now,
		}
		if o.suppressFor > 0 {
			r.Suppress.Until = now.Add(o.suppressFor)
		}
	}
	if d.record(ctx, r) == store.Late {
		d.late(ctx, delivery, o)
		return
	}
	d.count(n, &delivery, decision, now)
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
			Attempts: f.Attempts, Throttles: f.Throttles, Crashes: f.Crashes, Repeats: f.Repeats,
		},
		Join: delivery.Targets > 1 || n.Mode == notify.All,
	}
	w := f.Wait
	switch {
	case f.Final:
		r.After.FinishedAt = now
	case f.Requeue:
		w = fallback.Wait{Reason: notify.WaitBackoff, Due: now}
		r.After.Status = notify.Waiting
		fallthrough
	default:
		r.Wait = &store.Wait{
			DeliveryID: delivery.DeliveryID, Turn: delivery.Turn + 1, Project: delivery.Project, Channel: delivery.Channel,
			Priority: delivery.Priority, Reason: w.Reason, Scope: w.Scope, Since: now, Due: w.Due,
		}
	}
	next := -1
	if f.MoveOn && n.Mode == notify.First && int(delivery.Step)+1 < len(n.Chain) {
		next = int(delivery.Step) + 1
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

// eventOf is the line that a decision adds to the notification's story. There is
// none where nothing changed that a caller can see.
func eventOf(delivery store.Delivery, f fallback.Decision, now time.Time) (store.Event, bool) {
	e := store.Event{At: now, ID: delivery.DeliveryID, Project: delivery.Project, Because: f.Because, Type: string(f.Status)}
	if f.Status == delivery.Status && f.Status != notify.Waiting {
		return e, false
	}
	if f.Status == notify.Waiting || f.Requeue {
		e.Type, e.Because = string(notify.Waiting), string(f.Wait.Reason)
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

// starts returns the deliveries of a step that becomes due now.
func (d *Dispatcher) starts(n *notify.Notification, step int, why string, now time.Time) []store.Start {
	return startsOf(d.registry.Load(), n, step, why, now)
}

// record hands a result to the recorder and waits for its fate for as long as
// the process lives.
func (d *Dispatcher) record(ctx context.Context, r store.Result) store.Fate {
	fate, err := d.records.do(ctx, r)
	if err != nil && store.Classify(err) == store.BadRow {
		d.log.ErrorContext(ctx, "a result could not be stored and is stored without its detail", idOf(r.DeliveryID), slog.Any("error", err))
		fate, err = d.records.do(ctx, plainest(r))
	}
	if err != nil {
		// The claim stays; when this node is gone the reaper settles it as unknown.
		if !errors.Is(err, errStopped) && ctx.Err() == nil {
			d.log.ErrorContext(ctx, "result lost", idOf(r.DeliveryID), slog.Any("error", err))
		}
		return store.Written
	}
	return fate
}

// plainest drops from a result every text that came from outside.
func plainest(r store.Result) store.Result {
	if r.Attempt != nil {
		a := *r.Attempt
		a.ProviderCode, a.Detail, a.HTTPStatus = "", "", 0
		r.Attempt = &a
	}
	r.Suppress = nil
	return r
}

func (d *Dispatcher) flushRecords(ctx context.Context, results []store.Result) ([]store.Fate, error) {
	return d.store.Record(ctx, results, d.join)
}

// join decides for a notification whose deliveries have a common say, from their
// state under lock: whether a step has ended without meeting its criterion, and
// whether all is over.
func (d *Dispatcher) join(r store.Record, touched []store.DeliveryID) store.Joined {
	var j store.Joined
	n, now := &r.Notification, d.cfg.Now()
	byStep := r.ByStep()
	last := 0
	for _, t := range touched {
		last = max(last, int(t.Step))
	}
	status, final := r.Overall()
	if !final {
		return j
	}
	next := last + 1
	stopped := !r.CanceledAt.IsZero() || !r.AcknowledgedAt.IsZero()
	if n.Mode == notify.First && !stopped && next < len(n.Chain) && len(byStep[next]) == 0 &&
		!n.Chain[last].Success.MetBy(notify.StepStatus(byStep[last])) && now.Before(n.ExpiresAt) {
		because := string(notify.StepStatus(byStep[last]))
		for _, delivery := range r.Deliveries {
			if int(delivery.Step) == last && delivery.Because != "" {
				because = delivery.Because
			}
		}
		j.Next = d.starts(n, next, "fallback: "+because, now)
		d.cfg.Metrics.Fallback(n.Chain[last].Channel, n.Chain[next].Channel, because)
		return j
	}
	j.Events = append(j.Events, finished(n, status, now))
	return j
}

// count tells the metrics what a decision of a single delivery meant.
func (d *Dispatcher) count(n *notify.Notification, delivery *store.Delivery, f fallback.Decision, now time.Time) {
	if f.Met && delivery.Calls <= 1 {
		d.cfg.Metrics.FirstDelivery(delivery.Channel, now.Sub(delivery.StartedAt))
	}
	if delivery.Targets > 1 || n.Mode == notify.All || !f.Final {
		return
	}
	if next := int(delivery.Step) + 1; f.MoveOn && next < len(n.Chain) {
		d.cfg.Metrics.Fallback(delivery.Channel, n.Chain[next].Channel, f.Because)
		return
	}
	d.cfg.Metrics.Finished(f.Status)
}
