package resilience

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// Defaults of [LimiterConfig].
const (
	DefaultMaxKeys       = 10_000
	DefaultSourceTimeout = 250 * time.Millisecond
	DefaultSourceRest    = time.Second
	minKeys              = 64
)

// TokenSource hands out tokens of keys that several nodes share. Grants come in
// the order of the asks, whose keys differ. An error means that none was
// granted, or that nobody can say; the tokens are then lost.
type TokenSource interface {
	TakeTokens(ctx context.Context, asks []Ask) ([]Grant, error)
}

// LimiterConfig configures a [Limiter]. Zero fields take their defaults.
type LimiterConfig struct {
	// Source is what the nodes share. Without one every decision is this node's.
	Source TokenSource
	// Prefix goes before every key that the source is asked for, so that several
	// limiters can share it.
	Prefix string
	Lease  LeaseConfig
	// MaxKeys bounds the memory, at some 400 bytes a key: of more the one not used
	// for longest is forgotten. 10,000 by default, at least 64.
	MaxKeys int
	// Timeout bounds one exchange with the source, and how long [Limiter.Take]
	// waits for it; 250 ms by default.
	Timeout time.Duration
	// Rest is for how long a source that failed is left alone, 1 s by default.
	Rest time.Duration
	// Nodes returns how many nodes share the limits when each has to decide for
	// itself; nil and less than 1 count as 1. It is called under a lock.
	Nodes func() int
	// Report, if set, is told when the source begins to fail, with the error, and
	// when it answers again, with nil. It is called by [Limiter.Run].
	Report func(err error)
}

func (c LimiterConfig) withDefaults() LimiterConfig {
	c.Lease = c.Lease.withDefaults()
	c.MaxKeys = max(orDefault(c.MaxKeys, DefaultMaxKeys), minKeys)
	c.Timeout = orDefault(c.Timeout, DefaultSourceTimeout)
	c.Rest = orDefault(c.Rest, DefaultSourceRest)
	return c
}

// Limiter enforces limits, by key, that all nodes share, with few round trips:
// tokens are leased from a source and spent here. While the source fails, and
// while [Limiter.Run] does not run, each node enforces its part of the limit by
// itself. It is safe for concurrent use.
type Limiter struct {
	cfg  LimiterConfig
	wake chan struct{} // holds one value while something is pending

	mu      sync.Mutex
	keys    map[string]*list.Element // of *leased
	recent  *list.List               // the one used last in front
	pending []*leased                // to be asked for
	running bool
	rested  time.Time // before it the source is left alone
	stats   LimiterStats
}

// leased is one key of a limiter.
type leased struct {
	key   string
	limit Limit
	lease Lease
	local GCRA // what this node enforces without the source

	waiting   int           // the costs of those who wait for an answer
	polled    int           // the costs of those who do not wait, since the last ask
	least     int           // the smallest that one of them lacks, 0 for nobody
	asking    bool          // pending, or being asked for
	forgotten bool          // no longer among the limiter's keys
	answered  chan struct{} // closed when asking ends; nil while nobody waits
}

// LimiterStats counts what a limiter did since it was made.
type LimiterStats struct {
	Taken      int64 // decisions that let the caller through
	Refused    int64
	Local      int64 // decisions that this node made without the source's tokens
	Statements int64 // exchanges with the source
	Asks       int64 // keys asked for in them
	Failures   int64 // exchanges that failed
	Keys       int   // held now
}

// Decision is what a limiter answers. With Limit it has all that the header
// fields X-RateLimit-*, RateLimit, RateLimit-Policy and Retry-After say.
type Decision struct {
	OK bool
	// Limit is what applied: RateLimit-Policy's q is its Burst, and w its Window.
	Limit Limit
	// Remaining is how many tokens are left, as far as this node knows.
	Remaining int
	// Reset is the time until all of the burst is there again.
	Reset time.Duration
	// RetryAfter is, of a refusal, the time until the cost may be there.
	RetryAfter time.Duration
	// TooLarge refuses a cost above the burst, which can never be met.
	TooLarge bool
	// Local says that the source was not to be had: Remaining and Reset are this
	// node's alone.
	Local bool
}

// NewLimiter returns a limiter under which every key is full.
func NewLimiter(cfg LimiterConfig) *Limiter {
	return &Limiter{
		cfg: cfg.withDefaults(), wake: make(chan struct{}, 1),
		keys: map[string]*list.Element{}, recent: list.New(),
	}
}

