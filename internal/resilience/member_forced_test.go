package resilience_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// bare is a scope that has no breaker of its own, as a webhook account is.
func bare() resilience.Scope { return resilience.Scope{Name: "a"} }

func TestAScopeWithoutABreakerIsForcedOpenEverywhere(t *testing.T) {
	c := newCluster(t, 0, time.Hour)
	underway := c.nodes[1].pass(bare())
	c.operate(func(b *resilience.Breaker, now time.Time) resilience.Transition {
		return b.ForceOpen(resilience.Override{Who: "ana", Why: "incident"}, now)
	})
	c.sync()
	for _, n := range c.nodes {
		n.denied(resilience.KindBreaker, bare())
	}
	if _, ok := underway.Start(c.nodes[1].clock()); ok {
		t.Error("a call that was admitted before starts all the same")
	}
	c.wait(time.Hour)
	c.nodes[0].denied(resilience.KindBreaker, bare())
	c.operate(func(b *resilience.Breaker, now time.Time) resilience.Transition {
		return b.Reset(resilience.Override{Who: "ana"}, now)
	})
	c.sync()
	for _, n := range c.nodes {
		n.call(success, bare())
	}
}

func TestAScopeWithoutABreakerNeedsNoProbeWhenItsForcedTimeIsOver(t *testing.T) {
	c := newCluster(t, 0, -time.Hour)
	c.operate(func(b *resilience.Breaker, now time.Time) resilience.Transition {
		return b.ForceOpen(resilience.Override{Who: "ana", Until: now.Add(time.Minute)}, now)
	})
	c.sync()
	c.wait(time.Minute - time.Millisecond)
	c.nodes[0].denied(resilience.KindBreaker, bare())
	c.wait(time.Millisecond)
	for range 3 { // all at once, and what they find says nothing about the scope
		c.nodes[0].fail(5, bare())
		c.nodes[1].fail(5, bare())
	}
	c.sync()
	c.wantState("a", resilience.Closed)
	if r := c.shared.Record("a"); r.Reason != resilience.ReasonForceOver {
		t.Errorf("closed because of %s", r.Reason)
	}
}

func TestWhatWasForcedIsShownUntilItIsOver(t *testing.T) {
	c := newCluster(t, time.Hour)
	c.operate(func(b *resilience.Breaker, now time.Time) resilience.Transition {
		return b.ForceClosed(resilience.Override{Who: "ana", Until: now.Add(time.Minute)}, now)
	})
	c.sync()
	n := c.nodes[0]
	shown := func() *resilience.Override { return n.member.Snapshot(n.clock())[0].Breaker.Forced }
	if by := shown(); by == nil || by.Who != "ana" || !by.Until.Equal(n.clock().Add(time.Minute)) {
		t.Errorf("forced by %+v", by)
	}
	c.wait(time.Minute)
	if by := shown(); by != nil {
		t.Errorf("still forced by %+v", by)
	}
}
