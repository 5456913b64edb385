package dispatch_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

var both = notify.To{SMS: "+14155550100", Email: &notify.EmailAddress{Address: "ana@example.com"}}

func TestAnAcceptedNotificationIsSent(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, ok)
	n := single(t, account(sms))
	status, r := n.final(t, n.accept(t, notification(both, step(notify.SMS))))
	if status != notify.Sent || len(r.Attempts) != 1 || r.Attempts[0].ProviderMessageID != "id-1" {
		t.Errorf("status %s, attempts %+v", status, r.Attempts)
	}
	if got := len(sms.sent()); got != 1 {
		t.Errorf("%d calls", got)
	}
}

func TestAFailingChannelIsRetriedAndThenFallsBack(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, always(notify.ProviderUnavailable))
	email := newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	status, r := n.final(t, n.accept(t, notification(both, step(notify.SMS), step(notify.Email))))
	if status != notify.Sent {
		t.Fatalf("status %s", status)
	}
	if len(sms.sent()) != 4 || len(email.sent()) != 1 {
		t.Errorf("%d sms and %d email calls, want 4 and 1", len(sms.sent()), len(email.sent()))
	}
	if why := r.Deliveries[1].StartedWhy; why != "fallback: provider_unavailable" {
		t.Errorf("second step started because %q", why)
	}
	for _, c := range sms.sent() {
		if c.key != sms.sent()[0].key {
			t.Error("the delivery's key changed between attempts")
		}
	}
}

func TestAPermanentFailureMovesOnAtOnce(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, always(notify.RecipientRejected))
	email := newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	status, _ := n.final(t, n.accept(t, notification(both, step(notify.SMS), step(notify.Email))))
	if status != notify.Sent || len(sms.sent()) != 1 || len(email.sent()) != 1 {
		t.Errorf("status %s, %d sms and %d email calls", status, len(sms.sent()), len(email.sent()))
	}
}

func TestRetryAfterIsHonoured(t *testing.T) {
	t.Parallel()
	const quiet = 700 * time.Millisecond
	sms := newScript(notify.SMS, func(n int, _ *channels.Message) channels.Result {
		if n == 1 {
			return channels.Result{Outcome: notify.Throttled, RetryAfter: quiet}
		}
		return channels.Ok("id-2")
	})
	n := single(t, account(sms))
	_, r := n.final(t, n.accept(t, notification(both, step(notify.SMS))))
	calls := sms.sent()
	if len(calls) != 2 || calls[1].at.Sub(calls[0].at) < quiet {
		t.Errorf("calls %+v", calls)
	}
	if d := r.Deliveries[0]; d.Attempts != 1 || d.Throttles != 1 {
		t.Errorf("attempts %d, throttles %d: a 429 must use up no attempt", d.Attempts, d.Throttles)
	}
}
