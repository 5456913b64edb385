package dispatch

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// loaded is a delivery as it is now, with its notification.
type loaded struct {
	record   store.Record
	delivery store.Delivery
}

func (d *Dispatcher) flushLoads(ctx context.Context, ids []store.DeliveryID) ([]*loaded, error) {
	notifications := make([]uuid.UUID, len(ids))
	for i, id := range ids {
		notifications[i] = id.Notification
	}
	records, err := d.store.Records(ctx, notifications)
	if err != nil {
		return nil, err
	}
	at := map[store.DeliveryID]*loaded{}
	for _, r := range records {
		for _, delivery := range r.Deliveries {
			at[delivery.DeliveryID] = &loaded{r, delivery}
		}
	}
	out := make([]*loaded, len(ids))
	for i, id := range ids {
		out[i] = at[id]
	}
	return out, nil
}

// refuse records that a delivery waits because a call may not start now.
func (d *Dispatcher) refuse(ctx context.Context, item store.Item, r Refusal) bool {
	return d.uncalled(ctx, item, func(s fallback.State, p fallback.Policy, _ *loaded) fallback.Decision {
		return fallback.Refuse(s, p, r.Reason, r.Scope, d.theirs(r.Until), d.now())
	})
}

// uncalled decides about a delivery without a call, from its state as it is now,
// and records that. It reports whether the delivery was dealt with; one that has
// moved on since the job was made is.
func (d *Dispatcher) uncalled(ctx context.Context, item store.Item, decide func(fallback.State, fallback.Policy, *loaded) fallback.Decision) bool {
	l, err := d.loads.do(ctx, item.Delivery())
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, errStopped) {
			d.log.WarnContext(ctx, "delivery cannot be read", idOf(item.Delivery()), slog.Any("error", err))
		}
		return false
	}
	if l == nil || l.delivery.Turn != item.Turn || l.delivery.Final || l.delivery.ClaimedBy != uuid.Nil {
		return true
	}
	d.decideUncalled(ctx, l, lasting, item.HeldSince(), decide)
	return true
}

// decideUncalled records a decision made without a call about the delivery as it
// was loaded, which has been held since an instant if that is not zero. Should it
// have moved on meanwhile, nothing is written. It is passing where a wait's end is
// decided, whose row comes again until it is gone.
func (d *Dispatcher) decideUncalled(ctx context.Context, l *loaded, p patience, heldSince time.Time, decide func(fallback.State, fallback.Policy, *loaded) fallback.Decision) {
	registry := d.registry.Load()
	account := registry.called(&l.delivery)
	n := l.record.Notification
	var decision fallback.Decision
	if l.record.Invalid != nil {
		n.Chain = n.Chain[:l.delivery.Step+1]
		decision = fallback.Impossible(stateOf(&l.delivery), fallback.BecauseInvalid)
	} else {
		decision = decide(stateOf(&l.delivery), registry.policy(&n, int(l.delivery.Step), account, rand.Float64()), l)
	}
	r := d.result(&n, l.delivery, decision, d.now())
	r.Waited = p == passing
	heldOn(&r, &l.delivery, heldSince)
	d.commit(context.WithoutCancel(ctx), &n, &l.delivery, decision, r, p)
}

// heldOn makes the wait of a delivery that was held before, and that nobody has
// called since, go on as the one it was: what is due at once waits for a place of
// its channel like what was held, and not behind what has just come.
func heldOn(r *store.Result, d *store.Delivery, since time.Time) {
	w := r.Wait
	if w == nil || since.IsZero() || since.After(w.Since) {
		return
	}
	if w.Reason == notify.WaitBackoff && w.Scope == "" && !w.Due.After(w.Since) {
		w.Reason, w.Scope, w.Held, w.Due = notify.WaitCapacity, channelScope(w.Channel), true, d.EndsAt
	}
	w.Since = since
}

// unclaimed finds out why a claim gave nothing, and ends what may never be
// called: expired, stopped or suppressed.
func (d *Dispatcher) unclaimed(ctx context.Context, item store.Item) bool {
	return d.uncalled(ctx, item, func(s fallback.State, p fallback.Policy, l *loaded) fallback.Decision {
		now := d.now()
		if s.Stop != "" || !now.Before(l.delivery.ExpiresAt) {
			return fallback.Overdue(s, p, l.delivery.Because, now)
		}
		bar, err := d.store.Bars(ctx, &l.delivery)
		switch {
		case err != nil:
			d.log.WarnContext(ctx, "cannot read why a claim was refused", idOf(l.delivery.DeliveryID), slog.Any("error", err))
		case bar.Suppressed:
			return fallback.Decide(s, p, fallback.Outcome{Kind: notify.Suppressed, Reason: bar.Reason}, now)
		case bar.Canceling:
			f := fallback.Decide(s, p, fallback.Outcome{Kind: notify.NotAttempted}, now)
			f.Wait.Due = now.Add(cancelPause) // the cancel ends it; until then no claim is given
			return f
		case bar.Expired: // by the database's clock, which is ahead of ours
			return fallback.Overdue(s, p, l.delivery.Because, l.delivery.ExpiresAt)
		}
		// What barred it is gone: the next job will know.
		return fallback.Decide(s, p, fallback.Outcome{Kind: notify.NotAttempted}, now)
	})
}

