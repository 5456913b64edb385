package resilience

import (
	"slices"
	"strings"
	"time"
)

// ScopeTransition is one change of one scope's breaker.
type ScopeTransition struct {
	Scope string
	Transition
}

// resetAsOf closes a scope's breaker for an operator who did so a while ago. It
// opens the gate too, except to what has been heard since, and reports whether it did.
func (g *Guard) resetAsOf(at time.Time, scope string, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.scopes[scope]
	if e == nil {
		return true
	}
	e.breaker.Reset(Override{}, now)
	if !e.heardAt.Before(at) {
		return false
	}
	e.gate.Reset()
	return true
}

// ScopeState is what a guard shows of one scope.
type ScopeState struct {
	Scope   string
	Breaker BreakerStatus
	// GateUntil is the instant before which no call may start, zero where the gate
	// is open.
	GateUntil time.Time
}

// Snapshot shows every scope that is not well, by name, and forgets those that
// are again.
func (g *Guard) Snapshot(now time.Time) []ScopeState {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := make([]ScopeState, 0, len(g.scopes))
	for name, e := range g.scopes {
		if e.idle(now) {
			g.forget(e)
			continue
		}
		s := ScopeState{Scope: name, Breaker: e.breaker.Status(now)}
		if until, shut := e.gate.Until(now); shut {
			s.GateUntil = until
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b ScopeState) int { return strings.Compare(a.Scope, b.Scope) })
	return out
}

// entry returns the scope's entry and makes it where there is none.
func (g *Guard) entry(scope string, now time.Time) *entry {
	if e := g.scopes[scope]; e != nil {
		g.recent.touch(e)
		return e
	}
	for len(g.scopes) >= g.cfg.MaxScopes {
		g.forget(g.recent.victim(now))
	}
	e := &entry{name: scope, breaker: NewBreaker(BreakerConfig{})}
	g.scopes[scope] = e
	g.recent.add(e)
	return e
}

func (g *Guard) forget(e *entry) {
	delete(g.scopes, e.name)
	g.recent.remove(e)
}
