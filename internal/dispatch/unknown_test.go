package dispatch_test

import (
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// first answers with o once and takes every later call.
func first(o notify.Outcome) func(int, *channels.Message) channels.Result {
	return func(n int, _ *channels.Message) channels.Result {
		if n == 1 {
			return channels.Result{Outcome: o}
		}
		return channels.Ok("id-2")
	}
}

func unknownStep(p notify.UnknownPolicy) notify.Step {
	return notify.Step{Channel: notify.SMS, OnUnknown: p}
}

func TestAnUnknownOutcomeFollowsItsPolicy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sms        notify.Step
		email      bool // there is a second step
		smsCalls   int
		emailCalls int
		smsStatus  notify.Status
		because    string
	}{
		"resend":                   {unknownStep(notify.Resend), true, 2, 0, notify.Sent, ""},
		"fallback":                 {unknownStep(notify.FallBack), true, 1, 1, notify.Failed, "unknown"},
		"fallback on the last":     {unknownStep(notify.FallBack), false, 1, 0, notify.Failed, "unknown"},
		"assume_sent":              {unknownStep(notify.AssumeSent), true, 1, 0, notify.Sent, "assumed"},
		"reconcile, then fallback": {unknownStep(notify.Reconcile), true, 1, 1, notify.Failed, "unknown"},
		"reconcile by default":     {unknownStep(""), true, 1, 1, notify.Failed, "unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sms, email := newScript(notify.SMS, first(notify.Unknown)), newScript(notify.Email, ok)
			n := single(t, account(sms), account(email))
			chain := []notify.Step{c.sms}
			if c.email {
				chain = append(chain, step(notify.Email))
			}
			id := n.accept(t, notification(both, chain...))
			if p := c.sms.OnUnknown; p == notify.Reconcile || p == "" {
				n.waiting(t, id, notify.WaitReconcile)
				n.pass(t)
			}
			_, r := n.final(t, id)
			if len(sms.sent()) != c.smsCalls || len(email.sent()) != c.emailCalls {
				t.Errorf("%d sms and %d email calls, want %d and %d", len(sms.sent()), len(email.sent()), c.smsCalls, c.emailCalls)
			}
			if d := r.Deliveries[0]; d.Status != c.smsStatus || d.Because != c.because {
				t.Errorf("sms ended %s because %q", d.Status, d.Because)
			}
			for i, a := range r.Attempts {
				if repeat := a.Step == 0 && i > 0; a.PossibleDuplicate != repeat {
					t.Errorf("attempt %d of step %d: possible duplicate %v", i, a.Step, a.PossibleDuplicate)
				}
			}
		})
	}
}

func TestTheLastStepIsSentOnceMoreWhenNothingReconcilesIt(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, always(notify.Unknown))
	n := single(t, account(sms))
	id := n.accept(t, notification(both, step(notify.SMS)))
	n.waiting(t, id, notify.WaitReconcile)
	n.pass(t)
	n.until(t, id, "sent again", func(store record) bool { return len(store.Attempts) == 2 && len(store.Waits) == 1 })
	n.pass(t)
	status, r := n.final(t, id)
	if status != notify.Failed || r.Deliveries[0].Because != "unknown" || len(sms.sent()) != 2 {
		t.Errorf("status %s because %q after %d calls", status, r.Deliveries[0].Because, len(sms.sent()))
	}
	if r.Attempts[0].PossibleDuplicate || !r.Attempts[1].PossibleDuplicate {
		t.Error("only the repeat is a possible duplicate")
	}
	want := "accepted unknown:unknown waiting:backoff unknown:unknown failed:unknown."
	if got := story(n.events(t, id)); got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

func TestAnAdapterThatPanicsLeavesTheOutcomeUnknown(t *testing.T) {
	t.Parallel()
	email := newScript(notify.Email, func(n int, _ *channels.Message) channels.Result {
		if n == 1 {
			panic("of the adapter")
		}
		return channels.Ok("id-2")
	})
	n := single(t, account(email))
	status, r := n.final(t, n.accept(t, notification(both, step(notify.Email))))
	if status != notify.Sent || len(r.Attempts) != 2 || r.Attempts[0].Outcome != notify.Unknown || !r.Attempts[1].PossibleDuplicate {
		t.Errorf("status %s, attempts %+v", status, r.Attempts)
	}
}
