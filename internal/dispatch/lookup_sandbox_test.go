package dispatch_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels/sms"
	"github.com/notification-dispatcher/dispatcher/internal/channels/twilio"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// twilioAt is the real adapter at a Twilio that drops the first message call,
// before or after it took the message.
func twilioAt(t *testing.T, drop string) (*sandbox.Server, *sms.Provider) {
	t.Helper()
	s, err := sandbox.New(sandbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.Start(t.Context())
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := s.SetFaults(sandbox.Rule{Provider: "twilio", Times: 1, Answer: sandbox.RuleAnswer{Drop: drop}}); err != nil {
		t.Fatal(err)
	}
	p, err := sms.New("twilio-main", sms.Config{
		Account: twilio.Account{AccountSID: "AC0123456789abcdef0123456789abcdef", AuthToken: secret.New("t0k3n"), BaseURL: s.HTTPURL()},
		From:    "+15005550006",
	})
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

func TestATextThatTwilioTookWithoutAnAnswerIsFoundAndNotRepeated(t *testing.T) {
	t.Parallel()
	twilio, p := twilioAt(t, sandbox.DropAfter)
	email := newScript(notify.Email, ok)
	n := single(t, account(p), account(email))
	id := n.accept(t, notification(both, step(notify.SMS), step(notify.Email)))
	n.waiting(t, id, notify.WaitReconcile)
	n.pass(t)
	// Twilio may have delivered it by then.
	r := n.until(t, id, "found", func(r record) bool { return notify.UntilAccepted.MetBy(r.Deliveries[0].Status) })
	calls := twilio.Messages(sandbox.Filter{Provider: "twilio"})
	if len(calls) != 1 || len(email.sent()) != 0 {
		t.Fatalf("%d sms and %d email calls", len(calls), len(email.sent()))
	}
	if a := r.Attempts; len(a) != 1 || a[0].Outcome != notify.Accepted || a[0].ProviderMessageID != calls[0].Answer.ID {
		t.Errorf("attempts %+v", a)
	}
}

func TestATextThatTwilioNeverTookIsSentOnceMoreWithoutDoubt(t *testing.T) {
	t.Parallel()
	twilio, p := twilioAt(t, sandbox.DropBefore)
	email := newScript(notify.Email, ok)
	n := single(t, account(p), account(email))
	id := n.accept(t, notification(both, step(notify.SMS), step(notify.Email)))
	turn := n.waiting(t, id, notify.WaitReconcile).Waits[0].Turn
	n.pass(t) // too soon for Twilio to be sure
	n.until(t, id, "waiting again", func(r record) bool { return len(r.Waits) == 1 && r.Waits[0].Turn > turn })
	n.age(t, 35*time.Second)
	r := n.waiting(t, id, notify.WaitReceipt)
	status, _ := r.Overall()
	calls := twilio.Messages(sandbox.Filter{Provider: "twilio"})
	if status != notify.Sent || len(calls) != 2 || calls[0].Answer.Accepted || !calls[1].Answer.Accepted || len(email.sent()) != 0 {
		t.Fatalf("status %s after the calls %+v and %d email calls", status, calls, len(email.sent()))
	}
	if a := r.Attempts; len(a) != 2 || a[0].Outcome != notify.ProviderUnavailable || a[1].Outcome != notify.Accepted || a[1].PossibleDuplicate {
		t.Errorf("attempts %+v", a)
	}
}
