package resilience

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// KindRamp says that the breaker closed a moment ago, and that calls are let
// through a few at a time.
const KindRamp Kind = "ramp"

// maxFlush bounds how many scopes one flush hands in; those with failures first.
const maxFlush = 2000

// learn takes over a record as it was at sharedNow, which is now here. The lock
// is held.
func (m *Member) learn(r ScopeRecord, sharedNow, now time.Time) {
	v := m.viewIf(r.Scope, r.State != Closed || r.Forced != nil || m.scopes[r.Scope] != nil || len(m.scopes) < maxMemberScopes)
	if v == nil {
		return
	}
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
			From: from, To: r.State, Reason: r.Reason, Generation: r.Generation, At: here(r.ChangedAt), Until: here(r.OpenUntil), Code: r.Code, By: r.Forced,
		}})
		v.closedAt = time.Time{}
		if r.Reason == ReasonReset {
			// An operator knows better than the provider, and than this process; but
			// not what has been said since, where the news comes late.
			if m.guard.resetAsOf(here(r.ChangedAt), r.Scope, now) {
				delete(m.gates, r.Scope)
			}
		}
		if r.State == Closed && (r.Reason == ReasonProbesSucceeded || r.Reason == ReasonReset) {
			v.closedAt = here(r.ChangedAt)
		}
	}
	v.record, v.changedAt = r.BreakerRecord, here(r.ChangedAt)
	v.openUntil, v.leaseUntil, v.forcedTill = here(r.OpenUntil), here(r.LeaseUntil), time.Time{}
	if r.Forced != nil {
		v.forcedTill = here(r.Forced.Until)
	}
}

// maxTransitions is how many changes are kept for [Member.Transitions]; of more the
// oldest are lost.
const maxTransitions = 1024

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
// once and for the others after the next flush, which it asks for. It is handed in
// even where the gate is shut for longer here: what was learned from others is
// rounded up by the time it took, and may be less where it came from.
func (m *Member) Throttle(scope string, until, now time.Time) {
	if !until.After(now) {
		return
	}
	m.guard.Throttle(scope, until, now)
	m.mu.Lock()
	m.shut(scope, until)
	m.mu.Unlock()
	m.kickNow()
}

// shut keeps a gate for the next flush. The lock is held.
func (m *Member) shut(scope string, until time.Time) {
	if at, known := m.gates[scope]; until.After(at) && (known || len(m.gates) < maxMemberScopes) {
		m.gates[scope] = until
	}
}

// Refresh learns what the other processes changed. now is the time before it.
func (m *Member) Refresh(ctx context.Context, now time.Time) error {
	m.mu.Lock()
	since := m.since
	m.mu.Unlock()
	asked := time.Now()
	c, err := m.shared.Changed(ctx, since)
	if err != nil {
		return err
	}
	m.learnAll(c, now)
	// When the shared clock was read, on the way there and back, is not known. Taken
	// for the end, no gate opens too early; a breaker is asked about again anyhow.
	now = now.Add(time.Since(asked))
	for _, g := range c.Gates {
		m.guard.Throttle(g.Scope, now.Add(g.Until.Sub(c.Now)), now)
	}
	return nil
}

func (m *Member) learnAll(c Changes, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range c.Breakers {
		m.learn(r, c.Now, now)
	}
	// What a transaction wrote may be seen after what a later one did.
	m.since = c.Now.Add(-overlap)
}

// Known reports whether the process has learned what is shared. Before it has, it
// knows of no gate and no breaker of the others, and should start no call.
func (m *Member) Known() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.since.IsZero()
}

// overlap is by how much each refresh looks back further than the last one
// reached: longer than any transaction that writes breakers or gates.
const overlap = 5 * time.Second

// Flush hands in gates and evidence, and opens the breakers for which the
// evidence of all processes is enough.
func (m *Member) Flush(ctx context.Context, now time.Time) error {
	gates, tallies := m.collect(now)
	handedIn := false
	defer func() {
		if !handedIn { // it panics, and what was collected must not be lost with it
			m.giveBack(gates, now)
			m.again(tallies...)
		}
	}()
	err := m.handIn(ctx, gates, tallies, now)
	handedIn = true
	return err
}

// handIn is Flush for what was collected. What cannot be handed in is kept.
func (m *Member) handIn(ctx context.Context, gates map[string]time.Duration, tallies []ScopeTally, now time.Time) error {
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
		m.again(tallies...)
		return errors.Join(err, reportErr)
	}
	for _, t := range tallies {
		cfg, known := m.config(t.Scope)
		if why, trips := cfg.Trips(sums[t.Scope]); known && trips {
			if why == ReasonSlow && !m.worthLeaving(t.Scope, sums[t.Scope], now) {
				continue
			}
			if tripErr := m.trip(ctx, t, cfg, why, now); tripErr != nil {
				m.again(t)
				err = errors.Join(err, tripErr)
			}
		}
	}
	return err
}

// again has evidence handed in once more.
func (m *Member) again(tallies ...ScopeTally) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range tallies {
		if v := m.scopes[t.Scope]; v != nil {
			v.dirty = true
		}
	}
}

func (m *Member) config(scope string) (cfg BreakerConfig, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.scopes[scope]
	if v == nil {
		return cfg, false
	}
	return v.cfg, true
}

// trip opens a breaker, unless its generation is no longer the one under which
// the evidence was gathered. What it is instead is learned, and newer evidence has
// to come.
func (m *Member) trip(ctx context.Context, t ScopeTally, cfg BreakerConfig, why Reason, now time.Time) error {
	record, sharedNow, err := m.shared.Update(ctx, t.Scope, func(r BreakerRecord, now time.Time) (BreakerRecord, Transition) {
		b := RestoreBreaker(cfg, r)
		change := b.Trip(t.Generation, why, Evidence{Verdict: Failure}, now, m.rand())
		return b.Record(), change
	})
	if err != nil {
		return err
	}
	m.learnOne(record, sharedNow, now)
	if record.Generation == 0 && t.Generation != 0 {
		// The record was forgotten after it had been closed for long. All that was
		// seen since is still true, and is handed in as of no generation.
		m.again(t)
		m.kickNow()
	}
	return nil
}

func (m *Member) learnOne(r ScopeRecord, sharedNow, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.learn(r, sharedNow, now)
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
		case t.Calls == 0 && v.unused() && !now.Before(v.shutUntil) && v.forgotten(now):
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
		m.shut(scope, now.Add(left))
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
	v := m.view(d.Scope)
	if v == nil {
		return d
	}
	if !now.Before(v.shutUntil) {
		v.refused = 0
	}
	if d.Until.After(v.shutUntil) {
		v.shutUntil = d.Until
	}
	d.Until = d.Until.Add(time.Duration(v.refused) * time.Second / spreadRate)
	v.refused = min(v.refused+m.countNodes(), spreadRate*maxSpread)
	return d
}

// maxSpread is the most seconds by which the end of a denial is moved.
const maxSpread = 60
