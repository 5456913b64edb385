// Package simulation drives the decisions of a whole cluster, package fallback
// and the members of package resilience, through seeded worlds under a virtual
// clock. What is outside of its tests is for tests alone.
package simulation

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// Op names what a process asks of the shared state.
type Op string

// The operations of [resilience.Shared].
const (
	OpUpdate   Op = "update"
	OpReport   Op = "report"
	OpThrottle Op = "throttle"
	OpChanged  Op = "changed"
)

// Shared keeps breakers and gates in memory, by the rules of the database. It is
// safe for concurrent use.
type Shared struct {
	now func() time.Time

	mu       sync.Mutex
	breakers map[string]keptBreaker
	gates    map[string]keptGate
	evidence map[string]map[string]keptTally // by scope and process
	changes  []resilience.ScopeTransition
	calls    map[Op]int

	// OnChange, if set, is told of every change of a breaker, with the record
	// before it, OnGate of every gate that was moved, and then OnNotify that
	// something is announced. They run without a lock.
	OnChange func(before resilience.ScopeRecord, t resilience.Transition)
	OnGate   func(g resilience.ScopeGate)
	OnNotify func()
	// Lag, if set, is how long ago the transaction that now becomes visible marked
	// what it changed.
	Lag func() time.Duration
}

type keptBreaker struct {
	resilience.BreakerRecord
	at time.Time
}

type keptGate struct{ until, at time.Time }

type keptTally struct {
	resilience.ScopeTally
	at time.Time
}

// NewShared returns an empty state whose clock is now.
func NewShared(now func() time.Time) *Shared {
	return &Shared{
		now: now, breakers: map[string]keptBreaker{}, gates: map[string]keptGate{}, evidence: map[string]map[string]keptTally{},
		calls: map[Op]int{},
	}
}

// Link is one process's way to the shared state.
type Link struct {
	shared *Shared
	name   string
	// Via, if set, carries every operation: it may call do, or not, at any time, and
	// lose the answer by returning an error.
	Via func(op Op, do func()) error
}

var _ resilience.Shared = (*Link)(nil)

// Link returns a way to the shared state for the process of that name.
func (s *Shared) Link(name string) *Link { return &Link{shared: s, name: name} }

func (l *Link) via(op Op, do func()) error {
	l.shared.mu.Lock()
	l.shared.calls[op]++
	l.shared.mu.Unlock()
	if l.Via != nil {
		return l.Via(op, do)
	}
	do()
	return nil
}

// Calls returns how often an operation was asked for.
func (s *Shared) Calls(op Op) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

// Record returns a scope's breaker as it is kept.
func (s *Shared) Record(scope string) resilience.BreakerRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.breakers[scope].BreakerRecord
}

// Transitions returns all changes so far.
func (s *Shared) Transitions() []resilience.ScopeTransition {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.changes)
}

// Forget drops a scope's breaker, as retention does with one long closed.
func (s *Shared) Forget(scope string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.breakers, scope)
	delete(s.evidence, scope)
}

// Update implements [resilience.Shared].
func (l *Link) Update(_ context.Context, scope string, change resilience.Change) (resilience.ScopeRecord, time.Time, error) {
	var r resilience.ScopeRecord
	var now time.Time
	err := l.via(OpUpdate, func() { r, now = l.shared.update(scope, change) })
	return r, now, err
}

func (s *Shared) update(scope string, change resilience.Change) (resilience.ScopeRecord, time.Time) {
	s.mu.Lock()
	now := s.now()
	before := s.breakers[scope].BreakerRecord
	after, t := change(before, now)
	if before.Generation == 0 && after.Generation > 0 {
		base := uint64(now.UnixMilli())
		after.Generation += base
		t.Generation += base
	}
	same := before == after || before == resilience.BreakerRecord{} && after == resilience.BreakerRecord{State: resilience.Closed}
	if !same {
		s.breakers[scope] = keptBreaker{after, s.mark(now)}
	}
	if t.Reason == resilience.ReasonReset {
		delete(s.gates, scope)
	}
	if t.Changed() {
		s.changes = append(s.changes, resilience.ScopeTransition{Scope: scope, Transition: t})
	}
	s.mu.Unlock()
	if t.Changed() && s.OnChange != nil {
		s.OnChange(resilience.ScopeRecord{Scope: scope, BreakerRecord: before}, t)
	}
	if !same && s.OnNotify != nil {
		s.OnNotify()
	}
	return resilience.ScopeRecord{Scope: scope, BreakerRecord: after}, now
}

