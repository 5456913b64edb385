//go:build unix

package e2e_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// unsettled gives every account a policy for unknown outcomes that ends within a
// test's time, all four of them together.
func unsettled(a account) {
	switch a["name"] {
	case "twilio-main":
		a["on_unknown"] = "fallback"
	case "meta-main":
		a["on_unknown"] = "resend"
	case "slack-main":
		a["on_unknown"] = "assume_sent"
	}
}

func TestMixedFaultsLoseNothingAndRepeatOnlyWhatIsUnknown(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick, unsettled)
	nodes := []*node{c.serve(t), c.serve(t)}
	n := notifications(t, 1200)
	plans := make([]plan, n)
	var rules []sandbox.Rule
	for i := range plans {
		plans[i] = planOf(i)
		if answer, ok := plans[i].answer(channels[i%len(channels)]); ok {
			rules = append(rules, sandbox.Rule{Provider: providerOf[channels[i%len(channels)]], To: c.to(i), Times: plans[i].times(channels[i%len(channels)]), Answer: answer})
		}
	}
	c.faults(t, rules...)
	begun := time.Now()
	l := begin(t, nodes, 0, n, func(i int) object {
		m := c.message(i)
		if channels[i%len(channels)] == "whatsapp" { // the faults are that account's
			m["chain"].([]object)[0]["account"] = "meta-main"
		}
		if channels[i%len(channels)] == "slack" && plans[i] == rejected { // a channel that the sandbox does not know
			m["to"].(object)["slack"] = object{"channel": "#unregistered-" + reference(i)}
		}
		return m
	})
	l.wait(t)
	accepted := time.Since(begun)
	c.settled(t, n)
	t.Logf("%d notifications accepted in %.1f s, ended in %.1f s", n, accepted.Seconds(), time.Since(begun).Seconds())

	stories := c.stories(t)
	t.Log(outcomes(stories))
	wantNothingLostOrDoubled(t, stories)
	wantEveryCallRecorded(t, stories)
	if left := c.sandbox.Faults(); len(left) > 0 {
		t.Errorf("%d faults were never met, such as %+v", len(left), left[0])
	}
	wantPlans(t, plans, stories)
	for _, node := range nodes {
		if got, err := node.call(t, "GET", "/readyz", "", nil); err != nil || got.status != 200 {
			t.Errorf("a node then answers %d, %v", got.status, err)
		}
	}
}

// plan is what a provider does to the first step of a notification.
type plan int

const (
	fine plan = iota
	down
	downTwice
	rejected
	throttled
	droppedBefore
	droppedAfter
	late
)

// planOf spreads the plans over the notifications, each over all channels. A
// provider that asks for quiet holds up its whole account, so that few do.
func planOf(i int) plan {
	switch k := i / len(channels); {
	case k%120 == 60:
		return throttled
	case k%12 < 6:
		return []plan{down, downTwice, rejected, droppedBefore, droppedAfter, late}[k%12]
	}
	return fine
}

// times is how many calls it is done to. Where an unknown outcome is not repeated
// there is no second call.
func (p plan) times(channel string) int {
	if p == downTwice && channel != "sms" && channel != "slack" {
		return 2
	}
	return 1
}

var providerOf = map[string]string{
	"push": "fcm", "sms": "twilio", "whatsapp": "meta", "email": "smtp", "slack": "slack", "webhook": "webhook",
}

// to is the recipient of the i-th notification's first step as its provider is
// told it.
func (c *cluster) to(i int) string {
	switch to := c.address(channels[i%len(channels)], i).(type) {
	case string:
		return to
	case object:
		for _, name := range []string{"token", "channel", "url"} {
			if s, ok := to[name].(string); ok {
				return s
			}
		}
	}
	return ""
}

func (p plan) answer(channel string) (sandbox.RuleAnswer, bool) {
	switch p {
	case down, downTwice:
		if channel == "email" {
			return sandbox.RuleAnswer{Status: 421}, true
		}
		return sandbox.RuleAnswer{Status: 503}, true
	case rejected:
		switch channel {
		case "email":
			return sandbox.RuleAnswer{Status: 550}, true
		case "slack": // refuses with 200, which its recipient's name asks for
			return sandbox.RuleAnswer{}, false
		}
		return sandbox.RuleAnswer{Status: 400}, true
	case throttled:
		if channel == "email" { // SMTP knows no such answer
			return sandbox.RuleAnswer{}, false
		}
		return sandbox.RuleAnswer{Status: 429, Headers: map[string]string{"Retry-After": "1"}}, true
	case droppedBefore:
		return sandbox.RuleAnswer{Drop: sandbox.DropBefore}, true
	case droppedAfter:
		return sandbox.RuleAnswer{Drop: sandbox.DropAfter}, true
	case late:
		return sandbox.RuleAnswer{Delay: notify.Duration(150 * time.Millisecond)}, true
	case fine:
	}
	return sandbox.RuleAnswer{}, false
}

// wantPlans checks that what a provider did is what the first step's attempts
// tell.
func wantPlans(t *testing.T, plans []plan, stories []*story) {
	t.Helper()
	first := map[string]*story{}
	for _, s := range stories {
		if s.step == 0 {
			first[s.reference] = s
		}
	}
	for i, p := range plans {
		s := first[reference(i)]
		switch {
		case s == nil:
			t.Errorf("%s was lost", reference(i))
		case p == fine || p == late:
			if len(s.calls) != 1 || s.status == "failed" {
				t.Errorf("nothing was wrong: %s", s)
			}
		case p == rejected:
			if len(s.calls) != 1 || s.status != "failed" {
				t.Errorf("it was rejected: %s", s)
			}
		case p == throttled && s.channel != "email":
			if len(s.calls) != 2 || s.attempts[0].outcome != "throttled" || s.calls[1].ReceivedAt.Sub(s.calls[0].ReceivedAt) < time.Second {
				t.Errorf("it was throttled for a second: %s", s)
			}
		case p == droppedAfter:
			if !s.calls[0].Answer.Accepted || s.attempts[0].outcome != "unknown" {
				t.Errorf("it was taken without an answer: %s", s)
			}
		}
	}
}
