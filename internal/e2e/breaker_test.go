//go:build unix

package e2e_test

import (
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

const twilioScope = "twilio-main"

func TestAFailingProviderSeesOneProbeAtATimeThoughTheProbingNodeIsKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, patient, resending)
	nodes := c.three(t)
	n := notifications(t, 120)
	c.faults(t, unavailable("twilio"))
	l := begin(t, nodes, 0, n, func(i int) object { return c.alone("sms", i) })
	eventually(t, 30*time.Second, "two probes have failed", func() bool { return c.opened(t, twilioScope) >= 3 })

	// The next probe hangs, and its node dies while it does. 500 tells it from those before.
	c.faults(t, sandbox.Rule{
		Provider: "twilio", Answer: sandbox.RuleAnswer{Status: http.StatusInternalServerError, Delay: notify.Duration(time.Minute)},
	})
	hung := c.hanging(t)
	lease := c.lease(t)
	all := c.changes(t, twilioScope)
	for _, node := range nodes {
		if node.id == all[len(all)-1].node {
			node.signal(t, syscall.SIGKILL)
		}
	}
	// From here on all is well, and nobody does anything.
	c.slow(t, callTime)
	eventually(t, 30*time.Second, "the breaker closes", func() bool {
		all = c.changes(t, twilioScope)
		return all[len(all)-1].to == "closed"
	})
	c.faults(t)
	l.wait(t)
	c.settled(t, n)

	all = c.changes(t, twilioScope)
	wantOneChangePerGeneration(t, all)
	if last := all[len(all)-1]; last.to != "closed" || last.reason != "probes_succeeded" {
		t.Errorf("the breaker's last change is %+v", last)
	}
	stories := c.stories(t)
	wantEachOnce(t, stories)
	if died(stories) != 1 {
		t.Errorf("%d calls were under way on the node that was killed, want the probe", died(stories))
	}
	probes := c.wantProbesOneByOne(t, all, hung, lease)
	t.Logf("opened %d times, %d probes, delivered %.1f s after the repair; %s",
		c.opened(t, twilioScope), probes, time.Since(hung.ReceivedAt).Seconds(), outcomes(stories))
}

// hanging waits for the call that is not answered.
func (c *cluster) hanging(t *testing.T) sandbox.Message {
	t.Helper()
	var hung sandbox.Message
	eventually(t, 15*time.Second, "a probe hangs", func() bool {
		calls := c.received("twilio")
		hung = calls[len(calls)-1]
		return hung.Answer.Status == http.StatusInternalServerError
	})
	return hung
}

// lease returns until when the probe under way has the breaker to itself.
func (c *cluster) lease(t *testing.T) time.Time {
	t.Helper()
	var until time.Time
	err := c.pool.QueryRow(t.Context(), "select lease_until from dispatcher.breakers where scope = $1 and probing", twilioScope).Scan(&until)
	if err != nil {
		t.Fatalf("no probe is under way: %v", err)
	}
	return until
}

// wantOneChangePerGeneration checks that a breaker's history is one line: every
// change begins where the one before ended, in a generation of its own.
func wantOneChangePerGeneration(t *testing.T, all []change) {
	t.Helper()
	for i, x := range all {
		switch {
		case i == 0 && (x.from != "closed" || x.to != "open"):
			t.Errorf("the first change is %+v", x)
		case i > 0 && (x.generation != all[i-1].generation+1 || x.from != all[i-1].to || x.at.Before(all[i-1].at)):
			t.Errorf("change %+v follows on %+v", x, all[i-1])
		}
	}
}

// wantProbesOneByOne checks what the provider saw between the time at which the
// news of the first opening had reached everybody and the closing, and returns how
// many calls that were.
func (c *cluster) wantProbesOneByOne(t *testing.T, all []change, hung sandbox.Message, lease time.Time) int {
	t.Helper()
	if lease.Before(hung.ReceivedAt.Add(patientTimeout)) {
		t.Errorf("a probe at %s may take %s and has the breaker until %s", hung.ReceivedAt, patientTimeout, lease)
	}
	settled, closed := all[0].at.Add(lateNews), all[len(all)-1].at
	var calls []sandbox.Message
	for _, m := range c.received("twilio") {
		if m.ReceivedAt.After(settled) && m.ReceivedAt.Before(closed) {
			calls = append(calls, m)
		}
	}
	for i, m := range calls {
		free := settled
		if i > 0 {
			free = calls[i-1].ReceivedAt.Add(callTime)
			if calls[i-1].Seq == hung.Seq {
				free = lease // nobody knows that it is over
			}
		}
		if m.ReceivedAt.Before(free) {
			t.Errorf("a call came %s before the one ahead of it was over: %+v", free.Sub(m.ReceivedAt), m)
		}
	}
	for i, x := range all {
		if x.to != "open" || i+1 == len(all) {
			continue
		}
		during, probing := 0, 0
		for _, m := range calls {
			switch {
			case m.ReceivedAt.Before(x.at):
			case m.ReceivedAt.Before(all[i+1].at):
				during++
			case i+2 < len(all) && all[i+2].to == "open" && m.ReceivedAt.Before(all[i+2].at):
				probing++
			}
		}
		if during != 0 || probing > 1 {
			t.Errorf("open from %s on it saw %d calls, and then %d as probes", x.at.Format(time.TimeOnly), during, probing)
		}
	}
	return len(calls)
}

func TestBadNumbersOpenNoBreakerAndFiveFailuresDo(t *testing.T) {
	t.Parallel()
	c := newCluster(t, patient)
	nodes := c.three(t)
	n := notifications(t, 1000)
	c.faults(t, sandbox.Rule{
		Provider: "twilio", Answer: sandbox.RuleAnswer{Status: http.StatusBadRequest, Body: jsontext.Value(`{"code":21211,"status":400}`)},
	})
	begin(t, nodes, 0, n, func(i int) object { return c.alone("sms", i) }).wait(t)
	c.settled(t, n)
	for _, s := range c.stories(t) {
		if s.because != "recipient_rejected" || len(s.calls) != 1 || len(s.attempts) != 1 {
			t.Fatalf("a bad number: %s", s)
		}
	}
	if all := c.changes(t, twilioScope); len(all) > 0 {
		t.Fatalf("%d bad numbers changed the breaker: %+v", n, all)
	}

	c.faults(t, unavailable("twilio"))
	fail := func(i int) {
		t.Helper()
		m := c.alone("sms", n+i)
		m["chain"] = []object{{"channel": "sms", "attempts": 1}}
		nodes[i%len(nodes)].finished(t, nodes[i%len(nodes)].post(t, m))
	}
	for i := range 4 {
		fail(i)
	}
	eventually(t, 5*time.Second, "four failures are known", func() bool {
		return c.count(t, "select coalesce(sum(streak), 0) from dispatcher.breaker_evidence where scope = $1", twilioScope) == 4
	})
	if all := c.changes(t, twilioScope); len(all) > 0 {
		t.Errorf("four failures changed the breaker: %+v", all)
	}
	fail(4)
	eventually(t, 5*time.Second, "the fifth failure opens the breaker", func() bool { return len(c.changes(t, twilioScope)) > 0 })
	if x := c.changes(t, twilioScope)[0]; x.to != "open" || x.reason != "failures" {
		t.Errorf("the breaker's change is %+v", x)
	}
	if got := strconv.Itoa(len(c.received("twilio"))); got != strconv.Itoa(n+5) {
		t.Errorf("Twilio was called %s times, want %d", got, n+5)
	}
}
