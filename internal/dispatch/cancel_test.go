package dispatch_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func (n *node) cancel(t *testing.T, id uuid.UUID) store.CancelResult {
	t.Helper()
	result, err := n.store.Cancel(t.Context(), "default", id, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func TestACancelBeforeTheClaimPreventsTheCall(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, ok)
	n := start(t, pgURL(t), registry(account(sms)), func(s *setup) { s.Hold = true })
	id, other := n.accept(t, notification(both, step(notify.SMS))), n.accept(t, notification(both, step(notify.SMS)))
	if got := n.cancel(t, id); got != store.Canceled {
		t.Errorf("cancel: %s", got)
	}
	n.Release()
	n.final(t, other)
	eventually(t, "the canceled one's job is done", func() bool {
		return n.count(t, "select count(*) from dispatcher.river_job where state <> 'completed'") == 0
	})
	status, _ := n.final(t, id)
	if calls := sms.sent(); status != notify.Canceled || len(calls) != 1 || calls[0].notification != other {
		t.Errorf("status %s, calls %+v", status, calls)
	}
	if got := story(n.events(t, id)); got != "accepted canceled:canceled." {
		t.Errorf("events %s", got)
	}
}

func TestACancelDuringTheCall(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		outcome notify.Outcome
		step    notify.Status
		events  string
	}{
		"that is accepted shows that":     {notify.Accepted, notify.Sent, "accepted canceled:too_late sent:canceled."},
		"that fails stops the retries":    {notify.ProviderUnavailable, notify.Canceled, "accepted canceled:too_late canceled:canceled."},
		"of an unknown outcome stops too": {notify.Unknown, notify.Canceled, "accepted canceled:too_late canceled:canceled."},
		"that is rejected goes no step on": {
			notify.RecipientRejected, notify.Canceled, "accepted canceled:too_late canceled:canceled.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDoor(t)
			sms, email := newScript(notify.SMS, d.then(c.outcome)), newScript(notify.Email, ok)
			n := single(t, account(sms), account(email))
			id := n.accept(t, notification(both, step(notify.SMS), step(notify.Email)))
			eventually(t, "the call is under way", func() bool { return len(sms.sent()) == 1 })
			if got := n.cancel(t, id); got != store.TooLate {
				t.Errorf("cancel: %s", got)
			}
			d.open()
			status, r := n.final(t, id)
			if status != notify.Canceled || r.Deliveries[0].Status != c.step || len(r.Deliveries) != 1 {
				t.Errorf("status %s, deliveries %+v", status, r.Deliveries)
			}
			if len(r.Attempts) != 1 || r.Attempts[0].Outcome != c.outcome || len(email.sent()) != 0 {
				t.Errorf("attempts %+v, %d emails", r.Attempts, len(email.sent()))
			}
			if got := story(n.events(t, id)); got != c.events {
				t.Errorf("events %s, want %s", got, c.events)
			}
		})
	}
}

func TestACancelDuringTheCallKeepsWhatTheCallSaidOfTheAddress(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	sms := newScript(notify.SMS, func(int, *channels.Message) channels.Result {
		<-d.c
		return channels.Result{Outcome: notify.RecipientRejected, Suppress: true}
	})
	n := single(t, account(sms))
	id := n.accept(t, notification(both, step(notify.SMS)))
	eventually(t, "the call is under way", func() bool { return len(sms.sent()) == 1 })
	n.cancel(t, id)
	d.open()
	n.final(t, id)
	if got := n.count(t, "select count(*) from dispatcher.suppressions"); got != 1 {
		t.Errorf("%d suppressions", got)
	}
}

func TestACancelInBackoffStopsTheRetry(t *testing.T) {
	t.Parallel()
	a := account(newScript(notify.SMS, always(notify.ProviderUnavailable)))
	a.Retry = resilience.Backoff{Base: time.Minute, Cap: time.Minute, Floor: time.Minute}
	n := single(t, a)
	id := n.accept(t, notification(both, step(notify.SMS)))
	n.waiting(t, id, notify.WaitBackoff)
	if got := n.cancel(t, id); got != store.TooLate {
		t.Errorf("cancel: %s", got)
	}
	status, r := n.final(t, id)
	if status != notify.Canceled || len(r.Waits) != 0 || len(r.Attempts) != 1 {
		t.Errorf("status %s, waits %+v, attempts %+v", status, r.Waits, r.Attempts)
	}
}

func TestACancelAfterTheEndChangesNothing(t *testing.T) {
	t.Parallel()
	n := single(t, account(newScript(notify.SMS, ok)))
	id := n.accept(t, notification(both, step(notify.SMS)))
	n.final(t, id)
	if got := n.cancel(t, id); got != store.AlreadyFinal {
		t.Errorf("cancel: %s", got)
	}
	if status, _ := n.final(t, id); status != notify.Sent {
		t.Errorf("status %s", status)
	}
	if got := story(n.events(t, id)); got != "accepted sent." {
		t.Errorf("events %s", got)
	}
}
