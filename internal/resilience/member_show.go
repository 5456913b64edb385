package resilience

import (
	"slices"
	"strings"
	"time"
)

// Snapshot shows the scopes that are not well, by name. Breakers are the shared
// ones, in this process's time; gates are those it knows of.
func (m *Member) Snapshot(now time.Time) []ScopeState {
	states := map[string]ScopeState{}
	for _, s := range m.guard.Snapshot(now) {
		s.Breaker = BreakerStatus{State: Closed}
		states[s.Scope] = s
	}
	m.mu.Lock()
	for name, v := range m.scopes {
		if v.record.Generation == 0 {
			continue
		}
		s := states[name]
		s.Scope = name
		s.Breaker = v.status(now)
		states[name] = s
	}
	m.mu.Unlock()
	out := make([]ScopeState, 0, len(states))
	for _, s := range states {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b ScopeState) int { return strings.Compare(a.Scope, b.Scope) })
	return out
}

func (v *scopeView) status(now time.Time) BreakerStatus {
	s := BreakerStatus{
		State: v.record.State, Generation: v.record.Generation, Reason: v.record.Reason, OpenCount: v.record.OpenCount,
		Trips: v.record.Trips, Code: v.record.Code,
		Failures: v.window.Tally(now).Streak, ChangedAt: v.changedAt,
	}
	if v.forcedNow(now) {
		by := *v.record.Forced
		by.Until = v.forcedTill
		s.Forced = &by
	}
	if s.State == "" {
		s.State = Closed
	}
	if s.State == Open {
		s.OpenUntil = v.openUntil
	}
	if v.record.Probing && now.Before(v.leaseUntil) {
		s.ProbeUntil = v.leaseUntil
	}
	return s
}
