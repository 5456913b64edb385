package resilience

import (
	"context"
	"sync"
	"time"
)

// Times and bounds of a [Member].
const (
	// localOpen is how long a process stops calling on its own evidence, until the
	// evidence of all has been looked at.
	localOpen = 5 * time.Second
	// askAgain is when to ask again while another call is claiming a probe, or the
	// shared state cannot be reached.
	askAgain = 250 * time.Millisecond
	// sharedTimeout bounds a verdict's way to the shared state; a probe whose
	// verdict is lost is given up when its lease ends.
	sharedTimeout = 2 * time.Second
	// rampStep and rampFor: after a breaker closed, a process has 1, 2, 4, … calls
	// of its scope under way at once, doubling each step.
	rampStep = 4 * time.Second
	rampFor  = 30 * time.Second
	// maxMemberScopes bounds how many scopes are watched.
	maxMemberScopes = 20_000
)

// Member is one process's part in breakers and gates that all processes share.
// A call on a scope that is well costs no round trip: the shared state is known
// from [Member.Refresh], and the process's own evidence is handed in by
// [Member.Flush]. Only a probe and its verdict ask the shared state.
//
// It is safe for concurrent use and has no goroutine of its own.
type Member struct {
	shared Shared
	guard  *Guard // gates, and what this process decides for itself
	rand   func() float64

	mu     sync.Mutex
	scopes map[string]*scopeView
	gates  map[string]time.Time // shut by this process and not handed in yet
	since  time.Time            // shared clock
	notes  []ScopeTransition
	kick   chan struct{}
}

// scopeView is what a process knows of one scope's shared breaker. Its instants
// are the process's own.
type scopeView struct {
	cfg        BreakerConfig
	record     BreakerRecord
	openUntil  time.Time
	leaseUntil time.Time
	changedAt  time.Time
	closedAt   time.Time // when it closed; zero where calls need no ramp
	window     Window
	dirty      bool
	claiming   bool
	inFlight   int
	refused    int       // calls refused since it was shut
	shutUntil  time.Time // the latest end of a refusal
}

// NewMember returns a process's part in the given shared state. rand returns a
// random number in [0, 1) and must be safe for concurrent use.
func NewMember(shared Shared, rand func() float64) *Member {
	return &Member{
		shared: shared, guard: NewGuard(GuardConfig{Rand: rand}), rand: rand, scopes: map[string]*scopeView{},
		gates: map[string]time.Time{}, kick: make(chan struct{}, 1),
	}
}

// Kicked tells when [Member.Flush] should run at once rather than at the next
// second: a gate was shut, or there is enough evidence to open a breaker.
func (m *Member) Kicked() <-chan struct{} { return m.kick }

func (m *Member) kickNow() {
	select {
	case m.kick <- struct{}{}:
	default:
	}
}

// Pass is leave for one call. It must be given back with [Pass.Done] or
// [Pass.Withdraw], once.
type Pass struct {
	member *Member
	ticket Ticket
	scopes []passScope
}

type passScope struct {
	Scope
	generation uint64
	permit     Permit // of a probe
}

// Probe reports whether the call is a probe of a shared breaker.
func (p *Pass) Probe() bool {
	for _, s := range p.scopes {
		if s.permit.Probe() {
			return true
		}
	}
	return false
}

// Admit asks for leave to make one call that concerns all of the scopes; see
// [Guard.Admit]. It asks the shared state only where a probe is due.
func (m *Member) Admit(ctx context.Context, scopes []Scope, now time.Time) (*Pass, *Denial) {
	local := make([]Scope, len(scopes))
	for i, s := range scopes {
		local[i] = s
		if s.Breaker != nil {
			cfg := *s.Breaker
			cfg.OpenFor, cfg.OpenCap, cfg.RejectedFor, cfg.Successes = localOpen, localOpen, localOpen, 1
			local[i].Breaker = &cfg
		}
	}
	ticket, denial := m.guard.Admit(local, now)
	if denial != nil {
		return nil, m.spread(denial, now)
	}
	p := &Pass{member: m, ticket: ticket}
	for _, s := range scopes {
		if s.Breaker == nil {
			continue
		}
		if denial := m.admit(ctx, p, s, now); denial != nil {
			p.Withdraw(ctx, now)
			return nil, m.spread(denial, now)
		}
	}
	return p, nil
}

