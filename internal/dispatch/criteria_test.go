package dispatch_test

import (
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// The API would refuse such a chain; SQL and a change of the accounts do not.
func TestAStepThatAsksForWhatNobodyCanTellIsNotSent(t *testing.T) {
	t.Parallel()
	sms, email := newScript(notify.SMS, ok), newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	id := n.accept(t, notification(both, until(notify.SMS, notify.UntilDelivered), step(notify.Email)))
	status, r := n.final(t, id)
	if d := r.Deliveries; status != notify.Sent || d[0].Because != "unobservable" || d[1].StartedWhy != "fallback: unobservable" ||
		len(sms.sent()) != 0 || len(r.Attempts) != 0 && r.Attempts[0].Step == 0 {
		t.Errorf("status %s, %+v", status, d)
	}
	id = n.accept(t, notification(both, until(notify.SMS, notify.UntilRead)))
	if status, r := n.final(t, id); status != notify.Failed || r.Deliveries[0].Because != "unobservable" || len(sms.sent()) != 0 {
		t.Errorf("status %s, %+v", status, r.Deliveries)
	}
}

func TestAnAccountThatCanTellIsPreferred(t *testing.T) {
	t.Parallel()
	blind, sees := newScript(notify.SMS, ok), newReported(notify.SMS, accepts)
	blind.info.Account = "sms-blind"
	n := single(t, account(blind), account(sees))
	id := n.accept(t, notification(both, until(notify.SMS, notify.UntilDelivered), step(notify.Email)))
	n.hears(t, receipt(smsMain, sees.refs(t, 1)[0], notify.Delivered))
	n.until(t, id, "delivered", func(r record) bool { status, _ := r.Overall(); return status == notify.Delivered })
	if len(blind.sent()) != 0 {
		t.Errorf("%d calls of an account that cannot tell", len(blind.sent()))
	}
}
