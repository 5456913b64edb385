package resilience_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/simulation"
)

var errLost = errors.New("connection reset")

// cluster is some processes, each with a clock of its own, that share breakers
// and gates, whose clock is another one.
type cluster struct {
	t      *testing.T
	now    time.Time
	shared *simulation.Shared
	nodes  []*process
}

type process struct {
	*cluster
	member *resilience.Member
	link   *simulation.Link
	skew   time.Duration
}

// newCluster makes processes whose clocks are ahead by the skews given.
func newCluster(t *testing.T, skews ...time.Duration) *cluster {
	t.Helper()
	c := &cluster{t: t, now: start}
	c.shared = simulation.NewShared(func() time.Time { return c.now })
	for i, skew := range skews {
		link := c.shared.Link(string(rune('a' + i)))
		member := resilience.NewMember(link, func() float64 { return middle })
		c.nodes = append(c.nodes, &process{c, member, link, skew})
	}
	return c
}

func (c *cluster) wait(d time.Duration) { c.now = c.now.Add(d) }

// sync lets every process hand in and learn, twice, so that all know all.
func (c *cluster) sync() {
	c.t.Helper()
	for range 2 {
		for _, n := range c.nodes {
			n.flush()
			n.refresh()
		}
	}
}

func (n *process) clock() time.Time { return n.now.Add(n.skew) }

func (n *process) flush() {
	n.t.Helper()
	if err := n.member.Flush(n.t.Context(), n.clock()); err != nil {
		n.t.Fatalf("flush: %v", err)
	}
}

func (n *process) refresh() {
	n.t.Helper()
	if err := n.member.Refresh(n.t.Context(), n.clock()); err != nil {
		n.t.Fatalf("refresh: %v", err)
	}
}

func (n *process) admit(scopes ...resilience.Scope) (*resilience.Pass, *resilience.Denial) {
	return n.member.Admit(n.t.Context(), scopes, n.clock())
}

// pass is a call that must be let through.
func (n *process) pass(scopes ...resilience.Scope) *resilience.Pass {
	n.t.Helper()
	p, d := n.admit(scopes...)
	if d != nil {
		n.t.Fatalf("denied: %+v", d)
	}
	return p
}

// denied is a call that must not; it returns for how long.
func (n *process) denied(kind resilience.Kind, scopes ...resilience.Scope) time.Duration {
	n.t.Helper()
	p, d := n.admit(scopes...)
	if p != nil {
		n.t.Fatalf("admitted, want a denial by %s", kind)
	}
	if d.Kind != kind {
		n.t.Fatalf("denied by %s, want %s", d.Kind, kind)
	}
	return d.Until.Sub(n.clock())
}

func (n *process) done(p *resilience.Pass, e resilience.Evidence) {
	p.Done(n.t.Context(), e, 0, n.clock())
}

func (n *process) call(e resilience.Evidence, scopes ...resilience.Scope) {
	n.t.Helper()
	n.done(n.pass(scopes...), e)
}

// fail makes calls that fail, all under way at once.
func (n *process) fail(times int, scopes ...resilience.Scope) {
	n.t.Helper()
	var passes []*resilience.Pass
	for range times {
		passes = append(passes, n.pass(scopes...))
	}
	for _, p := range passes {
		n.done(p, failure)
	}
}

func (c *cluster) wantState(scope string, want resilience.State) {
	c.t.Helper()
	if got := c.shared.Record(scope).State; got != want && (got != "" || want != resilience.Closed) {
		c.t.Fatalf("state %s, want %s; changes %+v", got, want, c.shared.Transitions())
	}
}

// trip opens the breaker of a with the failures of the first two processes.
func (c *cluster) trip() {
	c.t.Helper()
	for _, n := range c.nodes[:min(2, len(c.nodes))] {
		n.fail(5, account("a"))
	}
	c.sync()
	c.wantState("a", resilience.Open)
}

// due waits until the open time is over.
func (c *cluster) due() { c.now = c.shared.Record("a").OpenUntil }

// operate changes a breaker as an operator's request does.
func (c *cluster) operate(do func(b *resilience.Breaker, now time.Time) resilience.Transition) {
	c.t.Helper()
	_, _, err := c.shared.Link("operator").Update(context.Background(), "a", func(r resilience.BreakerRecord, now time.Time) (resilience.BreakerRecord, resilience.Transition) {
		b := resilience.RestoreBreaker(resilience.BreakerConfig{}, r)
		t := do(b, now)
		return b.Record(), t
	})
	if err != nil {
		c.t.Fatalf("update: %v", err)
	}
}

// loses drops the next answer of an operation, after it was done or before.
func (n *process) loses(op simulation.Op, done bool) {
	n.link.Via = func(got simulation.Op, do func()) error {
		if got != op {
			do()
			return nil
		}
		n.link.Via = nil
		if done {
			do()
		}
		return errLost
	}
}
