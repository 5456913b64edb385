package resilience_test

import (
	"slices"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/simulation"
)

func TestMemberAsksNobodyAboutAScopeThatIsWell(t *testing.T) {
	c := newCluster(t, 0)
	n := c.nodes[0]
	for range 100 {
		n.call(success, account("a"), sender("a/s"))
		n.call(neutral, account("a"))
		n.call(none, account("a"))
	}
	for _, op := range []simulation.Op{simulation.OpUpdate, simulation.OpReport, simulation.OpThrottle, simulation.OpChanged} {
		if got := c.shared.Calls(op); got != 0 {
			t.Errorf("%d calls of %s", got, op)
		}
	}
	n.flush()
	n.flush()
	if got := c.shared.Calls(simulation.OpReport); got != 1 {
		t.Errorf("evidence handed in %d times, want once: nothing is new the second time", got)
	}
}

func TestMemberAloneOpensAfterFiveFailures(t *testing.T) {
	c := newCluster(t, 0, 0)
	a := c.nodes[0]
	a.fail(4, account("a"))
	c.sync()
	c.wantState("a", resilience.Closed)
	a.fail(1, account("a"))
	select {
	case <-a.member.Kicked():
	default:
		t.Error("does not ask for a flush at once")
	}
	c.sync()
	c.wantState("a", resilience.Open)
	if left := c.nodes[1].denied(resilience.KindBreaker, account("a")); left != 30*time.Second {
		t.Errorf("the other process is denied for %v, want 30 s", left)
	}
}

func TestMemberNeedsASecondWitness(t *testing.T) {
	c := newCluster(t, 0, 0)
	sick, well := c.nodes[0], c.nodes[1]
	well.call(success, account("a"))
	well.flush()
	sick.fail(20, account("a"))
	c.sync()
	c.wantState("a", resilience.Closed)
	well.call(success, account("a"))

	if left := sick.denied(resilience.KindBreaker, account("a")); left <= 0 || left > 5*time.Second {
		t.Errorf("the sick process holds itself back for %v, want at most 5 s", left)
	}
	c.wait(5 * time.Second)
	probe := sick.pass(account("a"))
	sick.denied(resilience.KindBreaker, account("a")) // one at a time
	sick.done(probe, success)
	sick.call(success, account("a"))

	// The other one's silence, or its own failures, let the evidence count.
	for _, n := range c.nodes {
		n.fail(3, account("a"))
	}
	c.sync()
	c.wantState("a", resilience.Open)
}

func TestMemberHoldsItselfBackForFiveSecondsAtMost(t *testing.T) {
	c := newCluster(t)
	for _, rand := range []float64{0, middle, 0.999999} {
		for _, e := range []resilience.Evidence{failure, {Verdict: resilience.Failure, RetryAfter: time.Hour}} {
			m := resilience.NewMember(c.shared.Link("x"), func() float64 { return rand })
			n := &process{cluster: c, member: m}
			for range 3 { // also when it fails again and again
				for range 5 {
					if p, d := n.admit(account("a")); d == nil {
						n.done(p, e)
					}
				}
				n.denied(resilience.KindBreaker, account("a"))
				c.wait(5 * time.Second)
				n.done(n.pass(account("a")), e)
				n.denied(resilience.KindBreaker, account("a"))
				c.wait(5 * time.Second)
			}
		}
	}
}

func TestMemberOpensByRates(t *testing.T) {
	byRate := resilience.BreakerConfig{FailureRate: 0.5, SlowRate: 0.5, SlowCall: time.Second}
	scope := resilience.Scope{Name: "a", Breaker: &byRate}
	tests := []struct {
		name   string
		by     []int // the processes that see it
		even   resilience.Evidence
		took   time.Duration
		reason resilience.Reason
	}{
		{"failures of one process alone", []int{0}, failure, 0, resilience.ReasonFailureRate},
		{"slow calls of one process alone", []int{0}, success, time.Second, resilience.ReasonSlow},
		{"failures of both", []int{0, 1}, failure, 0, resilience.ReasonFailureRate},
		{"slow calls of both", []int{0, 1}, success, time.Second, resilience.ReasonSlow},
		{"calls that are quick enough", []int{0, 1}, success, time.Second - 1, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 0, 0)
			for _, i := range tt.by {
				for range 20 {
					c.nodes[i].pass(scope).Done(t.Context(), tt.even, tt.took, c.now)
					c.nodes[i].call(success, scope)
				}
			}
			c.sync()
			if got := c.shared.Record("a").Reason; got != tt.reason {
				t.Errorf("opened because %q, want %q", got, tt.reason)
			}
		})
	}
	t.Run("not by one of two", func(t *testing.T) {
		c := newCluster(t, 0, 0)
		for range 20 {
			c.nodes[0].pass(scope).Done(t.Context(), success, time.Minute, c.now)
		}
		c.nodes[1].call(success, scope)
		c.nodes[1].flush()
		c.sync()
		c.wantState("a", resilience.Closed)
	})
}

