package resilience

import (
	"context"
	"time"
)

// forcedOpen refuses a call of a scope that has no breaker of its own, such as a
// webhook account, whose hosts have theirs, but that an operator has forced open.
// It needs no probe when its time is over: the first call after it says so.
func (m *Member) forcedOpen(ctx context.Context, s Scope, now time.Time) *Denial {
	if s.Breaker != nil {
		return nil
	}
	m.mu.Lock()
	v := m.scopes[s.Name]
	if v == nil || v.record.State != Open {
		m.mu.Unlock()
		return nil
	}
	if v.openUntil.IsZero() || now.Before(v.openUntil) {
		until := v.openUntil
		m.mu.Unlock()
		return &Denial{Scope: s.Name, Kind: KindBreaker, Until: until}
	}
	if v.claiming {
		m.mu.Unlock()
		return nil
	}
	v.claiming = true
	m.mu.Unlock()
	m.endForced(ctx, s.Name, v, now)
	return nil
}

// endForced keeps that what an operator forced is over. Where that fails the next
// call does it.
func (m *Member) endForced(ctx context.Context, scope string, v *scopeView, now time.Time) {
	ctx, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
	record, sharedNow, err := m.shared.Update(ctx, scope, func(r BreakerRecord, now time.Time) (BreakerRecord, Transition) {
		b := RestoreBreaker(BreakerConfig{}, r)
		t := b.EndForced(now)
		return b.Record(), t
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	v.claiming = false
	if err == nil {
		m.learn(record, sharedNow, now)
	}
}

// forcedOpenNow reports whether an operator has forced one of the scopes open that
// have no breaker of their own. The lock is held.
func (m *Member) forcedOpenNow(scopes []Scope, now time.Time) bool {
	for _, s := range scopes {
		if s.Breaker != nil {
			continue
		}
		if v := m.scopes[s.Name]; v != nil && v.record.State == Open && (v.openUntil.IsZero() || now.Before(v.openUntil)) {
			return true
		}
	}
	return false
}
