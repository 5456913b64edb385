package resilience_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

func (n *process) health(narrow ...string) resilience.Health {
	return n.member.Health("a", narrow, false, n.clock())
}

func TestHealthSaysWhatAdmitWouldAndChangesNothing(t *testing.T) {
	c := newCluster(t, 0, 0)
	n := c.nodes[0]
	if h := n.health("s"); !h.Clear() {
		t.Errorf("all is well: %+v", h)
	}

	n.member.Throttle("a/s", n.clock().Add(10*time.Second), n.clock())
	h := n.health("s")
	if !h.Denied || !h.Narrow || h.Denial.Kind != resilience.KindGate || h.Denial.Scope != "a/s" || !h.Denial.Until.Equal(n.clock().Add(10*time.Second)) {
		t.Errorf("a gate of a narrower scope: %+v", h)
	}
	if h := n.health("other"); !h.Clear() {
		t.Errorf("beside that gate: %+v", h)
	}
	n.member.Throttle("a", n.clock().Add(20*time.Second), n.clock())
	if h := n.health("s"); h.Narrow || h.Denial.Scope != "a" {
		t.Errorf("the one that holds longest counts: %+v", h)
	}
	c.wait(20 * time.Second)

	c.trip()
	calls := c.shared.Calls("update")
	for range 3 {
		if h := n.health(); !h.Denied || h.Denial.Kind != resilience.KindBreaker || h.Denial.Until.Sub(n.clock()) != 30*time.Second {
			t.Errorf("open: %+v", h)
		}
	}
	c.due()
	if h := n.health(); h.Denied || !h.Probe || !h.ProbeDue.Equal(n.clock()) || h.Clear() {
		t.Errorf("a probe is due: %+v", h)
	}
	if got := c.shared.Calls("update"); got != calls {
		t.Errorf("asked the shared state %d times", got-calls)
	}
	probe := n.pass(account("a"))
	if h := n.health(); !h.Denied || h.Probe {
		t.Errorf("a probe is out: %+v", h)
	}
	n.done(probe, success)
	n.call(success, account("a"))
	n.pass(account("a"))
	if h := n.health(); !h.Denied || h.Denial.Kind != resilience.KindRamp {
		t.Errorf("just closed, and one call is under way: %+v", h)
	}

	c.operate(func(b *resilience.Breaker, now time.Time) resilience.Transition {
		return b.ForceOpen(resilience.Override{Who: "ana"}, now)
	})
	n.refresh()
	if h := n.health(); !h.Denied || h.Denial.Kind != resilience.KindBreaker || !h.Denial.Until.IsZero() {
		t.Errorf("forced open: %+v", h)
	}
	if h := n.member.Health("a", nil, true, n.clock()); !h.Denied {
		t.Errorf("forced open, though only its hosts have breakers: %+v", h)
	}
	c.operate(func(b *resilience.Breaker, now time.Time) resilience.Transition {
		return b.ForceClosed(resilience.Override{Who: "ana"}, now)
	})
	n.refresh()
	if h := n.health(); !h.Clear() {
		t.Errorf("forced closed: %+v", h)
	}
}

