package simulation

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// The phases of a world: faults of every kind, then time to recover, then one
// more notification for every scope, which must go through.
const (
	faultsFor  = 4 * time.Minute
	recoverFor = 15 * time.Minute
	canaryFor  = 2 * time.Minute
)

// world is one cluster, its database and its providers. All that happens is an
// event of its queue, and every choice comes from its seed. It lives in a bubble
// of testing/synctest, whose clock is the true time.
type world struct {
	t    *testing.T
	seed uint64
	*rand.Rand
	events events
	depth  int // of events within events: an answer that is awaited
	faulty bool
	begin  time.Time
	traced bool
	trace  []string

	shared    *Shared
	nodes     []*node // the living incarnation of each
	providers []*provider
	notes     []*notification
	scopes    map[string]*scopeTruth
	fresh     []*quiet              // gates that were committed and not announced yet
	held      map[string][]heldWait // by scope
	waking    bool                  // somebody will look at them soon
	reporting *call                 // whose verdict reaches the shared state now
	stats     stats
}

// stats tell that a run was worth something.
type stats struct {
	Events, Calls, Probes, Trips, Closings, Refusals, Crashes, Throttled, Unknown, Canceled, Lost, Fallbacks, Delivered int

	Receipts, EarlyReceipts, LostReceipts, Corrected, Superseded int

	Failovers, Passed int // calls through another account than the last one, and deliveries that one turned away
}

func newWorld(t *testing.T, seed uint64, traced bool) *world {
	t.Helper()
	w := &world{
		t: t, seed: seed, traced: traced, Rand: rand.New(rand.NewPCG(seed, 0)), faulty: true, begin: now(),
		scopes: map[string]*scopeTruth{}, held: map[string][]heldWait{},
	}
	w.shared = NewShared(now)
	w.shared.OnChange, w.shared.OnGate, w.shared.OnNotify = w.changed, w.gated, w.announce
	w.shared.Lag = func() time.Duration {
		if w.faulty && w.oneIn(10) {
			return w.upTo(4 * time.Second)
		}
		return w.upTo(2 * time.Millisecond)
	}
	for i := range 1 + w.IntN(3) {
		w.providers = append(w.providers, w.newProvider(i))
	}
	for i := range 1 + w.IntN(4) {
		w.nodes = append(w.nodes, nil)
		w.boot(i)
	}
	return w
}

// now is the true time, without a monotonic part.
func now() time.Time { return time.Now().Round(0) }

func (w *world) run() {
	end := w.begin.Add(faultsFor)
	for range 10 + w.IntN(40) {
		w.at(w.begin.Add(w.upTo(faultsFor)), w.accept)
	}
	if w.oneIn(2) {
		w.at(w.begin.Add(w.upTo(faultsFor)), w.burst)
	}
	for range w.IntN(4) {
		w.at(w.begin.Add(w.upTo(faultsFor)), w.crash)
	}
	for range w.IntN(3) {
		w.at(w.begin.Add(w.upTo(faultsFor)), w.operate)
		w.at(w.begin.Add(w.upTo(faultsFor)), w.cut)
	}
	w.runUntil(end)
	w.faulty = false
	w.logf("all is repaired")
	for _, p := range w.accounts() {
		p.repair()
	}
	w.runUntil(end.Add(recoverFor))
	w.checkAtRest()
	canaries := w.canaries()
	w.runUntil(now().Add(canaryFor))
	w.checkAtRest()
	w.checkDelivered(canaries)
}

// event is something that happens at an instant; seq keeps the order of events
// of one instant.
type event struct {
	at  time.Time
	seq int
	do  func()
}

type events struct {
	heap []event
	seq  int
}

func (e *events) Len() int { return len(e.heap) }
func (e *events) Less(i, j int) bool {
	a, b := e.heap[i], e.heap[j]
	return a.at.Before(b.at) || a.at.Equal(b.at) && a.seq < b.seq
}
func (e *events) Swap(i, j int) { e.heap[i], e.heap[j] = e.heap[j], e.heap[i] }
func (e *events) Push(x any)    { e.heap = append(e.heap, x.(event)) }
func (e *events) Pop() any {
	last := e.heap[len(e.heap)-1]
	e.heap = e.heap[:len(e.heap)-1]
	return last
}

func (w *world) at(t time.Time, do func()) {
	w.events.seq++
	heap.Push(&w.events, event{t, w.events.seq, do})
}

