package resilience_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

const ms = time.Millisecond

// node is one lease of a simulated cluster, whose source answers after a while.
type node struct {
	lease        resilience.Lease
	limit        resilience.Limit
	there, back  time.Duration // the way of an ask and of its answer
	asks, leased int
}

func newNode(limit resilience.Limit) *node {
	return &node{lease: resilience.NewLease(limit, resilience.LeaseConfig{}), limit: limit}
}

// take is one caller's turn: it returns what was decided and when. Where what was
// leased before ended while the source was asked, nobody has been refused, and
// until is zero.
func (n *node) take(source *resilience.GCRA, cost int, now time.Time) (ok bool, until, at time.Time) {
	n.lease.Demand(cost, now)
	standing, until := n.lease.Check(cost, now)
	if standing == resilience.Short {
		now = n.ask(source, cost, now)
		standing, until = n.lease.Check(cost, now)
	}
	if standing == resilience.Ready {
		n.lease.Spend(cost)
	}
	return standing == resilience.Ready, until, now
}

func (n *node) ask(source *resilience.GCRA, cost int, now time.Time) time.Time {
	missing := n.lease.Missing(cost)
	a := resilience.Ask{Limit: n.limit, Want: n.lease.Want(missing, now), Least: missing}
	g := source.Take(a.Limit, a.Want, a.Least, now.Add(n.there))
	answered := now.Add(n.there + n.back)
	n.lease.Settle(a, g, now, answered)
	n.asks, n.leased = n.asks+1, n.leased+g.Tokens
	return answered
}

func TestNodesThatLeaseKeepTheLimitTogether(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t)
		var source resilience.GCRA
		nodes := make([]*node, rapid.IntRange(1, 5).Draw(t, "nodes"))
		slack := resilience.DefaultLeaseTTL
		for i := range nodes {
			nodes[i] = newNode(limit)
			nodes[i].there = time.Duration(rapid.Int64Range(0, int64(80*ms)).Draw(t, "there"))
			nodes[i].back = time.Duration(rapid.Int64Range(0, int64(80*ms)).Draw(t, "back"))
			slack = max(slack, nodes[i].there+nodes[i].back+resilience.DefaultLeaseTTL/4)
		}
		gaps := []time.Duration{time.Microsecond, time.Microsecond, ms, 30 * ms, 300 * ms, 20 * time.Second}
		costs := rapid.SampledFrom([]int{1, 12}).Draw(t, "costs")
		now, spent := epoch, []spending{}
		for range rapid.IntRange(1, 300).Draw(t, "takes") {
			gap := rapid.SampledFrom(gaps).Draw(t, "gap")
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(gap)).Draw(t, "pause")))
			n := nodes[rapid.IntRange(0, len(nodes)-1).Draw(t, "node")]
			cost := rapid.IntRange(1, min(limit.Burst, costs)).Draw(t, "cost")
			ok, until, at := n.take(&source, cost, now)
			now = at
			if ok {
				spent = append(spent, spending{now, cost})
			} else if !until.IsZero() && until.Before(now) || until.After(now.Add(max(limit.Window(), 25*ms))) {
				t.Fatalf("refused until %v from now", until.Sub(now))
			}
		}
		checkWindows(t, spent, limit, slack)
		total, leased := 0, 0
		for _, s := range spent {
			total += s.n
		}
		for _, n := range nodes {
			leased += n.leased
		}
		if total > leased {
			t.Fatalf("%d tokens were spent of %d leased", total, leased)
		}
	})
}

func TestOneWhoWaitsAsLongAsToldIsLetThrough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t)
		var source resilience.GCRA
		n := newNode(limit)
		n.there = time.Duration(rapid.Int64Range(0, int64(5*ms)).Draw(t, "there"))
		now := epoch
		for range rapid.IntRange(1, 100).Draw(t, "takes") {
			ok, until, at := n.take(&source, 1, now)
			now = at
			if ok {
				continue
			}
			if ok, _, at := n.take(&source, 1, until); !ok {
				t.Fatalf("refused again after %v", until.Sub(now))
			} else {
				now = at
			}
		}
	})
}