// Take takes cost tokens of a key, all or none; a cost below 1 counts as 1. It
// returns at once where tokens are leased or a refusal is known. Else it waits
// for the source, at most for the Timeout and not beyond ctx, and then decides
// by itself.
func (l *Limiter) Take(ctx context.Context, key string, limit Limit, cost int) Decision {
	c := call{key: key, limit: limit, cost: max(cost, 1)}
	d, answered := l.take(&c, time.Now(), false)
	if answered == nil {
		return d
	}
	timeout := time.NewTimer(l.cfg.Timeout)
	defer timeout.Stop()
	late := false
	for answered != nil {
		select {
		case <-answered:
		case <-timeout.C:
			late = true
		case <-ctx.Done():
			late = true
		}
		d, answered = l.take(&c, time.Now(), late)
	}
	return d
}

// call is one Take.
type call struct {
	key   string
	limit Limit
	cost  int
	at    *leased // where it waits
}

// take decides, or returns what is closed when it is worth asking again. One who
// is late does not wait again.
func (l *Limiter) take(c *call, now time.Time, late bool) (Decision, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entry(c.key, c.limit)
	if c.cost > c.limit.burst() {
		return l.count(Decision{Limit: c.limit, Remaining: e.lease.Remaining(now), Reset: e.lease.Reset(now), TooLarge: true}), nil
	}
	if c.at == nil {
		e.lease.Demand(c.cost, now)
	}
	standing, until := e.lease.Check(c.cost, now)
	if standing == Short && !late && !l.alone(now) {
		c.moveTo(e)
		l.ask(e, c.cost)
		return Decision{}, e.wait()
	}
	c.moveTo(nil)
	if standing == Short {
		return l.decideAlone(e, c.cost, now), nil
	}
	d := Decision{Limit: c.limit, OK: standing == Ready}
	if d.OK {
		e.lease.Spend(c.cost)
	} else {
		d.RetryAfter = until.Sub(now)
	}
	d.Remaining, d.Reset = e.lease.Remaining(now), e.lease.Reset(now)
	return l.count(d), nil
}

// moveTo has the call wait at another entry, or nowhere.
func (c *call) moveTo(e *leased) {
	if c.at == e {
		return
	}
	if c.at != nil {
		c.at.waiting -= c.cost
	}
	if e != nil {
		e.waiting += c.cost
	}
	c.at = e
}

// decideAlone decides by this node's part of the limit.
func (l *Limiter) decideAlone(e *leased, cost int, now time.Time) Decision {
	part := e.limit.shared(l.nodes(), cost)
	g := e.local.Take(part, cost, cost, now)
	d := Decision{Limit: e.limit, OK: g.Tokens > 0, Remaining: part.available(g.Debt), Reset: g.Debt, Local: true}
	if !d.OK {
		d.RetryAfter = part.wait(g.Debt, cost)
	}
	return l.count(d)
}

func (l *Limiter) count(d Decision) Decision {
	if d.OK {
		l.stats.Taken++
	} else {
		l.stats.Refused++
	}
	if d.Local {
		l.stats.Local++
	}
	return d
}

// alone reports whether the source is not to be asked now.
func (l *Limiter) alone(now time.Time) bool { return !l.running || now.Before(l.rested) }

func (l *Limiter) nodes() int {
	if l.cfg.Nodes == nil {
		return 1
	}
	return l.cfg.Nodes()
}

// Stats returns what was done so far, for metrics.
func (l *Limiter) Stats() LimiterStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stats
	s.Keys = len(l.keys)
	return s
}

// entry returns the key's entry and makes it where there is none. Under another
// limit than before it starts anew.
func (l *Limiter) entry(key string, limit Limit) *leased {
	if at := l.keys[key]; at != nil {
		l.recent.MoveToFront(at)
		e := at.Value.(*leased)
		if e.limit != limit {
			e.limit, e.lease = limit, NewLease(limit, l.cfg.Lease)
		}
		return e
	}
	for len(l.keys) >= l.cfg.MaxKeys {
		oldest := l.recent.Remove(l.recent.Back()).(*leased)
		oldest.forgotten = true
		delete(l.keys, oldest.key)
	}
	e := &leased{key: key, limit: limit, lease: NewLease(limit, l.cfg.Lease)}
	l.keys[key] = l.recent.PushFront(e)
	return e
}
