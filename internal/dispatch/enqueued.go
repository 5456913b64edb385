package dispatch

import (
	"context"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

const (
	announceLimit = 200
	cancelLimit   = 500
)

// announce takes over what callers enqueued in their own transactions.
func (d *Dispatcher) announce(ctx context.Context) error {
	for {
		announced, err := d.store.Announce(ctx, announceLimit, d.cfg.Now(), d.targetScopes)
		if err != nil {
			return err
		}
		for _, p := range announced {
			d.cfg.Metrics.Accepted(p, 1)
		}
		if len(announced) < announceLimit {
			return nil
		}
	}
}

// applyCancels cancels what callers asked for in their own transactions.
func (d *Dispatcher) applyCancels(ctx context.Context) error {
	for {
		n, err := d.store.ApplyCancelRequests(ctx, cancelLimit, d.cfg.Now())
		if err != nil || n < cancelLimit {
			return err
		}
	}
}

// targetScopes returns the scopes of a delivery's target, relative to the account
// that it goes through as things are configured now.
func (d *Dispatcher) targetScopes(n *notify.Notification, delivery *store.Delivery) []string {
	a := d.registry.Load().pick(delivery.Channel, n.Project, delivery.Pinned, delivery.Provider)
	if a == nil {
		return nil
	}
	scoper, ok := a.Provider.(channels.Scoper)
	targets := n.To.Targets(delivery.Channel)
	if !ok || int(delivery.Target) >= len(targets) {
		return nil
	}
	return scoper.Scopes(targets[delivery.Target])
}
