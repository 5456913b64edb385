package resilience

import "time"

// Health is how an account fares, for one call.
type Health struct {
	// Denial is what holds the call longest; it holds where Denied is set.
	Denial Denial
	Denied bool
	// Narrow: what denies is a scope below the account.
	Narrow bool
	// Reason and Code say why a breaker denies it: its last change, and the provider's
	// code where one answer opened it.
	Reason Reason
	Code   string
	// Probe: the call would be the probe of a breaker whose time was over at
	// ProbeDue, and of which nobody knows whether it will succeed.
	Probe    bool
	ProbeDue time.Time
	// Share is the part of the calls that may go to the account: less than 1 while
	// they come back to it after its breaker closed.
	Share float64
}

// Clear reports whether nothing at all speaks against the account.
func (s *Health) Clear() bool { return !s.Denied && !s.Probe && s.Share >= 1 }

func (s *Health) deny(name []byte, k Kind, until time.Time, narrow bool) {
	d := Denial{Kind: k, Until: until}
	if s.Denied && !d.later(s.Denial) {
		return
	}
	d.Scope = string(name)
	s.Denial, s.Denied, s.Narrow, s.Reason, s.Code = d, true, narrow, "", ""
}

// maxScopeName is longer than the names of scopes are; longer ones cost an
// allocation.
const maxScopeName = 192

// Health tells how a call through an account would be answered by
// [Member.Admit], without asking for leave: nothing changes, there is no round
// trip, and where all is well nothing is allocated. narrow are the scopes below
// the account, relative to it; byHost says that they have breakers, and not the
// account.
func (m *Member) Health(account string, narrow []string, byHost bool, now time.Time) Health {
	s := Health{Share: 1}
	var room [maxScopeName]byte
	name := append(room[:0], account...)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.guard.mu.Lock()
	defer m.guard.mu.Unlock()
	m.look(&s, name, !byHost, false, now)
	for _, n := range narrow {
		name = append(append(name[:len(account)], '/'), n...)
		m.look(&s, name, byHost, true, now)
	}
	return s
}

// look adds one scope to a health. The locks of member and guard are held.
func (m *Member) look(s *Health, name []byte, breaker, narrow bool, now time.Time) {
	v := m.scopes[string(name)]
	if e := m.guard.scopes[string(name)]; e != nil {
		if until, shut := e.gate.Until(now); shut {
			s.deny(name, KindGate, until, narrow)
		}
		closedByHand := v != nil && v.forcedNow(now) && v.record.State != Open
		if r, refused := e.breaker.Refuses(now); breaker && refused && !closedByHand {
			s.deny(name, KindBreaker, r.Until, narrow)
		}
	}
	switch {
	case v == nil:
	case !breaker:
		if v.record.State == Open && (v.openUntil.IsZero() || now.Before(v.openUntil)) {
			s.deny(name, KindBreaker, v.openUntil, narrow)
		}
	default:
		switch d, claim := v.ask("", now); {
		case claim:
			s.Probe, s.ProbeDue = true, v.openUntil
		case d != nil:
			s.deny(name, d.Kind, d.Until, narrow)
		}
		if s.Denied && s.Denial.Kind == KindBreaker && s.Denial.Scope == string(name) {
			s.Reason, s.Code = v.record.Reason, v.record.Code
		}
		s.Share = min(s.Share, v.share(now))
	}
}

// SetAlternatives tells what else carries the calls of a scope: the other accounts
// of its channel. Without any, or where this is not set, a breaker opens for
// slowness alone; with some it does so only where one of them is better. It is
// called without a lock.
func (m *Member) SetAlternatives(of func(scope string) []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.alternatives = of
}

// fewCalls is how many calls of the last minute tell how slow a scope is.
const fewCalls = 5

// worthLeaving reports whether calls of a slow scope would fare better elsewhere.
// Where all are slow, moving only adds a load to the next one and comes back.
func (m *Member) worthLeaving(scope string, slow Sum, now time.Time) bool {
	m.mu.Lock()
	of := m.alternatives
	m.mu.Unlock()
	if of == nil {
		return true
	}
	others := of(scope)
	if len(others) == 0 {
		return true
	}
	rate := float64(slow.Slow) / float64(max(slow.Calls, 1))
	for _, other := range others {
		if m.better(other, rate, now) {
			return true
		}
	}
	return false
}

// better reports whether a scope can take calls and is clearly less slow than the
// rate given, or has had too few calls to say.
func (m *Member) better(scope string, rate float64, now time.Time) bool {
	s := m.Health(scope, nil, false, now)
	if !s.Clear() {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.scopes[scope]
	if v == nil {
		return true
	}
	t := v.window.Tally(now)
	return t.Calls < fewCalls || float64(t.Slow) < rate/2*float64(t.Calls)
}
