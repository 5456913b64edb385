package dispatch

import (
	"context"
	"log/slog"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

const (
	pollInterval = time.Second
	// pollAgain is after how long a poll that could not be made or was not answered
	// is tried once more.
	pollAgain = 30 * time.Second
)

// poller returns the provider's poller, nil if it has none.
func (a *Account) poller() channels.Poller {
	p, _ := a.Provider.(channels.Poller)
	return p
}

// polls reports whether the provider that a delivery went through can be asked
// what became of its message.
func (d *Dispatcher) polls(delivery *store.Delivery) bool {
	a := d.registry.Load().named(delivery.Channel, delivery.Account)
	return a != nil && a.poller() != nil
}

// poll asks providers for receipts that may have been lost, as far as there are
// places. What they say is taken in like a callback.
func (d *Dispatcher) poll(ctx context.Context) error {
	free := d.lookups.free()
	if free == 0 || !d.mayCall(d.cfg.Now()) {
		return nil
	}
	polls, err := d.store.TakePolls(ctx, free)
	if err != nil {
		return err
	}
	for _, p := range polls {
		d.lookups.start(func() {
			_ = d.safely(ctx, "ask for a receipt", func() error { d.askFor(ctx, p); return nil }) // its turn comes again
		})
	}
	return nil
}

// askFor asks once for one receipt. Whatever prevents it, the message's turn comes
// again.
func (d *Dispatcher) askFor(ctx context.Context, p store.Poll) {
	l, err := d.loads.do(ctx, p.DeliveryID)
	if err != nil || l == nil || l.record.Invalid != nil || l.delivery.Turn != p.Turn || l.delivery.Final {
		return // it has moved on, or the lease ends
	}
	a := d.registry.Load().named(l.delivery.Channel, p.Account)
	next := fallback.PollAt(p.Since, p.Due, d.now())
	switch {
	case a == nil || a.poller() == nil:
		next = time.Time{} // it is not configured any more
	default:
		r, ok := d.askOnce(ctx, l, a, p)
		if again := d.now().Add(pollAgain); !ok && (next.IsZero() || again.Before(next)) && again.Before(p.Due) {
			next = again
		}
		if ok && r.Status != "" {
			if _, err := d.store.AddReceipts(ctx, []store.Receipt{d.polled(p, r)}); err != nil {
				d.log.WarnContext(ctx, "a receipt that was asked for could not be kept", idOf(p.DeliveryID), slog.Any("error", err))
				return
			}
		}
	}
	if err := d.store.Polled(ctx, p, next); err != nil && ctx.Err() == nil {
		d.log.WarnContext(ctx, "cannot note that a receipt was asked for", idOf(p.DeliveryID), slog.Any("error", err))
	}
}

// polled is a receipt as it is kept. The provider was asked for this one message,
// so whatever it answers is of this attempt.
func (d *Dispatcher) polled(p store.Poll, r channels.Receipt) store.Receipt {
	r = r.Clean()
	return store.Receipt{
		DeliveryID: p.DeliveryID, Attempt: p.Attempt, Account: p.Account, MessageID: p.MessageID, Status: r.Status, Outcome: r.Outcome,
		Code: r.Code, Detail: r.Detail, At: r.At, ReceivedAt: d.now(), Suppress: r.Suppress, SuppressFor: r.SuppressFor,
	}
}

// askOnce makes the one call of a poll, if it is admitted; ok says that it was
// answered.
func (d *Dispatcher) askOnce(ctx context.Context, l *loaded, a *Account, p store.Poll) (r channels.Receipt, ok bool) {
	var scopes []string
	targets := l.record.Notification.To.Targets(l.delivery.Channel)
	if lookup := a.lookup(); lookup != nil && int(p.Target) < len(targets) {
		scopes = lookup.LookupScopes(targets[p.Target])
	}
	made := d.aside(ctx, a, l.delivery.Channel, scopes, func(ctx context.Context) (call channels.Result) {
		defer func() {
			if v := recover(); v != nil {
				d.panicked(ctx, p.DeliveryID, v)
				call = channels.Result{Outcome: notify.NotAttempted, Detail: "adapter panicked"}
			}
			ok = call.Outcome == notify.Accepted
		}()
		r, call = a.poller().Poll(ctx, p.MessageID)
		return call
	})
	return r, made && ok
}

// aside makes a call that sends nothing, if it may be made now. It goes through
// the gates and breakers of what sends, and is no evidence for them.
func (d *Dispatcher) aside(ctx context.Context, a *Account, c notify.Channel, scopes []string, call func(context.Context) channels.Result) bool {
	now := d.cfg.Now()
	if d.paused()[c] || !d.mayCall(now) {
		return false
	}
	ticket, refusal := d.cfg.Admission.Admit(ctx, a, scopes, lookUp, now)
	if refusal != nil {
		return false
	}
	started := d.cfg.Now()
	until, ok := ticket.Start(started)
	if !ok {
		ticket.Withdraw(ctx, started)
		return false
	}
	deadline := started.Add(min(a.Timeout, lookupTimeout))
	if !until.IsZero() && until.Before(deadline) {
		deadline = until
	}
	bounded, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	told := call(bounded)
	ended := d.cfg.Now()
	ticket.Report(context.WithoutCancel(ctx), besides(told.Clean()), ended.Sub(started), ended)
	return true
}