func TestMemberVoidsEvidenceOfAnOlderGeneration(t *testing.T) {
	c := newCluster(t, 0, 0)
	a, b := c.nodes[0], c.nodes[1]
	var late []*resilience.Pass
	for range 10 {
		late = append(late, b.pass(account("a")))
	}
	a.fail(5, account("a"))
	a.flush()
	c.due()
	a.call(success, account("a"))
	a.call(success, account("a"))
	c.wantState("a", resilience.Closed)
	generation := c.shared.Record("a").Generation

	// b has heard of nothing and hands in what it saw under the generation that it
	// knows, and again once it knows better.
	for _, p := range late {
		b.done(p, failure)
	}
	c.sync()
	c.sync()
	if got := c.shared.Record("a").Generation; got != generation {
		t.Errorf("generation %d, want %d: old failures count", got, generation)
	}
}

func TestMembersThatTripTogetherMakeOneStep(t *testing.T) {
	c := newCluster(t, 0, 0)
	for _, n := range c.nodes {
		n.fail(5, account("a"))
	}
	a := c.nodes[0]
	// The second one trips while the first one's update is on its way.
	a.link.Via = func(op simulation.Op, do func()) error {
		if op == simulation.OpUpdate {
			a.link.Via = nil
			c.nodes[1].flush()
		}
		do()
		return nil
	}
	a.flush()
	c.sync()
	if got := c.shared.Transitions(); len(got) != 1 || got[0].To != resilience.Open {
		t.Errorf("changes %+v, want one", got)
	}
}

func TestMemberOpensAtOnceWhenTheAccountIsRejected(t *testing.T) {
	c := newCluster(t, 0, 0)
	c.nodes[1].call(success, account("a"))
	c.nodes[1].flush()
	var passes []*resilience.Pass
	for range 5 {
		passes = append(passes, c.nodes[0].pass(account("a")))
	}
	for _, p := range passes {
		c.nodes[0].done(p, resilience.Evidence{Verdict: resilience.Rejected})
	}
	c.wantState("a", resilience.Open)
	if r := c.shared.Record("a"); r.Reason != resilience.ReasonRejected || r.OpenUntil.Sub(c.now) != 5*time.Minute {
		t.Errorf("%+v", r)
	}
	if got := c.shared.Calls(simulation.OpUpdate); got != 1 {
		t.Errorf("asked %d times about one change", got)
	}
}

func TestMemberNeverOpensOnNeutralAnswers(t *testing.T) {
	c := newCluster(t, 0, 0)
	for _, n := range c.nodes {
		for range 1000 {
			n.call(neutral, account("a"))
			n.call(none, account("a"))
		}
		n.pass(account("a")).Withdraw(t.Context(), n.clock())
	}
	c.sync()
	if got := c.shared.Transitions(); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	n := c.nodes[0]
	n.fail(4, account("a"))
	n.call(neutral, account("a")) // leaves the count as it is
	n.fail(1, account("a"))
	c.sync()
	c.wantState("a", resilience.Open)
}

func TestMemberSpreadsThoseItRefuses(t *testing.T) {
	c := newCluster(t, 0)
	n := c.nodes[0]
	n.member.Throttle("a/s", c.now.Add(10*time.Second), c.now)
	var ends []time.Duration
	for range 101 {
		ends = append(ends, n.denied(resilience.KindGate, sender("a/s")))
	}
	if ends[0] != 10*time.Second || ends[100] != 12*time.Second || !slices.IsSorted(ends) {
		t.Errorf("the first is refused for %v, the 101st for %v; want 10 s and 12 s", ends[0], ends[100])
	}
	c.wait(20 * time.Second)
	n.member.Throttle("a/s", c.now.Add(time.Second), c.now)
	if left := n.denied(resilience.KindGate, sender("a/s")); left != time.Second {
		t.Errorf("refused for %v when it is shut again, want 1 s", left)
	}
}

func TestMemberRampsUpAfterClosing(t *testing.T) {
	c := newCluster(t, 0, 0)
	c.trip()
	c.due()
	c.nodes[0].call(success, account("a"))
	c.nodes[0].call(success, account("a"))
	c.wantState("a", resilience.Closed)
	c.sync()
	n := c.nodes[1]               // it learned of the closing,
	n.call(success, account("a")) // and need not hold itself back
	var passes []*resilience.Pass
	for step, want := range []int{1, 2, 4, 8} {
		for len(passes) < want {
			passes = append(passes, n.pass(account("a")))
		}
		if left := n.denied(resilience.KindRamp, account("a")); left <= 0 || left > 5*time.Second {
			t.Errorf("step %d: asks again after %v", step, left)
		}
		c.wait(4 * time.Second)
	}
	for range 8 {
		n.done(passes[0], success)
		passes = append(passes[1:], n.pass(account("a")))
	}
	c.wait(30 * time.Second)
	for range 1000 {
		n.pass(account("a"))
	}
}
