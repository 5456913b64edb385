package resilience_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

func TestMembersProbeOneAtATime(t *testing.T) {
	c := newCluster(t, 0, time.Hour, -time.Hour)
	c.trip()
	c.due()
	probe := c.nodes[1].pass(account("a"))
	if !probe.Probe() {
		t.Fatal("not a probe")
	}
	for i, n := range c.nodes {
		if left := n.denied(resilience.KindBreaker, account("a")); left > 5*time.Second {
			t.Errorf("process %d waits %v for the verdict, want 5 s at most", i, left)
		}
	}
	c.nodes[1].done(probe, success)
	c.sync()
	second := c.nodes[2].pass(account("a"))
	c.nodes[0].denied(resilience.KindBreaker, account("a"))
	c.nodes[2].done(second, success)
	c.wantState("a", resilience.Closed)
}

func TestMemberAsksOnceWhileAClaimIsOnItsWay(t *testing.T) {
	c := newCluster(t, 0)
	c.trip()
	c.due()
	n := c.nodes[0]
	n.link.Via = func(_ simulation.Op, do func()) error {
		n.link.Via = nil
		for range 10 {
			n.denied(resilience.KindBreaker, account("a"))
		}
		do()
		return nil
	}
	before := c.shared.Calls(simulation.OpUpdate)
	n.pass(account("a"))
	if got := c.shared.Calls(simulation.OpUpdate) - before; got != 1 {
		t.Errorf("asked %d times", got)
	}
}

func TestMemberGivesUpALostProbeWhenItsLeaseEnds(t *testing.T) {
	tests := []struct {
		name string
		lose func(c *cluster)
	}{
		{"the prober died", func(c *cluster) { c.nodes[0].pass(account("a")) }},
		{"the claim's answer was lost", func(c *cluster) {
			c.nodes[0].loses(simulation.OpUpdate, true)
			c.nodes[0].denied(resilience.KindBreaker, account("a"))
		}},
		{"the verdict was lost", func(c *cluster) {
			p := c.nodes[0].pass(account("a"))
			c.nodes[0].loses(simulation.OpUpdate, false)
			c.nodes[0].done(p, success)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 0, 0)
			c.trip()
			c.due()
			tt.lose(c)
			c.wait(time.Minute - time.Millisecond)
			c.nodes[1].refresh()
			c.nodes[1].denied(resilience.KindBreaker, account("a"))
			c.wait(time.Millisecond)
			if p := c.nodes[1].pass(account("a")); !p.Probe() {
				t.Error("not a probe")
			}
		})
	}
}

func TestMemberClaimsAgainAfterALostRequest(t *testing.T) {
	c := newCluster(t, 0)
	c.trip()
	c.due()
	n := c.nodes[0]
	n.loses(simulation.OpUpdate, false)
	if left := n.denied(resilience.KindBreaker, account("a")); left <= 0 || left > time.Second {
		t.Errorf("asks again after %v", left)
	}
	if p := n.pass(account("a")); !p.Probe() {
		t.Error("not a probe")
	}
}

func TestMemberVoidsALateVerdict(t *testing.T) {
	for _, e := range []resilience.Evidence{success, failure, {Verdict: resilience.Rejected}, none} {
		c := newCluster(t, 0, 0)
		c.trip()
		c.due()
		late := c.nodes[0].pass(account("a"))
		c.wait(time.Minute)
		probe := c.nodes[1].pass(account("a"))
		c.nodes[0].done(late, e)
		if r := c.shared.Record("a"); r.State != resilience.HalfOpen || !r.Probing || r.Successes != 0 {
			t.Fatalf("after a late verdict %v: %+v", e.Verdict, r)
		}
		c.nodes[1].done(probe, success)
		if r := c.shared.Record("a"); r.Successes != 1 {
			t.Errorf("the verdict in time does not count: %+v", r)
		}
	}
}