// evidenceAge is how long a process's evidence counts after it was handed in.
const evidenceAge = 15 * time.Second

// Report implements [resilience.Shared].
func (l *Link) Report(_ context.Context, tallies []resilience.ScopeTally) (map[string]resilience.Sum, error) {
	var sums map[string]resilience.Sum
	err := l.via(OpReport, func() { sums = l.shared.report(l.name, tallies) })
	return sums, err
}

func (s *Shared) report(name string, tallies []resilience.ScopeTally) map[string]resilience.Sum {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, sums := s.now(), map[string]resilience.Sum{}
	for _, t := range tallies {
		of := s.evidence[t.Scope]
		if of == nil {
			of = map[string]keptTally{}
			s.evidence[t.Scope] = of
		}
		of[name] = keptTally{t, now}
		var sum resilience.Sum
		for _, e := range of {
			if e.Generation == t.Generation && now.Sub(e.at) < evidenceAge {
				sum.Add(e.Tally)
			}
		}
		sums[t.Scope] = sum
	}
	return sums
}

// mark is the instant that a change bears.
func (s *Shared) mark(now time.Time) time.Time {
	if s.Lag != nil {
		now = now.Add(-s.Lag())
	}
	return now
}

// Throttle implements [resilience.Shared].
func (l *Link) Throttle(_ context.Context, gates map[string]time.Duration) error {
	return l.via(OpThrottle, func() { l.shared.throttle(gates) })
}

func (s *Shared) throttle(gates map[string]time.Duration) {
	s.mu.Lock()
	now := s.now()
	var moved []resilience.ScopeGate
	for _, scope := range slices.Sorted(maps.Keys(gates)) {
		if until := now.Add(gates[scope]); until.After(s.gates[scope].until) {
			s.gates[scope] = keptGate{until, s.mark(now)}
			moved = append(moved, resilience.ScopeGate{Scope: scope, Until: until})
		}
	}
	s.mu.Unlock()
	for _, g := range moved {
		if s.OnGate != nil {
			s.OnGate(g)
		}
	}
	if s.OnNotify != nil {
		s.OnNotify()
	}
}

// Changed implements [resilience.Shared].
func (l *Link) Changed(_ context.Context, since time.Time) (resilience.Changes, error) {
	var c resilience.Changes
	err := l.via(OpChanged, func() { c = l.shared.changed(since) })
	return c, err
}

func (s *Shared) changed(since time.Time) resilience.Changes {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := resilience.Changes{Now: s.now()}
	for _, scope := range slices.Sorted(maps.Keys(s.breakers)) {
		if b := s.breakers[scope]; b.at.After(since) {
			c.Breakers = append(c.Breakers, resilience.ScopeRecord{Scope: scope, BreakerRecord: b.BreakerRecord})
		}
	}
	slices.SortStableFunc(c.Breakers, func(a, b resilience.ScopeRecord) int {
		return s.breakers[a.Scope].at.Compare(s.breakers[b.Scope].at)
	})
	for scope, g := range s.gates {
		if g.at.After(since) && g.until.After(c.Now) {
			c.Gates = append(c.Gates, resilience.ScopeGate{Scope: scope, Until: g.until})
		}
	}
	slices.SortFunc(c.Gates, func(a, b resilience.ScopeGate) int { return strings.Compare(a.Scope, b.Scope) })
	return c
}
