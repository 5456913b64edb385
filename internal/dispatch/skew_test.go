package dispatch_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// behind sets a node's clock back.
func behind(by time.Duration) func(*setup) {
	return func(s *setup) { s.Now = func() time.Time { return time.Now().Add(-by) } }
}

// turns is how often a notification's deliveries have been decided about.
func (n *node) turns(t *testing.T, r store.Record) int {
	t.Helper()
	return n.count(t, "select coalesce(sum(turn), 0) from dispatcher.deliveries where notification_id = $1", r.Notification.ID)
}

func TestANodeWhoseClockIsBehindEndsAStepWhenTheDatabaseSaysSo(t *testing.T) {
	t.Parallel()
	sms, email := newScript(notify.SMS, ok), newScript(notify.Email, ok)
	email.info.MaxObservable = notify.Delivered
	n := start(t, pgURL(t), registry(account(sms), account(email)), behind(time.Hour))
	delivered := step(notify.Email)
	delivered.Success, delivered.Within = notify.UntilDelivered, notify.Duration(time.Hour)
	id := n.accept(t, notification(both, delivered, step(notify.SMS)))
	n.waiting(t, id, notify.WaitReceipt)
	n.exec(t, "update dispatcher.deliveries set ends_at = now() where notification_id = $1", id)
	n.pass(t)
	if _, r := n.final(t, id); len(r.Attempts) != 2 || n.turns(t, r) > 5 {
		t.Errorf("a receipt that did not come: %d attempts after %d turns", len(r.Attempts), n.turns(t, r))
	}
	n.operate(t, "sms-main", store.ActionOpen, time.Time{})
	id = n.accept(t, notification(both, step(notify.SMS)))
	n.waiting(t, id, notify.WaitBreakerOpen)
	n.passSteps(t)
	if status, r := n.final(t, id); status != notify.Lapsed || n.turns(t, r) > 5 {
		t.Errorf("behind a breaker: %s after %d turns", status, n.turns(t, r))
	}
}

func TestANodeWhoseClockIsBehindAsksNoMoreOftenForWhatIsShut(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, func(n int, _ *channels.Message) channels.Result {
		if n == 1 {
			return channels.Result{Outcome: notify.Throttled, RetryAfter: 2 * time.Second}
		}
		return channels.Ok("id-1")
	})
	n := start(t, pgURL(t), registry(account(sms)), behind(time.Hour))
	status, r := n.final(t, n.accept(t, notification(both, step(notify.SMS))))
	if status != notify.Sent || len(r.Attempts) != 2 || n.turns(t, r) > 6 {
		t.Errorf("it ended %s with %d attempts after %d turns", status, len(r.Attempts), n.turns(t, r))
	}
}