func TestHealthAllocatesNothingWhereAllIsWell(t *testing.T) {
	c := newCluster(t, 0)
	n := c.nodes[0]
	n.call(success, account("a"))
	narrow := []string{"sender", "region:49", "to:0123456789abcdef"}
	now := n.clock()
	if got := testing.AllocsPerRun(100, func() {
		if h := n.member.Health("a", narrow, false, now); !h.Clear() {
			t.Errorf("%+v", h)
		}
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestARejectedAccountIsShownWithTheProvidersCode(t *testing.T) {
	c := newCluster(t, 0)
	n := c.nodes[0]
	n.call(resilience.Evidence{Verdict: resilience.Rejected, Code: "20003"}, account("a"))
	if r := c.shared.Record("a"); r.State != resilience.Open || r.Reason != resilience.ReasonRejected || r.Code != "20003" || r.Trips != 1 {
		t.Errorf("record %+v", r)
	}
	if s := n.member.Snapshot(n.clock()); len(s) != 1 || s[0].Breaker.Code != "20003" {
		t.Errorf("shown as %+v", s)
	}
	if all := n.member.Transitions(); len(all) != 1 || all[0].Code != "20003" {
		t.Errorf("changes %+v", all)
	}
	c.due()
	for range 2 {
		n.call(success, account("a"))
	}
	if r := c.shared.Record("a"); r.State != resilience.Closed || r.Code != "" || r.Trips != 1 {
		t.Errorf("closed as %+v", r)
	}
}

// close lets the breaker's probes succeed once its time is over.
func (c *cluster) close() {
	c.t.Helper()
	c.due()
	for range 2 {
		c.nodes[0].call(success, account("a"))
	}
	c.sync()
	c.wantState("a", resilience.Closed)
}

func TestCallsComeBackLittleByLittle(t *testing.T) {
	c := newCluster(t, 0)
	n := c.nodes[0]
	c.trip()
	c.close()
	closed := n.clock()
	if h := n.health(); h.Share != 0.05 {
		t.Errorf("share %v at first, want little", h.Share)
	}
	c.wait(30 * time.Second)
	if h := n.health(); h.Share != 0.05 {
		t.Errorf("share %v without a success", h.Share)
	}
	last := 0.0
	for range 20 {
		n.call(success, account("a"))
		share := n.health().Share
		if share < last || share > 0.5 {
			t.Errorf("share %v after %v, want it to grow to half", share, last)
		}
		last = share
	}
	if last != 0.5 {
		t.Errorf("share %v after half of the time and 20 successes", last)
	}
	n.call(failure, account("a"))
	if h := n.health(); h.Share != 0.05 {
		t.Errorf("share %v while calls fail", h.Share)
	}
	c.now = closed.Add(time.Minute)
	if h := n.health(); h.Share != 1 {
		t.Errorf("share %v after a minute", h.Share)
	}
}

func TestEachTripDoublesTheTimeThatCallsTakeToComeBack(t *testing.T) {
	c := newCluster(t, 0)
	for i, want := range []time.Duration{time.Minute, 2 * time.Minute, 4 * time.Minute, 8 * time.Minute, 8 * time.Minute} {
		c.trip()
		c.close()
		c.wait(want - time.Second)
		if h := c.nodes[0].health(); h.Share == 1 {
			t.Errorf("trip %d: all calls are back within %v", i+1, want)
		}
		c.wait(time.Second)
		if h := c.nodes[0].health(); h.Share != 1 {
			t.Errorf("trip %d: share %v after %v", i+1, h.Share, want)
		}
		c.wait(31 * time.Second) // past the ramp
	}
	c.wait(time.Hour)
	c.trip()
	if r := c.shared.Record("a"); r.Trips != 1 {
		t.Errorf("%d trips are remembered after a healthy hour", r.Trips)
	}
}

// A probe that fails is no trip: a long outage must not slow the return down.
func TestALongOutageIsOneTrip(t *testing.T) {
	c := newCluster(t, 0)
	c.trip()
	for range 5 {
		c.due()
		c.nodes[0].call(failure, account("a"))
	}
	if r := c.shared.Record("a"); r.Trips != 1 || r.OpenCount != 6 {
		t.Errorf("record %+v", r)
	}
}

func TestASlowAccountIsLeftOnlyForABetterOne(t *testing.T) {
	slowly := resilience.BreakerConfig{SlowRate: 0.5, SlowCall: time.Second}
	scope := func(name string) resilience.Scope { return resilience.Scope{Name: name, Breaker: &slowly} }
	for name, test := range map[string]struct {
		others []string
		before func(n *process)
		want   resilience.State
	}{
		"alone":                            {nil, func(*process) {}, resilience.Open},
		"beside one that has had no calls": {[]string{"b"}, func(*process) {}, resilience.Open},
		"beside one that is quick": {[]string{"b"}, func(n *process) {
			for range 10 {
				n.call(success, scope("b"))
			}
		}, resilience.Open},
		"beside one that is as slow": {[]string{"b"}, func(n *process) {
			for range 10 {
				n.pass(scope("b")).Done(n.t.Context(), success, time.Second, n.clock())
			}
		}, resilience.Closed},
		"beside one that may not be called": {[]string{"b"}, func(n *process) {
			n.member.Throttle("b", n.clock().Add(time.Minute), n.clock())
		}, resilience.Closed},
		"beside two, one of them quick": {[]string{"b", "d"}, func(n *process) {
			n.member.Throttle("b", n.clock().Add(time.Minute), n.clock())
			n.call(success, scope("d"))
		}, resilience.Open},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 0)
			n := c.nodes[0]
			n.member.SetAlternatives(func(of string) []string {
				if of == "a" {
					return test.others
				}
				return []string{"a"}
			})
			test.before(n)
			for range resilience.DefaultMinCalls {
				n.pass(scope("a")).Done(t.Context(), success, time.Second, n.clock())
			}
			c.sync()
			c.wantState("a", test.want)
			if test.want == resilience.Open {
				if r := c.shared.Record("a"); r.Reason != resilience.ReasonSlow {
					t.Errorf("opened because %s", r.Reason)
				}
			}
		})
	}
}
