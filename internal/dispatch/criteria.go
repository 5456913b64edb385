package dispatch

import (
	"context"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// blind reports whether the step of a claimed delivery asks for what can never be
// told of it, so that nothing should be sent: it would be taken for undelivered at
// once, and the person be told twice. The API refuses such a chain; what was
// enqueued in SQL, or before the accounts changed, is seen here first. Where only
// the account that is left cannot tell, and no step follows, sending is better than
// nothing.
func (d *Dispatcher) blind(c *store.Claimed, a *Account) bool {
	n := &c.Notification
	success := n.Chain[c.Step].Success
	if success.Observable(a.Provider.Info().MaxObservable) {
		return false
	}
	last := n.Mode == notify.All || int(c.Step) == len(n.Chain)-1
	return !last || !d.registry.Load().observes(&c.Delivery, success)
}

// observes reports whether one of the accounts that may serve a delivery can tell
// what a criterion asks for.
func (r *Registry) observes(delivery *store.Delivery, success notify.Criterion) bool {
	for _, a := range r.channels[delivery.Channel].Accounts {
		info := a.Provider.Info()
		if (delivery.Pinned == "" || info.Account == delivery.Pinned) && a.serves(delivery.Project, delivery.Provider) && success.Observable(info.MaxObservable) {
			return true
		}
	}
	return false
}

// unobservable ends a delivery that is [Dispatcher.blind].
func (d *Dispatcher) unobservable(ctx context.Context, c *store.Claimed) {
	decision := fallback.Impossible(stateOf(&c.Delivery), fallback.BecauseUnobservable)
	r := d.result(&c.Notification, c.Delivery, decision, d.now())
	r.Uncalled = true
	d.commit(ctx, &c.Notification, &c.Delivery, decision, r, lasting)
}
