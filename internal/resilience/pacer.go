package resilience

import (
	"context"
	"time"
)

const (
	// DefaultPaceTTL is for how long a pacer keeps a leased token: longer than a
	// delivery that was told to come back takes to do so, for a slow limit's only
	// token must not be dropped before.
	DefaultPaceTTL = 500 * time.Millisecond
	// paceAgain is when to come back while the source is being asked.
	paceAgain = 25 * time.Millisecond
)

// Pace is the limit of one scope of a call.
type Pace struct {
	Scope string
	Limit Limit
}

// Pacer keeps calls to each scope below a rate that its provider is known to
// bear, for all nodes together, so that the provider need not refuse any. Like a
// [Limiter] it leases tokens, and while its source fails each node paces at its
// part of the rate. It is safe for concurrent use.
type Pacer struct{ limiter *Limiter }

// NewPacer returns a pacer. The default TTL of its leases is [DefaultPaceTTL].
func NewPacer(cfg LimiterConfig) *Pacer {
	cfg.Lease.TTL = orDefault(cfg.Lease.TTL, DefaultPaceTTL)
	return &Pacer{NewLimiter(cfg)}
}

// Run asks the source for tokens until ctx ends; see [Limiter.Run].
func (p *Pacer) Run(ctx context.Context) { p.limiter.Run(ctx) }

// Stats returns what was done so far. A call counts once for each scope.
func (p *Pacer) Stats() LimiterStats { return p.limiter.Stats() }

// Wait asks for leave to make one call that concerns all of the scopes, whose
// names differ. Either each gives a token or none does, and until is when to ask
// again. Where the source has to be asked it waits for the answer, for at most the
// time given and not beyond ctx: the token that comes is this node's, and would end
// unspent where the call came back at another one.
func (p *Pacer) Wait(ctx context.Context, paces []Pace, atMost time.Duration) (ok bool, until time.Time) {
	ok, until, answered := p.limiter.takeAll(paces, time.Now(), true)
	if answered == nil {
		return ok, until
	}
	timeout := time.NewTimer(atMost)
	defer timeout.Stop()
	for answered != nil {
		select {
		case <-answered:
		case <-timeout.C:
			return false, until
		case <-ctx.Done():
			return false, until
		}
		ok, until, answered = p.limiter.takeAll(paces, time.Now(), false)
	}
	return ok, until
}

// takeAll takes a token of every scope or of none. Where the source is being
// asked, it returns what is closed when it is worth coming back.
func (l *Limiter) takeAll(paces []Pace, now time.Time, first bool) (ok bool, until time.Time, answered <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	short := false
	for _, p := range paces {
		e := l.entry(p.Scope, p.Limit)
		if first {
			e.lease.Demand(1, now)
		}
		switch standing, at := l.standing(e, now); standing {
		case Denied:
			until = later(until, at)
		case Short:
			short = true
		case Ready:
		}
	}
	switch {
	case !until.IsZero():
		// What the other scopes would be asked for would not be spent in time.
		l.stats.Refused += int64(len(paces))
		return false, until, nil
	case short:
		return false, now.Add(paceAgain), l.askAll(paces, now)
	}
	for _, p := range paces {
		l.spend(l.entry(p.Scope, p.Limit), now)
	}
	return true, time.Time{}, nil
}

// askAll has the source asked for each scope that is short.
func (l *Limiter) askAll(paces []Pace, now time.Time) (answered <-chan struct{}) {
	for _, p := range paces {
		e := l.entry(p.Scope, p.Limit)
		if standing, _ := e.lease.Check(1, now); standing != Short {
			continue
		}
		e.polled++
		l.ask(e, 1)
		answered = e.wait()
	}
	return answered
}

// standing is how a call stands with a scope: without the source it is never
// short.
func (l *Limiter) standing(e *leased, now time.Time) (Standing, time.Time) {
	standing, until := e.lease.Check(1, now)
	if standing != Short || !l.alone(now) {
		return standing, until
	}
	part := e.limit.shared(l.nodes(), 1)
	if wait := part.wait(e.local.debt(part, now), 1); wait > 0 {
		return Denied, now.Add(wait)
	}
	return Ready, time.Time{}
}

// spend takes one token of a scope that is ready.
func (l *Limiter) spend(e *leased, now time.Time) {
	if standing, _ := e.lease.Check(1, now); standing != Ready {
		l.decideAlone(e, 1, now)
		return
	}
	e.lease.Spend(1)
	l.stats.Taken++
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
