package dispatch_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// brittle is an admission whose first ticket panics when its call is to start.
type brittle struct {
	dispatch.Admission
	admitted, withdrawn atomic.Int64
}

type brittleTicket struct {
	dispatch.Ticket
	of    *brittle
	first bool
}

func (b *brittle) Admit(ctx context.Context, a *dispatch.Account, scopes []string, retry store.RetryKind, now time.Time) (dispatch.Ticket, *dispatch.Refusal) {
	t, refusal := b.Admission.Admit(ctx, a, scopes, retry, now)
	if refusal != nil {
		return nil, refusal
	}
	return brittleTicket{t, b, b.admitted.Add(1) == 1}, nil
}

func (t brittleTicket) Start(now time.Time) (time.Time, bool) {
	if t.first {
		panic("no")
	}
	return t.Ticket.Start(now)
}

func (t brittleTicket) Withdraw(ctx context.Context, now time.Time) {
	if t.first {
		t.of.withdrawn.Add(1)
	}
	t.Ticket.Withdraw(ctx, now)
}

func TestAPanicAfterTheAdmissionGivesItBack(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, ok)
	var admission *brittle
	n := start(t, pgURL(t), registry(account(sms)), func(s *setup) {
		admission = &brittle{Admission: s.Admission}
		s.Admission = admission
	})
	what := step(notify.SMS)
	what.OnUnknown = notify.Resend
	if status, _ := n.final(t, n.accept(t, notification(both, what))); status != notify.Sent || admission.withdrawn.Load() != 1 {
		t.Errorf("it ended %s, withdrawn %d times", status, admission.withdrawn.Load())
	}
}

// A wait may be left of a delivery that moved on without it.
func TestATimerOfADeliveryThatMovedOnIsForgotten(t *testing.T) {
	t.Parallel()
	n := single(t, account(newScript(notify.SMS, ok)))
	id := n.accept(t, notification(both, step(notify.SMS)))
	n.final(t, id)
	n.exec(t, `insert into dispatcher.waits select notification_id, step, target, 0, priority, false, now(), now(), now(), project, channel, 'receipt'
		from dispatcher.deliveries where notification_id = $1`, id)
	eventually(t, "it is gone", func() bool { return n.count(t, "select count(*) from dispatcher.waits") == 0 })
}

func TestADeliveryWhoseCancelIsToBeAppliedStepsAsideForLonger(t *testing.T) {
	t.Parallel()
	url := pgURL(t)
	sms := newScript(notify.SMS, ok)
	n := start(t, url, registry(account(sms)), hold)
	id := n.accept(t, notification(both, step(notify.SMS)))
	leave := locked(t, url, lockNotification, id) // so that it cannot be applied
	n.exec(t, "insert into dispatcher.cancel_requests (notification_id, project, requested_at) values ($1, 'default', now())", id)
	n.Release()
	r := n.waiting(t, id, notify.WaitBackoff)
	if wait := r.Waits[0]; wait.Due.Sub(wait.Since) < 500*time.Millisecond {
		t.Errorf("it comes again after %v", wait.Due.Sub(wait.Since))
	}
	leave()
	if status, _ := n.final(t, id); status != notify.Canceled || len(sms.sent()) != 0 {
		t.Errorf("it ended %s after %d calls", status, len(sms.sent()))
	}
}