func TestMemberTellsUntilWhenAProbeMayRun(t *testing.T) {
	c := newCluster(t, time.Hour)
	n := c.nodes[0]
	plain := n.pass(account("a"))
	if until, ok := plain.Start(n.clock()); !until.IsZero() || !ok {
		t.Errorf("a plain call may run until %v, %t", until, ok)
	}
	n.done(plain, success)
	c.trip()
	c.due()
	p := n.pass(account("a"))
	if until, ok := p.Start(n.clock()); !ok || until.Sub(n.clock()) != time.Minute {
		t.Errorf("a probe may run for %v, %t", until.Sub(n.clock()), ok)
	}
	c.wait(time.Minute)
	if _, ok := p.Start(n.clock()); ok {
		t.Error("a probe starts after its lease")
	}
}

func TestMemberLooksAgainBeforeTheCall(t *testing.T) {
	c := newCluster(t, 0)
	n := c.nodes[0]
	scopes := []resilience.Scope{account("a"), sender("a/s")}
	p := n.pass(scopes...)
	n.member.Throttle("a/s", n.clock().Add(time.Second), n.clock())
	if _, ok := p.Start(n.clock()); ok {
		t.Error("starts before the instant that was named meanwhile")
	}
	c.wait(time.Second)
	if _, ok := p.Start(n.clock()); !ok {
		t.Error("does not start although the gate is open again")
	}
	c.trip()
	if _, ok := p.Start(n.clock()); ok {
		t.Error("starts although the breaker opened meanwhile")
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

func TestMemberFreesAProbeThatWasWithdrawn(t *testing.T) {
	c := newCluster(t, 0, 0)
	c.trip()
	c.due()
	c.nodes[0].pass(account("a")).Withdraw(t.Context(), c.nodes[0].clock())
	if p := c.nodes[1].pass(account("a")); !p.Probe() {
		t.Error("not a probe")
	}
}

func TestMemberFreesTheProbeOfOneScopeThatAnotherDenies(t *testing.T) {
	c := newCluster(t, 0)
	n := c.nodes[0]
	c.trip()
	n.fail(5, account("b"))
	c.sync()
	c.due()
	other := n.pass(account("b")) // the probe of b
	n.denied(resilience.KindBreaker, account("a"), account("b"))
	if c.shared.Record("a").Probing {
		t.Error("a's probe is taken by a call that was not made")
	}
	n.done(other, success)
	n.call(success, account("a"), account("b"))
}

func TestMemberKeepsAnAnswersGateAtOnceAndTheOthersOnceTheyHear(t *testing.T) {
	c := newCluster(t, 0, time.Hour)
	a, b := c.nodes[0], c.nodes[1]
	scope := sender("a/s")
	a.member.Throttle("a/s", a.clock().Add(10*time.Second), a.clock())
	if left := a.denied(resilience.KindGate, scope); left != 10*time.Second {
		t.Errorf("denied for %v", left)
	}
	b.pass(scope) // it cannot know yet
	a.flush()
	b.refresh()
	if left := b.denied(resilience.KindGate, scope); left < 10*time.Second || left > 10*time.Second+time.Second {
		t.Errorf("the other is denied for %v", left)
	}
	a.member.Throttle("a/s", a.clock().Add(5*time.Second), a.clock())
	c.sync()
	for _, n := range c.nodes {
		if left := n.denied(resilience.KindGate, scope); left < 10*time.Second {
			t.Errorf("the gate moved %v earlier", 10*time.Second-left)
		}
	}
}

func TestMemberHandsAGateInUntilItIsTaken(t *testing.T) {
	c := newCluster(t, 0, 0)
	a, b := c.nodes[0], c.nodes[1]
	until := a.clock().Add(10 * time.Second)
	a.member.Throttle("a/s", until, a.clock())
	for range 3 {
		a.loses(simulation.OpThrottle, false)
		if err := a.member.Flush(t.Context(), a.clock()); err == nil {
			t.Fatal("a failed hand-in is no error")
		}
		c.wait(time.Second)
	}
	a.flush()
	b.refresh()
	if left := b.denied(resilience.KindGate, sender("a/s")); left < until.Sub(b.clock()) {
		t.Errorf("denied for %v, want %v", left, until.Sub(b.clock()))
	}
}

func TestMemberHandsEvidenceInUntilItIsTaken(t *testing.T) {
	for _, op := range []simulation.Op{simulation.OpReport, simulation.OpUpdate} {
		c := newCluster(t, 0)
		n := c.nodes[0]
		n.fail(5, account("a"))
		n.loses(op, false)
		if err := n.member.Flush(t.Context(), n.clock()); err == nil {
			t.Fatal("a failed hand-in is no error")
		}
		n.flush()
		c.wantState("a", resilience.Open)
	}
}

// A refresh that was long under way must not open a gate before its time.
func TestMemberCountsTheTimeThatAnAnswerTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 0, 0)
		c.now = time.Now()
		a, b := c.nodes[0], c.nodes[1]
		a.member.Throttle("a/s", c.now.Add(10*time.Second), c.now)
		a.flush()
		b.link.Via = func(_ simulation.Op, do func()) error {
			time.Sleep(2 * time.Second) //nolint:forbidigo // the request waits for a connection, by the clock of the bubble
			c.wait(2 * time.Second)
			do()
			return nil
		}
		b.refresh()
		if left := b.denied(resilience.KindGate, sender("a/s")); left < 8*time.Second {
			t.Errorf("denied for %v, want 8 s", left)
		}
	})
}

