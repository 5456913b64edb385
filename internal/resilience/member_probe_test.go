package resilience_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/simulation"
)

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
