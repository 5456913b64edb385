package dispatch

import (
	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// join decides for a notification whose deliveries have a common say, from their
// state under lock: whether a step has ended without meeting its criterion, and
// whether all is over. count tells the metrics, once that is committed.
func (d *Dispatcher) join(r store.Record, touched []store.DeliveryID) (j store.Joined, count func()) {
	n, now := &r.Notification, d.now()
	status, final := r.Overall()
	if !final {
		return j, func() {}
	}
	byStep := r.ByStep()
	last := 0
	for _, t := range touched {
		last = max(last, int(t.Step))
	}
	next := last + 1
	stopped := !r.CanceledAt.IsZero() || !r.AcknowledgedAt.IsZero()
	if r.Invalid == nil && n.Mode == notify.First && !stopped && next < len(n.Chain) && len(byStep[next]) == 0 &&
		!metBy(n, byStep[:next]) && now.Before(n.ExpiresAt) {
		because := string(notify.StepStatus(byStep[last]))
		for _, delivery := range r.Deliveries {
			if int(delivery.Step) == last && delivery.Because != "" {
				because = delivery.Because
			}
		}
		j.Next = d.starts(n, next, "fallback: "+because, now)
		return j, func() { d.metrics(n.Project).Fallback(n.Chain[last].Channel, n.Chain[next].Channel, because) }
	}
	j.Events = append(j.Events, finished(n, status, now))
	return j, func() { d.metrics(n.Project).Finished(status) }
}

// metBy reports whether one of the steps has met its criterion. An earlier one may
// have turned out to after the chain had gone on.
func metBy(n *notify.Notification, byStep [][]notify.DeliveryView) bool {
	for i, deliveries := range byStep {
		if n.Chain[i].Success.MetBy(notify.StepStatus(deliveries)) {
			return true
		}
	}
	return false
}

// count tells the metrics what a decision of a single delivery meant. What is
// joined is counted there.
func (d *Dispatcher) count(n *notify.Notification, delivery *store.Delivery, f fallback.Decision, joined bool) {
	if f.Met && delivery.Calls <= 1 && !notify.UntilAccepted.MetBy(delivery.Status) {
		d.metrics(n.Project).FirstDelivery(delivery.Channel, d.cfg.Now().Sub(delivery.StartedAt))
	}
	if reason, barred := fallback.Barred(f.Because); barred && f.Final {
		d.metrics(n.Project).Suppressed(delivery.Channel, reason)
	}
	if joined || !f.Final {
		return
	}
	if next := int(delivery.Step) + 1; f.MoveOn && next < len(n.Chain) {
		d.metrics(n.Project).Fallback(delivery.Channel, n.Chain[next].Channel, f.Because)
		return
	}
	d.metrics(n.Project).Finished(f.Status)
}