func TestMemberIgnoresOldNews(t *testing.T) {
	c := newCluster(t, 0)
	n := c.nodes[0]
	c.operate(func(b *resilience.Breaker, now time.Time) resilience.Transition {
		return b.ForceClosed(resilience.Override{Who: "ana", Until: now.Add(time.Second)}, now)
	})
	c.sync()
	c.wait(2 * time.Second)
	n.link.Via = func(_ simulation.Op, do func()) error {
		do() // reads that it is closed
		n.link.Via = nil
		n.fail(5, account("a"))
		n.flush() // and opens it before the answer is there
		return nil
	}
	n.refresh()
	c.wantState("a", resilience.Open)
	c.wait(6 * time.Second) // longer than it holds itself back
	n.denied(resilience.KindBreaker, account("a"))
}

// What was learned is rounded up, and must not keep from the others what was read.
func TestMemberHandsInWhatIsShorterThanWhatItLearned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 0, 0)
		c.now = time.Now()
		a, b := c.nodes[0], c.nodes[1]
		a.member.Throttle("a/s", c.now.Add(10*time.Second), c.now)
		a.flush()
		b.link.Via = func(_ simulation.Op, do func()) error {
			do()
			time.Sleep(2 * time.Second) //nolint:forbidigo // the answer is slow, by the clock of the bubble
			c.wait(2 * time.Second)
			b.link.Via = nil
			return nil
		}
		b.refresh()
		until := c.now.Add(9 * time.Second) // a second more than all know, a second less than b does
		b.member.Throttle("a/s", until, c.now)
		b.flush()
		a.refresh()
		if left := a.denied(resilience.KindGate, sender("a/s")); left != 9*time.Second {
			t.Errorf("the other is denied for %v, want 9 s", left)
		}
	})
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

