package resilience_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

func newGuard(most int) *resilience.Guard {
	return resilience.NewGuard(resilience.GuardConfig{MaxScopes: most, Rand: func() float64 { return middle }})
}

func account(name string) resilience.Scope {
	return resilience.Scope{Name: name, Breaker: &resilience.BreakerConfig{}}
}

func sender(name string) resilience.Scope { return resilience.Scope{Name: name} }

// finish makes one admitted call that ends with e.
func finish(t *testing.T, g *resilience.Guard, scopes []resilience.Scope, e resilience.Evidence, now time.Time) {
	t.Helper()
	ticket, denied := g.Admit(scopes, now)
	if denied != nil {
		t.Fatalf("denied: %+v", denied)
	}
	ticket.Done(e, now)
}

func wantDenied(t *testing.T, g *resilience.Guard, scopes []resilience.Scope, now time.Time, want resilience.Denial) {
	t.Helper()
	_, got := g.Admit(scopes, now)
	if got == nil {
		t.Fatalf("admitted, want %+v", want)
	}
	if diff := cmp.Diff(want, *got); diff != "" {
		t.Errorf("denial (-want +got):\n%s", diff)
	}
}

func TestGuardKeepsScopesApart(t *testing.T) {
	g := newGuard(0)
	a, b := []resilience.Scope{account("a")}, []resilience.Scope{account("b")}
	for range 5 {
		finish(t, g, a, failure, start)
	}
	wantDenied(t, g, a, start, resilience.Denial{Scope: "a", Kind: resilience.KindBreaker, Until: start.Add(30 * time.Second)})
	finish(t, g, b, success, start)
}

func TestGuardTakesEachAccountsNumbers(t *testing.T) {
	g := newGuard(0)
	cfg := resilience.BreakerConfig{Failures: 2, ProbeLease: 5 * time.Second}
	scopes := []resilience.Scope{{Name: "a", Breaker: &cfg}}
	finish(t, g, scopes, failure, start)
	finish(t, g, scopes, failure, start)
	due := start.Add(30 * time.Second)
	wantDenied(t, g, scopes, start, resilience.Denial{Scope: "a", Kind: resilience.KindBreaker, Until: due})
	changed := resilience.BreakerConfig{ProbeLease: 7 * time.Second} // as after a reload
	scopes[0].Breaker = &changed
	if _, denied := g.Admit(scopes, due); denied != nil {
		t.Fatalf("denied: %+v", denied)
	}
	wantDenied(t, g, scopes, due, resilience.Denial{Scope: "a", Kind: resilience.KindBreaker, Until: due.Add(7 * time.Second)})
}

func TestGuardOpensNoBreakerOfANarrowScope(t *testing.T) {
	g := newGuard(0)
	scopes := []resilience.Scope{sender("a/+1")}
	for range 100 {
		finish(t, g, scopes, failure, start)
	}
	if got := g.Snapshot(start); len(got) != 0 {
		t.Errorf("remembers %+v", got)
	}
}

func TestGuardDeniesWithWhatHoldsLongest(t *testing.T) {
	g := newGuard(0)
	scopes := []resilience.Scope{account("a"), sender("a/s"), sender("a/t")}
	g.Throttle("a/s", start.Add(10*time.Second), start)
	g.Throttle("a/t", start.Add(40*time.Second), start)
	if g.Throttle("a/t", start.Add(20*time.Second), start) || g.Throttle("a/u", start, start) {
		t.Error("an instant that is earlier, or over, moves a gate")
	}
	wantDenied(t, g, scopes, start, resilience.Denial{Scope: "a/t", Kind: resilience.KindGate, Until: start.Add(40 * time.Second)})
	wantDenied(t, g, scopes, start.Add(30*time.Second), resilience.Denial{Scope: "a/t", Kind: resilience.KindGate, Until: start.Add(40 * time.Second)})
	finish(t, g, scopes, success, start.Add(40*time.Second))
}

func TestGuardTakesNoProbeThatAnotherScopeDenies(t *testing.T) {
	g := newGuard(0)
	both := []resilience.Scope{account("a"), account("h")}
	for range 5 {
		finish(t, g, both[:1], failure, start)
	}
	due := start.Add(30 * time.Second)
	g.Throttle("h", due.Add(time.Second), start)
	wantDenied(t, g, both, due, resilience.Denial{Scope: "h", Kind: resilience.KindGate, Until: due.Add(time.Second)})
	ticket, denied := g.Admit(both[:1], due) // the probe is still to be had
	if denied != nil || !ticket.Probe() {
		t.Errorf("denied %+v, probe %t; want the probe", denied, ticket.Probe())
	}
}

func TestGuardReportsToEveryBreakerOfACall(t *testing.T) {
	g := newGuard(0)
	scopes := []resilience.Scope{account("a"), account("b"), account("c"), sender("d")}
	for range 5 {
		finish(t, g, scopes, failure, start)
	}
	var open []string
	for _, s := range g.Snapshot(start) {
		if s.Breaker.State == resilience.Open {
			open = append(open, s.Scope)
		}
	}
	if want := []string{"a", "b", "c"}; !slices.Equal(open, want) {
		t.Errorf("open: %q, want %q", open, want)
	}
}

func TestTicketCountsOnce(t *testing.T) {
	g := newGuard(0)
	ticket, _ := g.Admit([]resilience.Scope{account("a")}, start)
	for range 10 {
		ticket.Done(failure, start)
	}
	if got := g.Snapshot(start)[0].Breaker.Failures; got != 1 {
		t.Errorf("counted %d times", got)
	}
	var zero resilience.Ticket
	zero.Done(failure, start) // must not panic
}

