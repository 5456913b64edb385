package dispatch

import (
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Acceptance is a notification with its first step's deliveries, for who writes
// it in a transaction of its own. It is due at once.
func (d *Dispatcher) Acceptance(n notify.Notification) store.Acceptance {
	return store.Acceptance{Accept: store.Accept{Notification: n}, Starts: d.starts(&n, 0, "first", n.SendAt)}
}

// metrics are what is counted for a project. Calls to status webhooks are not:
// they would count each notification's story over again.
func (d *Dispatcher) metrics(project string) Metrics {
	if store.Hidden(project) {
		return uncounted{}
	}
	return d.cfg.Metrics
}

// uncounted counts nothing.
type uncounted struct{}

func (uncounted) Accepted(notify.Priority, int)                         {}
func (uncounted) Attempt(notify.Channel, notify.Outcome, time.Duration) {}
func (uncounted) FirstDelivery(notify.Channel, time.Duration)           {}
func (uncounted) Fallback(notify.Channel, notify.Channel, string)       {}
func (uncounted) Failover(string, string, string)                       {}
func (uncounted) AccountShare(string, float64)                          {}
func (uncounted) Finished(notify.Status)                                {}
func (uncounted) Suppressed(notify.Channel, string)                     {}
func (uncounted) ReceiptApplied(notify.Channel, notify.Status)          {}
func (uncounted) ReceiptsParked(int)                                    {}
