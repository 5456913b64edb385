package resilience

import (
	"context"
	"sync"
	"time"
)

// Times and bounds of a [Member].
const (
	// localOpen is the longest that a process stops calling on its own evidence,
	// until the evidence of all has been looked at.
	localOpen = 5 * time.Second
	// askAgain is when to ask again while another call is claiming a probe, or the
	// shared state cannot be reached.
	askAgain = 250 * time.Millisecond
	// probeWait is the longest that a call waits for another one's probe before it
	// asks again: the verdict normally comes long before the lease ends, and the
	// next probe must not wait for new traffic.
	probeWait = 5 * time.Second
	// sharedTimeout bounds the way of a claim or verdict to the shared state; a
	// probe whose claim or verdict is lost is given up when its lease ends.
	sharedTimeout = 2 * time.Second
	// rampStep and rampFor: after a breaker closed, a process has 1, 2, 4, … calls
	// of its scope under way at once, doubling each step.
	rampStep = 4 * time.Second
	rampFor  = 30 * time.Second
	// maxMemberScopes bounds how many scopes are watched, and how many gates.
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
	nodes  func() int // nil means one

	alternatives func(scope string) []string // nil means none
}

// NewMember returns a process's part in the given shared state. rand returns a
// random number in [0, 1) and must be safe for concurrent use.
func NewMember(shared Shared, rand func() float64) *Member {
	return &Member{
		shared: shared, guard: NewGuard(GuardConfig{MaxScopes: maxMemberScopes, Rand: rand}), rand: rand, scopes: map[string]*scopeView{},
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
	all    []Scope
	scopes []passScope // those with breakers
}

type passScope struct {
	Scope
	generation uint64
	counted    bool      // among those in flight
	permit     Permit    // of a probe
	until      time.Time // the probe's lease
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
	ticket, denial := m.guard.Admit(m.localScopes(scopes, now), now)
	if denial != nil {
		return nil, m.spread(denial, now)
	}
	p := &Pass{member: m, ticket: ticket, all: scopes}
	for _, s := range scopes {
		denial := m.forcedOpen(ctx, s, now)
		if denial == nil && s.Breaker != nil {
			denial = m.admit(ctx, p, s, now)
		}
		if denial != nil {
			p.Withdraw(ctx, now)
			return nil, m.spread(denial, now)
		}
	}
	return p, nil
}

// localScopes returns the scopes as this process guards them for itself. What an
// operator forced closed is left to its gates.
func (m *Member) localScopes(scopes []Scope, now time.Time) []Scope {
	local := make([]Scope, len(scopes))
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, s := range scopes {
		if s.Breaker != nil {
			s.Breaker = localConfig(s.Breaker)
			if v := m.scopes[s.Name]; v != nil && v.forcedNow(now) && v.record.State != Open {
				s.Breaker = nil
			}
		}
		local[i] = s
	}
	return local
}

// localConfig holds a process back on its own evidence for localOpen at most, the
// lengthening at random included.
func localConfig(shared *BreakerConfig) *BreakerConfig {
	cfg := *shared
	cfg.OpenFor = localOpen * 10 / (10 + openJitter*10)
	cfg.OpenCap, cfg.RejectedFor, cfg.ProbeLease, cfg.Successes = cfg.OpenFor, localOpen, localOpen, 1
	return &cfg
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
	switch {
	case claim:
		v.claiming = true
	case denial == nil:
		v.inFlight++
		p.scopes = append(p.scopes, passScope{Scope: s, generation: v.record.Generation, counted: true})
	case denial.Kind == KindRamp:
		denial.Until = denial.Until.Add(time.Duration(m.rand() * float64(rampStep)))
	}
	m.mu.Unlock()
	if !claim {
		return denial
	}
	return m.claim(ctx, p, s, v, now)
}

// claim asks the shared state for the probe of a breaker whose time is over. The
// view stays while it is claiming.
func (m *Member) claim(ctx context.Context, p *Pass, s Scope, v *scopeView, now time.Time) *Denial {
	ctx, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
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
	p.scopes = append(p.scopes, passScope{
		Scope: s, generation: record.Generation, counted: true, permit: permit,
		// The lease began after now, so that this is early rather than late.
		until: now.Add(record.LeaseUntil.Sub(sharedNow)),
	})
	return nil
}

// Start is asked right before the call, since some time may have passed since it
// was admitted. It reports false if the call must not be made after all: a gate
// was shut meanwhile, a breaker opened, or a probe's lease is over. The pass has
// to be withdrawn then. until is when a probe's call must be over, lest another
// one is under way beside it; it is zero for other calls.
func (p *Pass) Start(now time.Time) (until time.Time, ok bool) {
	m := p.member
	if m == nil || m.guard.gated(p.all, now) {
		return time.Time{}, false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.forcedOpenNow(p.all, now) {
		return time.Time{}, false
	}
	for _, s := range p.scopes {
		if s.permit.Probe() {
			if until.IsZero() || s.until.Before(until) {
				until = s.until
			}
			continue
		}
		if v := m.scopes[s.Name]; v != nil && v.record.Generation != s.generation && v.shut() {
			return time.Time{}, false
		}
	}
	return until, until.IsZero() || now.Before(until)
}

// Done reports what the call told and how long it took.
func (p *Pass) Done(ctx context.Context, e Evidence, took time.Duration, now time.Time) {
	m := p.member
	if m == nil {
		return
	}
	p.member = nil
	p.ticket.Done(Evidence{Verdict: e.Verdict}, now)
	for _, s := range p.scopes {
		slow := s.Breaker.SlowCall > 0 && took >= s.Breaker.SlowCall
		counts := m.count(s, e, slow, now)
		if s.permit.Probe() || counts && e.Verdict == Rejected {
			m.verdict(ctx, s, e, now)
		}
	}
}

// Withdraw says that no call was made after all.
func (p *Pass) Withdraw(ctx context.Context, now time.Time) {
	p.Done(ctx, Evidence{Verdict: None}, 0, now)
}

// count adds a call to the evidence about a scope and reports whether it may
// count: its generation is the current one as far as this process knows.
func (m *Member) count(s passScope, e Evidence, slow bool, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.scopes[s.Name]
	speaks := e.Verdict == Failure || e.Verdict == Success
	if v == nil {
		if v = m.viewIf(s.Name, speaks); v == nil {
			return s.generation == 0
		}
	}
	v.cfg = *s.Breaker
	if s.counted {
		v.inFlight = max(v.inFlight-1, 0)
	}
	if s.permit.Probe() || s.generation != v.record.Generation || v.forcedNow(now) {
		return false
	}
	v.window.Add(e.Verdict, slow, now)
	v.dirty = v.dirty || speaks
	if e.Verdict == Failure && v.window.streak >= orDefault(v.cfg.Failures, DefaultFailures) {
		m.kickNow()
	}
	return true
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
