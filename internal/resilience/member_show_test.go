package resilience_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/simulation"
)

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
	var wg, failing sync.WaitGroup
	failing.Add(12)
	for i := range 3 {
		m := resilience.NewMember(shared.Link(string(rune('a'+i))), func() float64 { return middle })
		for j := range 4 {
			wg.Go(func() {
				for k := range 400 {
					if k == 8 { // the failures of all are handed in before any succeeds, whoever runs when
						failing.Done()
						failing.Wait()
						_ = m.Flush(t.Context(), clock())
					}
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
