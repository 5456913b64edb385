package resilience_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/simulation"
)

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