// admit asks one shared breaker and adds it to the pass.
func (m *Member) admit(ctx context.Context, p *Pass, s Scope, now time.Time) *Denial {
	m.mu.Lock()
	v := m.scopes[s.Name]
	if v == nil {
		m.mu.Unlock()
		p.scopes = append(p.scopes, passScope{Scope: s})
		return nil
	}
	v.cfg = *s.Breaker
	denial, claim := v.ask(s.Name, now)
	if denial == nil && !claim {
		v.inFlight++
		p.scopes = append(p.scopes, passScope{Scope: s, generation: v.record.Generation})
	}
	v.claiming = v.claiming || claim
	m.mu.Unlock()
	if !claim {
		return denial
	}
	return m.claim(ctx, p, s, now)
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
			return refuse(v.leaseUntil)
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
	return 1 << (now.Sub(v.closedAt) / rampStep)
}

// claim asks the shared state for the probe of a breaker whose time is over.
func (m *Member) claim(ctx context.Context, p *Pass, s Scope, now time.Time) *Denial {
	var permit Permit
	var ok bool
	record, sharedNow, err := m.shared.Update(ctx, s.Name, func(r BreakerRecord, now time.Time) (BreakerRecord, Transition) {
		b := RestoreBreaker(*s.Breaker, r)
		var t Transition
		permit, ok, t = b.Admit(now)
		return b.Record(), t
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.view(s.Name)
	v.claiming = false
	if err != nil {
		return &Denial{Scope: s.Name, Kind: KindBreaker, Until: now.Add(askAgain)}
	}
	m.learn(record, sharedNow, now)
	if !ok {
		d, _ := v.ask(s.Name, now)
		if d == nil {
			d = &Denial{Scope: s.Name, Kind: KindBreaker, Until: now.Add(askAgain)}
		}
		return d
	}
	v.inFlight++
	p.scopes = append(p.scopes, passScope{Scope: s, generation: record.Generation, permit: permit})
	return nil
}

// Done reports what the call told and how long it took.
func (p *Pass) Done(ctx context.Context, e Evidence, took time.Duration, now time.Time) {
	m := p.member
	if m == nil {
		return
	}
	p.member = nil
	p.ticket.Done(e, now)
	for _, s := range p.scopes {
		slow := s.Breaker.SlowCall > 0 && took >= s.Breaker.SlowCall
		m.count(s, e, slow, now)
		if s.permit.Probe() || e.Verdict == Rejected {
			m.verdict(ctx, s, e, now)
		}
	}
}

// Withdraw says that no call was made after all.
func (p *Pass) Withdraw(ctx context.Context, now time.Time) {
	p.Done(ctx, Evidence{Verdict: None}, 0, now)
}

// count adds a call to the evidence about a scope.
func (m *Member) count(s passScope, e Evidence, slow bool, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.scopes[s.Name]
	if v == nil {
		if e.Verdict != Failure && e.Verdict != Success || len(m.scopes) >= maxMemberScopes {
			return
		}
		v = m.view(s.Name)
		v.inFlight++ // it was admitted unseen
	}
	v.cfg = *s.Breaker
	v.inFlight = max(v.inFlight-1, 0)
	if s.permit.Probe() || s.generation != v.record.Generation {
		return
	}
	v.window.Add(e.Verdict, slow, now)
	v.dirty = v.dirty || e.Verdict == Failure || e.Verdict == Success
	if e.Verdict == Failure && v.window.streak >= orDefault(v.cfg.Failures, DefaultFailures) {
		m.kickNow()
	}
}

// verdict tells the shared breaker what its probe found, or that the account is
// refused. The permit fences it: a verdict that comes too late is void.
func (m *Member) verdict(ctx context.Context, s passScope, e Evidence, now time.Time) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sharedTimeout)
	defer cancel()
	record, sharedNow, err := m.shared.Update(ctx, s.Name, func(r BreakerRecord, now time.Time) (BreakerRecord, Transition) {
		b := RestoreBreaker(*s.Breaker, r)
		var t Transition
		if s.permit.Probe() {
			t = b.Report(s.permit, e, now, m.rand())
		} else {
			t = b.Trip(s.generation, ReasonRejected, e, now, m.rand())
		}
		return b.Record(), t
	})
	if err != nil {
		return // the lease ends by itself
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.learn(record, sharedNow, now)
}

// view returns what is known of a scope, made if need be.
func (m *Member) view(scope string) *scopeView {
	v := m.scopes[scope]
	if v == nil {
		v = &scopeView{}
		m.scopes[scope] = v
	}
	return v
}
