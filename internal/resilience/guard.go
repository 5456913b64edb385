package resilience

import (
	"sync"
	"time"
)

// DefaultMaxScopes is the default of [GuardConfig].MaxScopes.
const DefaultMaxScopes = 10_000

// GuardConfig configures a [Guard].
type GuardConfig struct {
	// MaxScopes bounds how many scopes that are not well are remembered; default
	// 10,000. Beyond it the one not used for longest is forgotten, one with a
	// closed breaker first.
	MaxScopes int
	// Rand returns a random number in [0, 1). It is called under the guard's lock.
	Rand func() float64
}

// Guard holds the breakers and gates of one process, by scope. A scope is
// a name: an account, a sender, a host. Only scopes that are not well take memory:
// those with recent failures, a breaker that was open within the last hour, or a gate
// that is shut. It is safe for concurrent use.
type Guard struct {
	mu     sync.Mutex
	cfg    GuardConfig
	scopes map[string]*entry
	recent recency
}

// entry is one scope that is not well.
type entry struct {
	name       string
	breaker    *Breaker
	gate       Gate
	heardAt    time.Time // when its instant was last named, or a lesser one
	prev, next *entry    // in the order of use
}

func (e *entry) idle(now time.Time) bool {
	_, shut := e.gate.Until(now)
	return !shut && e.breaker.Idle(now)
}

// NewGuard returns a guard under which everything is well.
func NewGuard(cfg GuardConfig) *Guard {
	cfg.MaxScopes = orDefault(cfg.MaxScopes, DefaultMaxScopes)
	g := &Guard{cfg: cfg, scopes: map[string]*entry{}}
	g.recent.init()
	return g
}

// Scope is one scope of a call.
type Scope struct {
	Name string
	// Breaker has the numbers of the scope's breaker; nil where only gates
	// apply to it. Accounts have breakers, and so do webhook hosts, where the
	// account has none: one dead endpoint must not stop the others.
	Breaker *BreakerConfig
}

// Kind says what refuses a call.
type Kind string

// The kinds.
const (
	KindGate    Kind = "gate"
	KindBreaker Kind = "breaker"
)

// Denial says why a call may not start now.
type Denial struct {
	Scope string
	Kind  Kind
	// Until is when to ask again; the zero time where only an operator knows. Of a
	// half-open breaker it is the end of the probe's lease: its verdict normally
	// comes sooner, and with it the next probe's turn.
	Until time.Time
}

// later reports whether d holds longer than o.
func (d Denial) later(o Denial) bool {
	if d.Until.IsZero() || o.Until.IsZero() {
		return !o.Until.IsZero()
	}
	return d.Until.After(o.Until)
}

// Admit asks for leave to make one call that concerns all of the scopes. Either
// all of them let it pass, and the ticket must be given back with [Ticket.Done];
// or none has changed, and the denial is the one that holds longest. A nil
// denial is leave.
func (g *Guard) Admit(scopes []Scope, now time.Time) (Ticket, *Denial) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if d := g.refuses(scopes, now); d != nil {
		return Ticket{}, d
	}
	t := Ticket{guard: g}
	for _, s := range scopes {
		if s.Breaker == nil {
			continue
		}
		h := held{scope: s}
		if e := g.scopes[s.Name]; e != nil {
			e.breaker.cfg = *s.Breaker
			h.permit, _, _ = e.breaker.Admit(now)
		}
		t.add(h)
	}
	return t, nil
}

// refuses finds the denial that holds longest.
func (g *Guard) refuses(scopes []Scope, now time.Time) *Denial {
	var worst *Denial
	consider := func(d Denial) {
		if worst == nil || d.later(*worst) {
			worst = &d
		}
	}
	for _, s := range scopes {
		e := g.scopes[s.Name]
		if e == nil {
			continue
		}
		g.recent.touch(e)
		if until, shut := e.gate.Until(now); shut {
			consider(Denial{s.Name, KindGate, until})
		}
		if s.Breaker == nil {
			continue
		}
		if r, refused := e.breaker.Refuses(now); refused {
			consider(Denial{s.Name, KindBreaker, r.Until})
		}
	}
	return worst
}

// gated reports whether a gate refuses a call that concerns the scopes.
func (g *Guard) gated(scopes []Scope, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range scopes {
		e := g.scopes[s.Name]
		if e == nil {
			continue
		}
		if _, shut := e.gate.Until(now); shut {
			return true
		}
	}
	return false
}

// Throttle keeps the scope's gate shut until the instant given; it only ever
// moves later. It reports whether it did.
func (g *Guard) Throttle(scope string, until, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !until.After(now) {
		return false
	}
	e := g.entry(scope, now)
	e.heardAt = now
	return e.gate.Shut(until)
}

// Ticket is leave for one call. The zero Ticket is of no guard; its Done does
// nothing.
type Ticket struct {
	guard *Guard
	few   [2]held // more than two scopes with breakers are not usual
	n     int
	more  []held
}

type held struct {
	scope  Scope
	permit Permit
}

func (t *Ticket) add(h held) {
	if t.n < len(t.few) {
		t.few[t.n] = h
		t.n++
		return
	}
	t.more = append(t.more, h)
}

// Done reports what the call told, to every scope of it that has a breaker. It
// must be called once; further calls do nothing.
func (t *Ticket) Done(e Evidence, now time.Time) {
	g := t.guard
	if g == nil {
		return
	}
	t.guard = nil
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, h := range t.few[:t.n] {
		g.report(h, e, now)
	}
	for _, h := range t.more {
		g.report(h, e, now)
	}
}

func (g *Guard) report(h held, ev Evidence, now time.Time) {
	e := g.scopes[h.scope.Name]
	if e == nil {
		// All was well when the call started, and still is unless it failed.
		if h.permit != (Permit{}) || ev.Verdict != Failure && ev.Verdict != Rejected {
			return
		}
		e = g.entry(h.scope.Name, now)
	}
	e.breaker.cfg = *h.scope.Breaker
	e.breaker.Report(h.permit, ev, now, g.cfg.Rand())
	if e.idle(now) {
		g.forget(e)
	}
}
