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

// Transitions returns the changes since it was last called, oldest first, for
// metrics, logs and the store. Of more than 1,024 the oldest are lost; how many
// is said.
func (g *Guard) Transitions() (changes []ScopeTransition, lost int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	changes, lost = g.transitions, g.lost
	g.transitions, g.lost = nil, 0
	return changes, lost
}

// ForceOpen forces a scope's breaker open; see [Breaker.ForceOpen].
func (g *Guard) ForceOpen(scope string, by Override, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note(scope, g.entry(scope, now).breaker.ForceOpen(by, now))
}

// ForceClosed forces a scope's breaker closed; see [Breaker.ForceClosed].
func (g *Guard) ForceClosed(scope string, by Override, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.note(scope, g.entry(scope, now).breaker.ForceClosed(by, now))
}

// Reset closes a scope's breaker and opens its gate. It leaves a pause alone.
func (g *Guard) Reset(scope string, by Override, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.entry(scope, now)
	e.gate.Reset()
	g.note(scope, e.breaker.Reset(by, now))
}

// resetAsOf is a Reset that happened a while ago: it leaves the gate to what has
// been heard since, and reports whether it is open.
func (g *Guard) resetAsOf(at time.Time, scope string, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.scopes[scope]
	if e == nil {
		return true
	}
	g.note(scope, e.breaker.Reset(Override{}, now))
	if !e.heardAt.Before(at) {
		return false
	}
	e.gate.Reset()
	return true
}

// Pause lets no call of the scope start until it is resumed, or until the
// instant that by names. It replaces an earlier pause.
func (g *Guard) Pause(scope string, by Override, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.entry(scope, now).pause = &by
}

// Resume ends a pause and reports whether there was one.
func (g *Guard) Resume(scope string, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.scopes[scope]
	if e == nil || e.pause == nil {
		return false
	}
	was := e.paused(now)
	e.pause = nil
	if e.idle(now) {
		g.forget(e)
	}
	return was
}

// ScopeState is what a guard shows of one scope.
type ScopeState struct {
	Scope   string
	Breaker BreakerStatus
	// GateUntil is the instant before which no call may start, zero where the gate
	// is open.
	GateUntil time.Time
	Paused    *Override
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
		if e.paused(now) {
			by := *e.pause
			s.Paused = &by
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
		victim := g.recent.victim(now)
		if victim == nil {
			break // an operator decided about every one of them
		}
		g.forget(victim)
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

func (g *Guard) note(scope string, t Transition) {
	if !t.Changed() {
		return
	}
	if len(g.transitions) >= maxTransitions {
		g.transitions = slices.Delete(g.transitions, 0, 1)
		g.lost++
	}
	g.transitions = append(g.transitions, ScopeTransition{scope, t})
}