func TestMemberFollowsAnOperator(t *testing.T) {
	by := resilience.Override{Who: "ana", Why: "maintenance"}
	t.Run("forced open for good", func(t *testing.T) {
		c := newCluster(t, 0, time.Hour)
		c.operate(func(b *resilience.Breaker, now time.Time) resilience.Transition { return b.ForceOpen(by, now) })
		c.sync()
		c.wait(100 * time.Hour)
		if _, d := c.nodes[1].admit(account("a")); d == nil || !d.Until.IsZero() {
			t.Fatalf("denial %+v, want one without an end", d)
		}
		if room := c.nodes[1].member.Room("a", time.Second, c.nodes[1].clock()); room != 0 {
			t.Errorf("room for %d", room)
		}
		c.operate(func(b *resilience.Breaker, now time.Time) resilience.Transition { return b.Reset(by, now) })
		c.sync()
		c.nodes[1].call(success, account("a"))
	})
	t.Run("forced closed until an instant", func(t *testing.T) {
		c := newCluster(t, 0, time.Hour)
		by := resilience.Override{Who: "ana", Why: "test", Until: c.now.Add(time.Minute)}
		c.operate(func(b *resilience.Breaker, now time.Time) resilience.Transition { return b.ForceClosed(by, now) })
		c.sync()
		for _, n := range c.nodes {
			n.fail(100, account("a"))
			n.call(resilience.Evidence{Verdict: resilience.Rejected}, account("a"))
			n.fail(100, account("a")) // nor does it hold itself back
		}
		c.sync()
		c.wantState("a", resilience.Closed)
		c.wait(time.Minute)
		c.sync()
		c.wantState("a", resilience.Closed) // what failed meanwhile is void
		for _, n := range c.nodes {
			n.fail(5, account("a"))
		}
		c.sync()
		c.wantState("a", resilience.Open)
	})
	t.Run("reset", func(t *testing.T) {
		c := newCluster(t, 0, time.Hour)
		c.trip()
		n := c.nodes[0]
		n.member.Throttle("a", n.clock().Add(time.Minute), n.clock())
		c.wait(time.Second)
		c.operate(func(b *resilience.Breaker, now time.Time) resilience.Transition { return b.Reset(by, now) })
		n.refresh()
		n.call(success, account("a")) // neither breaker, nor gate, nor what it decided for itself
		if p := n.pass(account("a")); p.Probe() {
			t.Error("a probe of a breaker that was reset")
		}
		n.flush() // what the operator overruled is not handed in
		c.nodes[1].refresh()
		c.nodes[1].call(success, account("a"))
	})
	t.Run("reset before the provider spoke again", func(t *testing.T) {
		c := newCluster(t, 0, time.Hour)
		c.operate(func(b *resilience.Breaker, now time.Time) resilience.Transition { return b.Reset(by, now) })
		c.wait(time.Second)
		n := c.nodes[0]
		n.member.Throttle("a", n.clock().Add(time.Minute), n.clock())
		c.wait(time.Second)
		n.refresh() // the news of the reset comes late
		n.denied(resilience.KindGate, account("a"))
		c.sync()
		c.nodes[1].denied(resilience.KindGate, account("a"))
	})
}

func TestMemberOutlivesAForgottenRecord(t *testing.T) {
	t.Run("that it takes for open", func(t *testing.T) {
		c := newCluster(t, 0)
		c.trip()
		c.wait(time.Hour)
		c.shared.Forget("a")
		p := c.nodes[0].pass(account("a"))
		if p.Probe() {
			t.Error("a probe of a breaker that is closed")
		}
		c.nodes[0].done(p, success)
		c.nodes[0].call(success, account("a"))
	})
	t.Run("that it takes for closed", func(t *testing.T) {
		c := newCluster(t, 0)
		c.trip()
		old := c.shared.Record("a").Generation
		c.due()
		c.nodes[0].call(success, account("a"))
		c.nodes[0].call(success, account("a"))
		c.wait(time.Hour)
		c.shared.Forget("a")
		c.trip() // in one round of flushes
		if got := c.shared.Record("a").Generation; got <= old {
			t.Errorf("generation %d after %d", got, old)
		}
	})
}

func TestMemberShowsWhatItKnows(t *testing.T) {
	c := newCluster(t, 0, time.Hour)
	c.trip()
	n := c.nodes[1]
	n.member.Throttle("b/s", n.clock().Add(time.Minute), n.clock())
	got := n.member.Snapshot(n.clock())
	if len(got) != 2 || got[0].Scope != "a" || got[1].Scope != "b/s" {
		t.Fatalf("%+v", got)
	}
	b := got[0].Breaker
	if b.State != resilience.Open || b.OpenUntil.Sub(n.clock()).Round(time.Second) != 30*time.Second || b.Reason != resilience.ReasonFailures {
		t.Errorf("%+v", b)
	}
	if got[1].GateUntil.Sub(n.clock()) != time.Minute {
		t.Errorf("%+v", got[1])
	}
	if notes := n.member.Transitions(); len(notes) != 1 || notes[0].To != resilience.Open || len(n.member.Transitions()) != 0 {
		t.Errorf("%+v", notes)
	}
	for _, scope := range []string{"a", "b/s"} {
		if room := n.member.Room(scope, time.Second, n.clock()); room != 0 {
			t.Errorf("%s has room for %d", scope, room)
		}
	}
	c.due()
	c.wait(time.Millisecond)
	if room := n.member.Room("a", time.Second, n.clock()); room != 1 {
		t.Errorf("room for %d, want the probe", room)
	}
}

