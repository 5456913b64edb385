package dispatch

import (
	"context"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

type acceptReply struct {
	accepted store.Accepted
	err      error
}

// Accept writes a notification and what it starts, in a transaction shared with
// whoever else is accepting, and returns after the commit. When ctx ends first
// it may have been accepted all the same.
func (d *Dispatcher) Accept(ctx context.Context, a store.Accept) (store.Accepted, error) {
	n := &a.Notification
	row := store.Acceptance{Accept: a, Starts: d.starts(n, 0, "first", n.SendAt)}
	if n.Mode == notify.All {
		row.Starts = nil
		for i := range n.Chain {
			row.Starts = append(row.Starts, d.starts(n, i, "all", n.SendAt)...)
		}
	}
	if n.SendAt.After(n.CreatedAt) {
		for i := range row.Starts {
			row.Starts[i].Because = string(notify.WaitScheduled)
			row.Starts[i].Wait = &store.Wait{Reason: notify.WaitScheduled, Since: n.CreatedAt, Due: n.SendAt}
		}
	}
	reply, err := d.accepts.do(ctx, row)
	if err != nil {
		return store.Accepted{}, err
	}
	if reply.err == nil && !reply.accepted.Replayed {
		d.cfg.Metrics.Accepted(n.Priority, 1)
	}
	return reply.accepted, reply.err
}

func (d *Dispatcher) flushAccepts(ctx context.Context, rows []store.Acceptance) ([]acceptReply, error) {
	accepted, errs, err := d.store.Accept(ctx, rows, d.cfg.Now(), d.cfg.KeepKeys)
	if err != nil {
		return nil, err
	}
	out := make([]acceptReply, len(rows))
	for i := range rows {
		out[i] = acceptReply{accepted[i], errs[i]}
	}
	return out, nil
}

// starts returns the deliveries of a step, one a target, that become due at the
// given instant. Those that are due now and may not enter the queue yet have a wait.
func (d *Dispatcher) starts(n *notify.Notification, i int, why string, at time.Time) []store.Start {
	r, step := d.registry.Load(), n.Chain[i]
	targets := n.To.Targets(step.Channel)
	out := make([]store.Start, len(targets))
	for j, target := range targets {
		delivery := store.Delivery{
			DeliveryID: store.DeliveryID{Notification: n.ID, Step: int16(i), Target: int16(j)},
			Targets:    int16(len(targets)),
			Round:      int16(n.Round), Turn: int32(n.Round * turnsOfRound),
			Project: n.Project, Channel: step.Channel, Priority: n.Priority,
			Address: target.Hash(step.Channel), StartedWhy: why, Pinned: step.Account,
			Provider:  channels.RequiredProvider(target),
			StartedAt: at, EndsAt: fallback.Ends(n, i, at), ExpiresAt: n.ExpiresAt,
		}
		delivery.Scopes = r.scopes(step.Channel, n.Project, step.Account, target)
		start := store.Start{Delivery: delivery}
		if !at.After(d.now()) {
			if start.Wait = d.keepBack(&delivery); start.Wait != nil {
				start.Because = string(start.Wait.Reason)
			}
		}
		out[j] = start
	}
	return out
}