func (w *world) after(d time.Duration, do func()) { w.at(now().Add(d), do) }

// runUntil lets everything happen that is due until an instant. It is called
// within an event too, where that awaits an answer.
func (w *world) runUntil(until time.Time) {
	for w.events.Len() > 0 && !w.events.heap[0].at.After(until) {
		e := heap.Pop(&w.events).(event)
		time.Sleep(e.at.Sub(now())) //nolint:forbidigo // moves the clock of the bubble
		w.stats.Events++
		e.do()
	}
	time.Sleep(until.Sub(now())) //nolint:forbidigo // as above
}

// await lets time pass within an event, if not too many others await theirs.
func (w *world) await(d time.Duration) {
	if w.depth >= 5 {
		return
	}
	w.depth++
	w.runUntil(now().Add(d))
	w.depth--
}

func (w *world) upTo(d time.Duration) time.Duration { return time.Duration(w.Int64N(int64(d) + 1)) }

func (w *world) between(from, to time.Duration) time.Duration { return from + w.upTo(to-from) }

func (w *world) oneIn(n int) bool { return w.IntN(n) == 0 }

func pick[T any](w *world, of ...T) T { return of[w.IntN(len(of))] }

// logf keeps a line of what happens, where the world is traced.
func (w *world) logf(format string, args ...any) {
	if w.traced {
		w.trace = append(w.trace, fmt.Sprintf("%9.3f ", now().Sub(w.begin).Seconds())+fmt.Sprintf(format, args...))
	}
}

// breaks fails the test: a rule does not hold.
func (w *world) breaks(rule, format string, args ...any) {
	w.t.Helper()
	lines := w.trace
	if !*verbose {
		lines = lines[max(0, len(lines)-40):]
	}
	w.t.Fatalf("%s is broken at %.3f s in the world of seed %d (all of it: go test ./internal/simulation -run Cluster -args -seed %d -trace): %s\n%s",
		rule, now().Sub(w.begin).Seconds(), w.seed, w.seed, fmt.Sprintf(format, args...), strings.Join(lines, "\n"))
}

// living returns a node that is up, nil if none is.
func (w *world) living() *node {
	from := w.IntN(len(w.nodes))
	for i := range w.nodes {
		if n := w.nodes[(from+i)%len(w.nodes)]; n.ready && n.alive {
			return n
		}
	}
	return nil
}

// crash kills a node with all that it does and starts it again later. Somebody
// buries it in between or afterwards.
func (w *world) crash() {
	dead := pick(w, w.nodes...)
	if !dead.alive {
		return
	}
	dead.alive = false
	w.stats.Crashes++
	w.logf("%s crashes", dead)
	w.after(w.between(time.Second, 20*time.Second), func() { w.boot(dead.index) })
	w.after(w.between(5*time.Second, 15*time.Second), func() { w.bury(dead) })
}

// cut keeps a node from the shared state for a while, as locks and full pools do.
func (w *world) cut() {
	n := pick(w, w.nodes...)
	n.cutUntil = now().Add(w.between(time.Second, 100*time.Second))
	n.troubled = n.cutUntil
	w.logf("%s is cut off until %.3f", n, n.cutUntil.Sub(w.begin).Seconds())
}

// operate is an operator who forces or resets a breaker.
func (w *world) operate() {
	p := pick(w, w.accounts()...)
	scope := p.breakerScope(pick(w, p.narrow...))
	kind := w.IntN(3)
	w.logf("operator does %d to %s", kind, scope)
	w.override(p, scope, kind, w.between(time.Second, time.Minute))
}

// What an operator may do to a breaker.
const (
	forceOpen = iota
	forceClosed
	reset
)

// override has an operator do something to a breaker now, for as long as d.
func (w *world) override(p *provider, scope string, kind int, d time.Duration) {
	by := resilience.Override{Who: "ana", Why: "drill", Until: now().Add(d)}
	w.shared.update(scope, func(r resilience.BreakerRecord, now time.Time) (resilience.BreakerRecord, resilience.Transition) {
		b := resilience.RestoreBreaker(p.breaker, r)
		var t resilience.Transition
		switch kind {
		case forceOpen:
			t = b.ForceOpen(by, now)
		case forceClosed:
			t = b.ForceClosed(by, now)
		default:
			t = b.Reset(by, now)
		}
		return b.Record(), t
	})
}
