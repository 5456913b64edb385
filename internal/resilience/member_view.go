package resilience

import "time"

// scopeView is what a process knows of one scope's shared breaker. Its instants
// are the process's own.
type scopeView struct {
	cfg        BreakerConfig
	record     BreakerRecord
	openUntil  time.Time
	leaseUntil time.Time
	forcedTill time.Time // zero where nothing is forced, or for good
	changedAt  time.Time
	closedAt   time.Time // when it closed; zero where calls need no ramp
	window     Window
	dirty      bool
	claiming   bool
	inFlight   int
	refused    int       // calls refused since it was shut
	shutUntil  time.Time // the latest end of a refusal
}

// ask decides from what is known whether a call may start, or whether a probe
// must be claimed for it.
func (v *scopeView) ask(name string, now time.Time) (d *Denial, claim bool) {
	refuse := func(until time.Time) (*Denial, bool) {
		return &Denial{Scope: name, Kind: KindBreaker, Until: until}, false
	}
	switch v.record.State {
	case Open:
		switch {
		case v.openUntil.IsZero():
			return refuse(time.Time{})
		case now.Before(v.openUntil):
			return refuse(v.openUntil)
		}
	case HalfOpen:
		if v.record.Probing && now.Before(v.leaseUntil) {
			return refuse(earlier(v.leaseUntil, now.Add(probeWait)))
		}
	case Closed, "":
		if v.record.Forced != nil {
			return nil, false
		}
		if limit := v.ramp(now); limit > 0 && v.inFlight >= limit {
			return &Denial{Scope: name, Kind: KindRamp, Until: now.Add(askAgain)}, false
		}
		return nil, false
	}
	if v.claiming {
		return refuse(now.Add(askAgain))
	}
	return nil, true
}

// ramp returns how many calls may be under way since the breaker closed; 0 for
// no limit.
func (v *scopeView) ramp(now time.Time) int {
	if v.closedAt.IsZero() || now.Sub(v.closedAt) >= rampFor {
		return 0
	}
	return 1 << max(now.Sub(v.closedAt)/rampStep, 0)
}

// view returns what is known of a scope, made if need be; nil where there is no
// room for more. The lock is held.
func (m *Member) view(scope string) *scopeView {
	v := m.scopes[scope]
	if v == nil && m.room() {
		v = &scopeView{}
		m.scopes[scope] = v
	}
	return v
}

// viewIf is view, which makes nothing unless it is wanted.
func (m *Member) viewIf(scope string, wanted bool) *scopeView {
	if !wanted {
		return m.scopes[scope]
	}
	return m.view(scope)
}

// room reports whether one more scope can be watched. Where all places are taken
// one whose breaker never changed gives way, of the few looked at the one with the
// fewest failures.
func (m *Member) room() bool {
	if len(m.scopes) < maxMemberScopes {
		return true
	}
	victim, fewest, looked := "", -1, 0
	for name, v := range m.scopes {
		if v.record.Generation == 0 && v.unused() && (fewest < 0 || v.window.streak < fewest) {
			victim, fewest = name, v.window.streak
		}
		if looked++; looked >= searchDepth || fewest == 0 {
			break
		}
	}
	if fewest < 0 {
		return false
	}
	delete(m.scopes, victim)
	return true
}

// unused reports whether no call of the scope is under way or asking.
func (v *scopeView) unused() bool { return v.inFlight == 0 && !v.claiming }

// forcedNow reports whether an operator's decision holds.
func (v *scopeView) forcedNow(now time.Time) bool {
	return v.record.Forced != nil && (v.forcedTill.IsZero() || now.Before(v.forcedTill))
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// forgotten reports whether a breaker has been closed for so long that its record
// is gone everywhere.
func (v *scopeView) forgotten(now time.Time) bool {
	return v.record.Generation == 0 ||
		v.record.State == Closed && v.record.Forced == nil && now.Sub(v.changedAt) > 2*DefaultHealthy
}

// shut reports whether only probes may pass.
func (v *scopeView) shut() bool { return v.record.State == Open || v.record.State == HalfOpen }
