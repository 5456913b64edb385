package resilience

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// KindRamp: the breaker closed a moment ago, and calls are let through a few at
// a time.
const KindRamp Kind = "ramp"

// maxFlush bounds how many scopes one flush hands in; those with failures first.
const maxFlush = 2000

// learn takes over a record as it was at sharedNow, which is now here. The lock
// is held.
func (m *Member) learn(r ScopeRecord, sharedNow, now time.Time) {
	v := m.view(r.Scope)
	// A record of generation 0 is one that was forgotten after it had long been
	// closed; any other lower one is older than what is known.
	if r.Generation != 0 && r.Generation < v.record.Generation ||
		r.Generation == v.record.Generation && r.Probes < v.record.Probes {
		return
	}
	here := func(t time.Time) time.Time {
		if t.IsZero() {
			return t
		}
		return now.Add(t.Sub(sharedNow))
	}
	if r.Generation > v.record.Generation {
		v.window.Clear()
		v.dirty, v.refused = false, 0
		from := v.record.State
		if from == "" {
			from = Closed
		}
		m.note(ScopeTransition{r.Scope, Transition{
			From: from, To: r.State, Reason: r.Reason, Generation: r.Generation, At: here(r.ChangedAt), Until: here(r.OpenUntil), By: r.Forced,
		}})
		v.closedAt = time.Time{}
		if r.State == Closed && (r.Reason == ReasonProbesSucceeded || r.Reason == ReasonReset) {
			v.closedAt = here(r.ChangedAt)
		}
	}
	v.record, v.changedAt = r.BreakerRecord, here(r.ChangedAt)
	v.openUntil, v.leaseUntil = here(r.OpenUntil), here(r.LeaseUntil)
}

func (m *Member) note(t ScopeTransition) {
	if len(m.notes) >= maxTransitions {
		m.notes = slices.Delete(m.notes, 0, 1)
	}
	m.notes = append(m.notes, t)
}

// Transitions returns the changes of shared breakers that this process has seen
// since it was last asked, oldest first.
func (m *Member) Transitions() []ScopeTransition {
	m.mu.Lock()
	defer m.mu.Unlock()
	notes := m.notes
	m.notes = nil
	return notes
}

// Throttle keeps a scope's gate shut until an instant of this process, here at
// once and for the others after the next flush, which it asks for.
func (m *Member) Throttle(scope string, until, now time.Time) {
	if !m.guard.Throttle(scope, until, now) {
		return
	}
	m.mu.Lock()
	m.gates[scope] = until
	m.mu.Unlock()
	m.kickNow()
}

// Refresh learns what the other processes changed.
func (m *Member) Refresh(ctx context.Context, now time.Time) error {
	m.mu.Lock()
	since := m.since
	m.mu.Unlock()
	c, err := m.shared.Changed(ctx, since)
	if err != nil {
		return err
	}
	m.mu.Lock()
	for _, r := range c.Breakers {
		m.learn(r, c.Now, now)
	}
	// What a transaction wrote may be seen after what a later one did.
	m.since = c.Now.Add(-overlap)
	m.mu.Unlock()
	for _, g := range c.Gates {
		m.guard.Throttle(g.Scope, now.Add(g.Until.Sub(c.Now)), now)
	}
	return nil
}

// overlap is by how much each refresh looks back further than the last one
// reached: longer than any transaction that writes breakers or gates.
const overlap = 5 * time.Second

// Flush hands in gates and evidence, and opens the breakers for which the
// evidence of all processes is enough.
func (m *Member) Flush(ctx context.Context, now time.Time) error {
	gates, tallies := m.collect(now)
	var err error
	if len(gates) > 0 {
		if err = m.shared.Throttle(ctx, gates); err != nil {
			m.giveBack(gates, now)
		}
	}
	if len(tallies) == 0 {
		return err
	}
	sums, reportErr := m.shared.Report(ctx, tallies)
	if reportErr != nil {
		m.mu.Lock()
		for _, t := range tallies {
			m.view(t.Scope).dirty = true
		}
		m.mu.Unlock()
		return errors.Join(err, reportErr)
	}
	for _, t := range tallies {
		m.mu.Lock()
		cfg := m.view(t.Scope).cfg
		m.mu.Unlock()
		why, trips := cfg.Trips(sums[t.Scope])
		if !trips {
			continue
		}
		if tripErr := m.trip(ctx, t, cfg, why, now, false); tripErr != nil {
			err = errors.Join(err, tripErr)
		}
	}
	return err
}