func TestGuardShowsAndForgets(t *testing.T) {
	g := newGuard(0)
	a := []resilience.Scope{account("a")}
	finish(t, g, a, failure, start)
	g.Throttle("b", start.Add(time.Minute), start)
	want := []resilience.ScopeState{
		{Scope: "a", Breaker: resilience.BreakerStatus{State: resilience.Closed, Failures: 1}},
		{Scope: "b", Breaker: resilience.BreakerStatus{State: resilience.Closed}, GateUntil: start.Add(time.Minute)},
	}
	if diff := cmp.Diff(want, g.Snapshot(start)); diff != "" {
		t.Errorf("snapshot (-want +got):\n%s", diff)
	}
	finish(t, g, a, success, start)
	if got := g.Snapshot(start.Add(time.Hour)); len(got) != 0 {
		t.Errorf("remembers what is well again: %+v", got)
	}
}

func TestGuardBoundsWhatItRemembers(t *testing.T) {
	g := newGuard(100)
	for range 5 {
		finish(t, g, []resilience.Scope{account("open")}, failure, start)
	}
	for i := range 20_000 {
		finish(t, g, []resilience.Scope{account(fmt.Sprintf("host:%d", i))}, failure, start)
		if i%50 == 0 { // an account that is used is never the one used least
			g.Admit([]resilience.Scope{account("open")}, start)
		}
	}
	got := g.Snapshot(start)
	if len(got) != 100 {
		t.Errorf("remembers %d scopes, want 100", len(got))
	}
	for _, name := range []string{"open", "host:19999"} {
		if !slices.ContainsFunc(got, func(s resilience.ScopeState) bool { return s.Scope == name }) {
			t.Errorf("forgot %q", name)
		}
	}
}

func TestGuardForgetsAClosedBreakerFirst(t *testing.T) {
	g := newGuard(3)
	for range 5 {
		finish(t, g, []resilience.Scope{account("open")}, failure, start)
	}
	g.Throttle("shut", start.Add(time.Hour), start)
	for _, name := range []string{"x", "y", "z"} {
		finish(t, g, []resilience.Scope{account(name)}, failure, start)
	}
	var got []string
	for _, s := range g.Snapshot(start) {
		got = append(got, s.Scope)
	}
	if want := []string{"open", "shut", "z"}; !slices.Equal(got, want) {
		t.Errorf("remembers %q, want %q", got, want)
	}
}

func TestGuardNeverLetsAGateOpenEarly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGuard(0)
		now := start
		latest := map[string]time.Time{}
		names := rapid.SampledFrom([]string{"a", "b", "c"})
		t.Repeat(map[string]func(*rapid.T){
			"throttle": func(t *rapid.T) {
				name, until := names.Draw(t, "scope"), now.Add(time.Duration(rapid.IntRange(-10, 100).Draw(t, "s"))*time.Second)
				g.Throttle(name, until, now)
				if until.After(latest[name]) {
					latest[name] = until
				}
			},
			"wait": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "s")) * time.Second) },
			"look": func(*rapid.T) { g.Snapshot(now) },
			"call": func(t *rapid.T) {
				var scopes []resilience.Scope
				var until time.Time
				for _, n := range rapid.SliceOfN(names, 1, 3).Draw(t, "scopes") {
					scopes = append(scopes, account(n))
					if latest[n].After(now) && latest[n].After(until) {
						until = latest[n]
					}
				}
				ticket, denied := g.Admit(scopes, now)
				switch {
				case denied == nil && !until.IsZero():
					t.Fatalf("admitted before %v", until)
				case denied != nil && !denied.Until.Equal(until):
					t.Fatalf("denied until %v, want %v", denied.Until, until)
				}
				ticket.Done(neutral, now)
			},
		})
	})
}

// TestGuardHasOneProbeInFlight drives one scope from many goroutines: whatever
// their interleaving, while it is half-open one call at most is under way.
func TestGuardHasOneProbeInFlight(t *testing.T) {
	g := newGuard(0)
	// No lease ends, however long a goroutine is kept from running.
	cfg := resilience.BreakerConfig{ProbeLease: 10_000 * time.Hour}
	scopes := []resilience.Scope{{Name: "a", Breaker: &cfg}, sender("a/s")}
	var clock, inFlight, probes, most atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for n := range 2000 {
				now := start.Add(time.Duration(clock.Add(int64(50 * time.Millisecond))))
				ticket, denied := g.Admit(scopes, now)
				if denied != nil {
					continue
				}
				if ticket.Probe() {
					probes.Add(1)
					if k := inFlight.Add(1); k > most.Load() {
						most.Store(k)
					}
					inFlight.Add(-1)
				}
				e := failure
				if (n+i)%8 < 2 {
					e = success
				}
				ticket.Done(e, now)
				g.Snapshot(now)
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 || probes.Load() == 0 {
		t.Errorf("at most %d probes in flight, %d in all; want 1 at a time", most.Load(), probes.Load())
	}
}

func BenchmarkGuardAdmitWhereAllIsWell(b *testing.B) {
	g := newGuard(0)
	scopes := []resilience.Scope{account("a"), sender("a/s")}
	b.ReportAllocs()
	for b.Loop() {
		ticket, _ := g.Admit(scopes, start)
		ticket.Done(success, start)
	}
}
