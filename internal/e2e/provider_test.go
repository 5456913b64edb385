//go:build unix

package e2e_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// Twilio's 500 leaves open whether the message was taken, so that calling again
// is a policy; its 503 and Meta's do not.
func TestAStepRetriesAndThenFallsBackToEmail(t *testing.T) {
	t.Parallel()
	tests := []struct {
		channel, provider, account string
		status                     int
		outcome                    string
		policy                     object // of the step
		duplicates                 bool
	}{
		{"sms", "twilio", "twilio-main", 500, "unknown", object{"on_unknown": "resend"}, true},
		{"sms", "twilio", "twilio-main", 503, "provider_unavailable", object{}, false},
		{"whatsapp", "meta", "meta-main", 503, "provider_unavailable", object{}, false},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.channel, " ", test.status), func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, quick)
			n := c.serve(t)
			c.faults(t, sandbox.Rule{Provider: test.provider, Answer: sandbox.RuleAnswer{Status: test.status}})
			first := object{"channel": test.channel, "attempts": 3}
			maps.Copy(first, test.policy)
			v := n.finished(t, n.post(t, object{
				"to":      object{test.channel: "+14155550100", "email": "ana@example.com"},
				"chain":   []object{first, {"channel": "email"}},
				"content": object{"title": "Deploy failed", "body": "api is down"},
			}))
			if v.Status != "sent" || len(v.Steps) != 2 {
				t.Fatalf("it ended as %+v", v)
			}
			failed, email := v.Steps[0], v.Steps[1]
			if failed.Status != "failed" || failed.Because != test.outcome || len(failed.Attempts) != 3 {
				t.Errorf("the first step ended as %+v, want failed after 3 attempts because %s", failed, test.outcome)
			}
			for i, a := range failed.Attempts {
				if a.N != i+1 || a.Account != test.account || a.Outcome != test.outcome || a.HTTPStatus != test.status ||
					a.PossibleDuplicate != (test.duplicates && i > 0) {
					t.Errorf("attempt %d is %+v", i+1, a)
				}
			}
			if email.Status != "sent" || email.StartedBecause != "fallback: "+test.outcome || len(email.Attempts) != 1 {
				t.Errorf("the email step is %+v", email)
			}
			if got := c.received(test.provider); len(got) != 3 {
				t.Errorf("%s was called %d times, want 3", test.provider, len(got))
			}
			if got := c.received("smtp"); len(got) != 1 || got[0].To != "ana@example.com" || got[0].Title != "Deploy failed" {
				t.Errorf("mail received: %+v", got)
			}
		})
	}
}

func TestNoCallIsMadeBeforeRetryAfterIsOver(t *testing.T) {
	t.Parallel()
	const quiet, others = 2 * time.Second, 5
	c := newCluster(t, quick)
	n := c.serve(t)
	c.faults(t, sandbox.Rule{
		Provider: "twilio", Times: 1, Answer: sandbox.RuleAnswer{Status: 429, Headers: map[string]string{"Retry-After": "2"}},
	})
	text := func(i int) object {
		return object{"to": object{"sms": fmt.Sprintf("+141555501%02d", i)}, "content": object{"body": "x"}}
	}
	first := n.post(t, text(0))
	eventually(t, 5*time.Second, "the answer 429 is recorded", func() bool { return len(n.show(t, first).Steps[0].Attempts) == 1 })
	v := n.show(t, first)
	refusal := c.received("twilio")[0].ReceivedAt
	if v.Waiting == nil || v.Waiting.Reason != "throttled" || v.Waiting.Until.Before(refusal.Add(quiet)) {
		t.Errorf("it waits %+v, want throttled until 2 s after %s", v.Waiting, refusal)
	}
	if a := v.Steps[0].Attempts[0]; a.Outcome != "throttled" || a.RetryAfterMS != 2000 {
		t.Errorf("the attempt is %+v", a)
	}
	ids := []string{first}
	for i := range others { // The account is to be left alone for everybody.
		ids = append(ids, n.post(t, text(i+1)))
	}
	for _, id := range ids {
		if v := n.finished(t, id); v.Status != "sent" {
			t.Errorf("notification %s ended as %+v", id, v)
		}
	}
	calls := c.received("twilio")
	if len(calls) != others+2 {
		t.Errorf("Twilio was called %d times, want %d", len(calls), others+2)
	}
	for _, m := range calls[1:] {
		if early := refusal.Add(quiet).Sub(m.ReceivedAt); early > 0 {
			t.Errorf("a call came %s too early", early)
		}
	}
}

// faults replaces the rules of the sandbox.
func (c *cluster) faults(t *testing.T, rules ...sandbox.Rule) {
	t.Helper()
	if err := c.sandbox.SetFaults(rules...); err != nil {
		t.Fatal(err)
	}
}

// slow makes every provider take its time, so that calls are under way at any
// moment.
func (c *cluster) slow(t *testing.T, d time.Duration) {
	t.Helper()
	c.faults(t, sandbox.Rule{Answer: sandbox.RuleAnswer{Delay: notify.Duration(d)}})
}

func (c *cluster) received(provider string) []sandbox.Message {
	return c.sandbox.Messages(sandbox.Filter{Provider: provider})
}