func TestLease(t *testing.T) {
	t.Parallel()
	limit := resilience.Limit{PerSecond: 1000, Burst: 1000}
	t.Run("asks for one when nothing is known of the demand", func(t *testing.T) {
		t.Parallel()
		n, source := newNode(limit), resilience.GCRA{}
		if ok, _, _ := n.take(&source, 1, epoch); !ok || n.leased != 1 {
			t.Errorf("let through %v with %d leased, want one", ok, n.leased)
		}
	})
	t.Run("asks for what was wanted during the last time to live, up to the maximum", func(t *testing.T) {
		t.Parallel()
		for _, c := range []struct{ each, want int }{{1, 10}, {5, 50}, {20, resilience.DefaultLeaseMax}} {
			l := resilience.NewLease(limit, resilience.LeaseConfig{})
			for i := range 20 {
				l.Demand(c.each, epoch.Add(time.Duration(i)*10*ms))
			}
			if got := l.Want(1, epoch.Add(200*ms)); got != c.want {
				t.Errorf("%d wanted each 10 ms: asks for %d, want %d", c.each, got, c.want)
			}
			if got := l.Want(1, epoch.Add(400*ms)); got != 1 {
				t.Errorf("after a rest: asks for %d, want 1", got)
			}
		}
	})
	t.Run("asks for all that callers wait for, up to the burst", func(t *testing.T) {
		t.Parallel()
		l := resilience.NewLease(limit, resilience.LeaseConfig{})
		if got := l.Want(300, epoch); got != 300 {
			t.Errorf("asks for %d, want 300", got)
		}
		if got := l.Want(3000, epoch); got != limit.Burst {
			t.Errorf("asks for %d, want the burst", got)
		}
	})
	t.Run("asks for nothing in advance when less than a tenth of the burst is left", func(t *testing.T) {
		t.Parallel()
		l := resilience.NewLease(limit, resilience.LeaseConfig{})
		l.Demand(50, epoch)
		l.Settle(resilience.Ask{Want: 1, Least: 1}, resilience.Grant{Tokens: 1, Debt: 901 * ms}, epoch, epoch)
		if got := l.Want(1, epoch); got != 1 {
			t.Errorf("asks for %d, want 1", got)
		}
		if got := l.Want(1, epoch.Add(ms)); got != 50 {
			t.Errorf("when a tenth is there: asks for %d, want 50", got)
		}
	})
	t.Run("drops tokens at the end of their time to live", func(t *testing.T) {
		t.Parallel()
		l := resilience.NewLease(limit, resilience.LeaseConfig{})
		l.Settle(resilience.Ask{Want: 5, Least: 1}, resilience.Grant{Tokens: 5, Debt: 5 * ms}, epoch, epoch.Add(ms))
		if s, _ := l.Check(5, epoch.Add(100*ms-1)); s != resilience.Ready {
			t.Errorf("just before the end: standing %d, want ready", s)
		}
		if s, _ := l.Check(1, epoch.Add(100*ms)); s != resilience.Short {
			t.Errorf("at the end: standing %d, want short", s)
		}
	})
	t.Run("keeps no token longer for those that come later", func(t *testing.T) {
		t.Parallel()
		l := resilience.NewLease(limit, resilience.LeaseConfig{})
		l.Settle(resilience.Ask{Want: 5, Least: 1}, resilience.Grant{Tokens: 5, Debt: 5 * ms}, epoch, epoch)
		later := epoch.Add(90 * ms)
		l.Settle(resilience.Ask{Want: 5, Least: 1}, resilience.Grant{Tokens: 5, Debt: 5 * ms}, later, later)
		if s, _ := l.Check(10, later); s != resilience.Ready {
			t.Errorf("both together: standing %d, want ready", s)
		}
		if s, _ := l.Check(6, epoch.Add(100*ms)); s != resilience.Short {
			t.Errorf("when the first end: standing %d, want short", s)
		}
	})
	t.Run("lets those who waited for a slow answer spend it", func(t *testing.T) {
		t.Parallel()
		l := resilience.NewLease(limit, resilience.LeaseConfig{})
		l.Settle(resilience.Ask{Want: 1, Least: 1}, resilience.Grant{Tokens: 1, Debt: ms}, epoch, epoch.Add(time.Second))
		if s, _ := l.Check(1, epoch.Add(time.Second)); s != resilience.Ready {
			t.Errorf("standing %d, want ready", s)
		}
	})
	t.Run("believes a refusal for as long as the source said", func(t *testing.T) {
		t.Parallel()
		slow := resilience.Limit{PerSecond: 1, Burst: 3}
		l := resilience.NewLease(slow, resilience.LeaseConfig{})
		l.Settle(resilience.Ask{Want: 1, Least: 1}, resilience.Grant{Debt: 2600 * ms}, epoch, epoch)
		for _, c := range []struct {
			cost  int
			until time.Duration
		}{{1, 600 * ms}, {2, 1600 * ms}, {3, 2600 * ms}} {
			if s, until := l.Check(c.cost, epoch.Add(100*ms)); s != resilience.Denied || until.Sub(epoch) != c.until {
				t.Errorf("cost %d: standing %d until %v, want denied until %v", c.cost, s, until.Sub(epoch), c.until)
			}
		}
		if s, _ := l.Check(1, epoch.Add(600*ms)); s != resilience.Short {
			t.Errorf("then: standing %d, want short", s)
		}
	})
	t.Run("believes a refusal for 25 ms at least, and a partial grant as well", func(t *testing.T) {
		t.Parallel()
		for _, granted := range []int{0, 3} {
			l := resilience.NewLease(limit, resilience.LeaseConfig{})
			l.Settle(resilience.Ask{Want: 5, Least: 1}, resilience.Grant{Tokens: granted, Debt: limit.Window()}, epoch, epoch)
			l.Spend(granted)
			if s, until := l.Check(1, epoch.Add(10*ms)); s != resilience.Denied || until.Sub(epoch) != 25*ms {
				t.Errorf("%d granted: standing %d until %v, want denied until 25 ms", granted, s, until.Sub(epoch))
			}
		}
	})
	t.Run("keeps the least pause short where the burst is", func(t *testing.T) {
		t.Parallel()
		small := resilience.Limit{PerSecond: 1000, Burst: 20}
		l := resilience.NewLease(small, resilience.LeaseConfig{})
		l.Settle(resilience.Ask{Want: 1, Least: 1}, resilience.Grant{Debt: small.Window()}, epoch, epoch)
		if _, until := l.Check(1, epoch); until.Sub(epoch) != 10*ms {
			t.Errorf("denied until %v, want 10 ms", until.Sub(epoch))
		}
	})
	t.Run("still asks for less than what was refused", func(t *testing.T) {
		t.Parallel()
		l := resilience.NewLease(limit, resilience.LeaseConfig{})
		l.Settle(resilience.Ask{Want: 500, Least: 500}, resilience.Grant{Debt: 600 * ms}, epoch, epoch)
		if s, _ := l.Check(400, epoch.Add(ms)); s != resilience.Short {
			t.Errorf("cost 400: standing %d, want short", s)
		}
		if s, until := l.Check(500, epoch.Add(ms)); s != resilience.Denied || until.Sub(epoch) != 100*ms {
			t.Errorf("cost 500: standing %d until %v, want denied until 100 ms", s, until.Sub(epoch))
		}
	})
}
