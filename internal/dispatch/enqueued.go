package dispatch

import (
	"context"

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

// targetScopes returns the scopes of a delivery's target, relative to the accounts
// that it may go through as things are configured now.
func (d *Dispatcher) targetScopes(n *notify.Notification, delivery *store.Delivery) []string {
	targets := n.To.Targets(delivery.Channel)
	if int(delivery.Target) >= len(targets) {
		return nil
	}
	return d.registry.Load().scopes(delivery.Channel, n.Project, delivery.Pinned, targets[delivery.Target])
}