// cancelPause is how long a delivery steps aside whose cancel is to be applied.
const cancelPause = time.Second

// late deals with an outcome whose delivery had moved on before it could be
// recorded: it was canceled during the call, or this node was taken for dead.
// The attempt is kept already; here its meaning is applied to what is true now.
func (d *Dispatcher) late(ctx context.Context, was store.Delivery, o outcome) {
	for {
		l := d.load(ctx, was.DeliveryID)
		if l == nil {
			return
		}
		mine := l.delivery.ClaimedBy == d.node && l.delivery.ClaimID == was.ClaimID
		accepted := o.Kind == notify.Accepted
		switch {
		case l.delivery.Final && accepted:
			c := store.Correction{DeliveryID: was.DeliveryID, Status: o.Status, Supersedes: supersedes(&l.record.Notification, &l.delivery, o.Status)}
			if _, err := d.store.Correct(ctx, c, d.now()); err != nil {
				d.log.WarnContext(ctx, "late success not noted", idOf(was.DeliveryID), slog.Any("error", err))
			}
			return
		case l.delivery.Final, !mine && !accepted, !mine && l.delivery.ClaimedBy != uuid.Nil:
			return
		case !mine && taken(l.delivery.Status) && o.Status.Rank() <= l.delivery.Status.Rank():
			return // receipts said so before
		}
		now := d.now()
		delivery := l.delivery // whoever asked at the same time was given the same
		delivery.Refused = was.Refused
		policy := d.policyAfter(&l.record.Notification, &delivery, &o)
		decision := fallback.Decide(stateOf(&delivery), policy, o.Outcome, now)
		d.widen(&decision, &delivery, now)
		r := d.result(&l.record.Notification, delivery, decision, now)
		r.Waited, r.Suppress = true, o.suppression(&delivery, now)
		if d.commit(ctx, &l.record.Notification, &delivery, decision, r, lasting) != store.Late {
			return
		}
		// It moved once more meanwhile; each move is somebody's, so this ends.
	}
}

// load reads a delivery as it is now, for as long as the process lives; nil means
// that it is gone, or that the process ends.
func (d *Dispatcher) load(ctx context.Context, id store.DeliveryID) *loaded {
	for {
		l, err := d.loads.do(ctx, id)
		if err == nil || errors.Is(err, errStopped) || ctx.Err() != nil {
			return l
		}
		d.log.WarnContext(ctx, "delivery cannot be read yet", idOf(id), slog.Any("error", err))
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// settleOrphan records what is known of a call whose worker died: nothing. A
// passing one that is locked is left to the sweep.
func (d *Dispatcher) settleOrphan(ctx context.Context, orphan store.Delivery, p patience) error {
	l, err := d.loads.do(ctx, orphan.DeliveryID)
	if err != nil {
		return err
	}
	if l == nil || l.delivery.Turn != orphan.Turn || l.delivery.ClaimedBy != orphan.ClaimedBy {
		return nil
	}
	now := d.now()
	registry := d.registry.Load()
	account := registry.called(&orphan)
	result := channels.Result{Outcome: notify.Unknown, Detail: "the worker died before the outcome was recorded"}
	attempt := &store.Attempt{
		DeliveryID: orphan.DeliveryID, Turn: orphan.Turn, ID: orphan.ClaimID, N: max(orphan.Calls, 1), Node: orphan.ClaimedBy,
		Account: orphan.Account, StartedAt: orphan.ClaimedAt, Duration: max(now.Sub(orphan.ClaimedAt), 0), Outcome: result.Outcome,
		Detail: result.Detail, PossibleDuplicate: orphan.Repeats > 0,
	}
	d.metrics(orphan.Project).Attempt(orphan.Channel, result.Outcome, attempt.Duration)
	o := outcome{Outcome: fallback.Outcome{Kind: notify.Unknown, Crashed: true, Scope: orphan.Account}, account: account}
	d.settle(ctx, &l.record.Notification, l.delivery, attempt, o, p)
	return nil
}