func TestMemberKnowsWhetherItHasLearned(t *testing.T) {
	c := newCluster(t, 0)
	n := c.nodes[0]
	n.loses(simulation.OpChanged, true)
	if err := n.member.Refresh(t.Context(), n.clock()); err == nil || n.member.Known() {
		t.Errorf("error %v, known %t after a lost answer", err, n.member.Known())
	}
	if n.refresh(); !n.member.Known() {
		t.Error("knows nothing after a refresh")
	}
}

func TestMemberRemembersOnlySoManyHosts(t *testing.T) {
	c := newCluster(t, 0)
	n := c.nodes[0]
	for i := range 50_000 {
		host := account(fmt.Sprint("hook/", i))
		n.call([]resilience.Evidence{success, failure}[i%2], host)
		n.member.Throttle(host.Name, c.now.Add(time.Hour), c.now)
		n.admit(host)
	}
	if got := len(n.member.Snapshot(c.now)); got > 20_000 {
		t.Errorf("%d gates are known", got)
	}
	if got := resilience.Watched(n.member); got > 20_000 {
		t.Errorf("%d scopes are watched", got)
	}
	n.fail(5, account("new")) // a place is found for one in trouble
	c.sync()
	c.wantState("new", resilience.Open)
	c.wait(24 * time.Hour)
	for range 60 {
		n.flush()
	}
	if got := resilience.Watched(n.member); got > 1 {
		t.Errorf("%d scopes are still watched a day later", got)
	}
}

func TestMemberIsSafeForConcurrentUse(t *testing.T) {
	var ticks atomic.Int64
	clock := func() time.Time { return start.Add(time.Duration(ticks.Add(1)) * 10 * time.Millisecond) }
	shared := simulation.NewShared(clock)
	var probes, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 3 {
		m := resilience.NewMember(shared.Link(string(rune('a'+i))), func() float64 { return middle })
		for j := range 4 {
			wg.Go(func() {
				for k := range 400 {
					p, denial := m.Admit(t.Context(), []resilience.Scope{account("a"), sender("a/s")}, clock())
					if denial == nil {
						if _, ok := p.Start(clock()); !ok {
							p.Withdraw(t.Context(), clock())
							continue
						}
						if p.Probe() {
							most.Store(max(most.Load(), probes.Add(1)))
						}
						e := success
						if (k/50)%2 == 0 {
							e = failure
						}
						if p.Probe() {
							probes.Add(-1)
						}
						p.Done(t.Context(), e, time.Millisecond, clock())
					}
					if k%40 == j {
						m.Throttle("a/s", clock().Add(20*time.Millisecond), clock())
					}
				}
			})
		}
		wg.Go(func() {
			for range 200 {
				_ = m.Flush(t.Context(), clock())
				_ = m.Refresh(t.Context(), clock())
				m.Room("a", time.Second, clock())
				m.Snapshot(clock())
				m.Transitions()
			}
		})
	}
	wg.Wait()
	if got := most.Load(); got > 1 {
		t.Errorf("%d probes at once", got)
	}
	generation := uint64(0)
	for _, c := range shared.Transitions() {
		if c.Generation != generation+1 && generation != 0 {
			t.Errorf("generation %d after %d", c.Generation, generation)
		}
		generation = c.Generation
	}
	if generation == 0 {
		t.Error("the breaker never changed")
	}
}

func BenchmarkMemberCallOfAScopeThatIsWell(b *testing.B) {
	m := resilience.NewMember(simulation.NewShared(time.Now).Link("a"), func() float64 { return middle })
	scopes := []resilience.Scope{account("a"), sender("a/s")}
	b.ReportAllocs()
	for b.Loop() {
		now := time.Now()
		p, denial := m.Admit(b.Context(), scopes, now)
		if denial != nil {
			b.Fatal(denial)
		}
		p.Start(now)
		p.Done(b.Context(), success, time.Millisecond, now)
	}
}