func (m *Member) trip(ctx context.Context, t ScopeTally, cfg BreakerConfig, why Reason, now time.Time, again bool) error {
	record, sharedNow, err := m.shared.Update(ctx, t.Scope, func(r BreakerRecord, now time.Time) (BreakerRecord, Transition) {
		b := RestoreBreaker(cfg, r)
		change := b.Trip(t.Generation, why, Evidence{Verdict: Failure}, now, m.rand())
		return b.Record(), change
	})
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.learn(record, sharedNow, now)
	m.mu.Unlock()
	if record.Generation != t.Generation && record.State == Closed && !again {
		// What was known was out of date: the record had been forgotten, or this
		// process had not heard of a change. The evidence is from after it.
		t.Generation = record.Generation
		return m.trip(ctx, t, cfg, why, now, true)
	}
	return nil
}

// collect takes what has to be handed in, and forgets scopes about which there
// is nothing to know.
func (m *Member) collect(now time.Time) (map[string]time.Duration, []ScopeTally) {
	m.mu.Lock()
	defer m.mu.Unlock()
	gates := make(map[string]time.Duration, len(m.gates))
	for scope, until := range m.gates {
		if left := until.Sub(now); left > 0 {
			gates[scope] = left
		}
	}
	clear(m.gates)
	var tallies []ScopeTally
	for name, v := range m.scopes {
		t := v.window.Tally(now)
		switch {
		case v.dirty:
			tallies = append(tallies, ScopeTally{name, v.record.Generation, t})
		case t.Calls == 0 && v.inFlight == 0 && !now.Before(v.shutUntil) && v.forgotten(now):
			delete(m.scopes, name)
		}
	}
	slices.SortFunc(tallies, func(a, b ScopeTally) int {
		if a.Streak != b.Streak {
			return b.Streak - a.Streak
		}
		return strings.Compare(a.Scope, b.Scope)
	})
	tallies = tallies[:min(len(tallies), maxFlush)]
	for _, t := range tallies {
		m.scopes[t.Scope].dirty = false
	}
	return gates, tallies
}

// giveBack keeps gates that could not be handed in for the next flush.
func (m *Member) giveBack(gates map[string]time.Duration, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for scope, left := range gates {
		if until := now.Add(left); until.After(m.gates[scope]) {
			m.gates[scope] = until
		}
	}
}

// spreadRate is how many refused calls a second come back once a scope is open
// again, so that its door does not open on a herd.
const spreadRate = 50

// spread moves the end of a denial later, the more calls were refused since the
// scope was shut.
func (m *Member) spread(d *Denial, now time.Time) *Denial {
	if d.Kind == KindRamp || !d.Until.After(now) {
		return d // also where there is no end
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.scopes[d.Scope]
	if v == nil {
		if len(m.scopes) >= maxMemberScopes {
			return d
		}
		v = m.view(d.Scope)
	}
	if !now.Before(v.shutUntil) {
		v.refused = 0
	}
	if d.Until.After(v.shutUntil) {
		v.shutUntil = d.Until
	}
	d.Until = d.Until.Add(time.Duration(v.refused) * time.Second / spreadRate)
	v.refused = min(v.refused+1, spreadRate*maxSpread)
	return d
}

// maxSpread is the most seconds by which the end of a denial is moved.
const maxSpread = 60

// forgotten reports whether a breaker has been closed for so long that its record
// is gone everywhere.
func (v *scopeView) forgotten(now time.Time) bool {
	return v.record.Generation == 0 ||
		v.record.State == Closed && v.record.Forced == nil && now.Sub(v.changedAt) > 2*DefaultHealthy
}

// Held returns the scopes for which no call may start now, and those whose
// breaker waits for a probe, of which one call at a time may.
func (m *Member) Held(now time.Time) (held, probing []string) {
	for _, s := range m.guard.Snapshot(now) {
		if s.Paused != nil || s.GateUntil.After(now) || s.Breaker.State == Open && s.Breaker.OpenUntil.After(now) {
			held = append(held, s.Scope)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, v := range m.scopes {
		switch d, claim := v.ask(name, now); {
		case claim:
			probing = append(probing, name)
		case d != nil && d.Kind == KindBreaker:
			held = append(held, name)
		}
	}
	return held, probing
}

// Snapshot shows the scopes that are not well, by name. Breakers are the shared
// ones, in this process's time; gates and pauses are those it knows of.
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
		Failures: v.window.Tally(now).Streak, Forced: v.record.Forced, ChangedAt: v.changedAt,
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
