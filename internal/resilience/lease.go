package resilience

import "time"

// Defaults of [LeaseConfig].
const (
	DefaultLeaseTTL   = 100 * time.Millisecond
	DefaultLeaseMax   = 64
	DefaultLeasePause = 25 * time.Millisecond
	minLeasePause     = 5 * time.Millisecond
)

// LeaseConfig says how a node leases tokens. Zero fields take their defaults.
type LeaseConfig struct {
	// TTL is how long a leased token may be spent, 100 ms by default. It is what
	// leasing costs in exactness: a limit of B and r a second lets at most
	// B + r·(W+TTL) through in any window of W seconds. Who must promise B + r·W
	// configures a burst that is smaller by r·TTL.
	TTL time.Duration
	// Max is how many tokens are leased at most beyond those that callers wait
	// for, 64 by default.
	Max int
	// Pause is for how long a refusal is believed at least, 25 ms by default, or
	// half the limit's window where that is less, but never under 5 ms. It bounds
	// what a key over its limit costs the source, whatever the load.
	Pause time.Duration
}

func (c LeaseConfig) withDefaults() LeaseConfig {
	return LeaseConfig{
		TTL:   orDefault(c.TTL, DefaultLeaseTTL),
		Max:   orDefault(c.Max, DefaultLeaseMax),
		Pause: orDefault(c.Pause, DefaultLeasePause),
	}
}

// Standing is what a node knows of a key before it asks.
type Standing int

// The standings.
const (
	Short  Standing = iota // the source has to be asked
	Ready                  // enough tokens are leased
	Denied                 // the source would refuse
)

// Lease is one node's part of a key whose tokens a source hands out: tokens that
// it may spend without asking, and what it knows of the rest. Tokens are never
// invented: those not spent in time are dropped. It is not safe for concurrent
// use.
type Lease struct {
	cfg     LeaseConfig
	limit   Limit
	tokens  int
	expires time.Time // of the tokens
	debt    time.Duration
	at      time.Time // when debt was told; zero: never
	// Until pausedTo, pausedFor tokens or more are not asked for.
	pausedFor int
	pausedTo  time.Time
	demand    demand
}

// NewLease returns a lease without tokens.
func NewLease(limit Limit, cfg LeaseConfig) Lease {
	return Lease{cfg: cfg.withDefaults(), limit: limit}
}

// Demand notes that tokens are wanted, whether they can be had or not: the next
// ask is as large as what was wanted during the last TTL.
func (l *Lease) Demand(cost int, now time.Time) { l.demand.add(cost, now, l.cfg.TTL) }

// Check says how a cost of 1 to Burst tokens stands now, and for one that is
// Denied when to try again.
func (l *Lease) Check(cost int, now time.Time) (s Standing, until time.Time) {
	if l.tokens > 0 && !now.Before(l.expires) {
		l.tokens = 0
	}
	short := cost - l.tokens
	if short <= 0 {
		return Ready, time.Time{}
	}
	// Other nodes can only add to the debt, so the source has at most what it had
	// and what came back since.
	if wait := l.limit.wait(l.debtAt(now), short); wait > 0 {
		until = now.Add(wait)
	}
	if short >= l.pausedFor && now.Before(l.pausedTo) && l.pausedTo.After(until) {
		until = l.pausedTo
	}
	if until.IsZero() {
		return Short, until
	}
	return Denied, until
}

// Spend spends tokens of a lease that is Ready.
func (l *Lease) Spend(cost int) { l.tokens = max(0, l.tokens-cost) }

// Missing is how many tokens a cost lacks.
func (l *Lease) Missing(cost int) int { return max(0, cost-l.tokens) }

// Want is how many tokens to ask for where need are waited for: as many as were
// wanted of late, but none in advance once less than a tenth of the burst is
// left, so that nodes share the end of it fairly and strand nothing.
func (l *Lease) Want(need int, now time.Time) int {
	guess := 0
	if 10*l.limit.available(l.debtAt(now)) >= l.limit.burst() {
		guess = min(l.demand.recent(now, l.cfg.TTL), l.cfg.Max)
	}
	return min(max(need, guess, 1), l.limit.burst())
}

// Settle takes in the answer to an ask that was sent at one instant and answered
// at another.
func (l *Lease) Settle(a Ask, g Grant, asked, now time.Time) {
	l.debt, l.at = min(g.Debt, l.limit.Window()), now
	if g.Tokens > 0 {
		l.add(g.Tokens, asked, now)
	}
	if g.Tokens >= a.Want {
		l.pausedTo = time.Time{}
		return
	}
	// The key is empty for everybody, also where some tokens were left.
	l.pausedFor = 1
	if g.Tokens == 0 {
		l.pausedFor = a.Least
	}
	pause := min(l.cfg.Pause, max(l.limit.Window()/2, minLeasePause))
	l.pausedTo = now.Add(max(pause, l.limit.wait(l.debt, l.pausedFor)))
}

// add counts the time to live from the ask, for the source took the tokens after
// it. A slow answer must still be of use to those who waited for it. Tokens of
// different age share the earlier end.
func (l *Lease) add(tokens int, asked, now time.Time) {
	expires := asked.Add(l.cfg.TTL)
	if soonest := now.Add(l.cfg.TTL / 4); expires.Before(soonest) {
		expires = soonest
	}
	if l.tokens == 0 || !now.Before(l.expires) {
		l.tokens, l.expires = 0, expires
	}
	l.tokens += tokens
}

// Remaining is how many tokens a caller of this node can still hope for.
func (l *Lease) Remaining(now time.Time) int {
	return min(l.limit.burst(), l.limit.available(l.debtAt(now))+l.tokens)
}

// Reset is how long the key takes until it is full, for a caller of this node: what
// is leased here is not spent yet.
func (l *Lease) Reset(now time.Time) time.Duration {
	return max(0, l.debtAt(now)-time.Duration(l.tokens)*l.limit.Interval())
}

// debtAt is the least that the key's debt can be; 0 where nothing is known.
func (l *Lease) debtAt(now time.Time) time.Duration {
	if l.at.IsZero() {
		return 0
	}
	return max(0, l.debt-now.Sub(l.at))
}

// demand counts what was wanted in a window that slides over two fixed ones.
type demand struct {
	start     time.Time
	last, now int
}

func (d *demand) add(n int, now time.Time, window time.Duration) {
	d.slide(now, window)
	d.now += n
}

func (d *demand) recent(now time.Time, window time.Duration) int {
	d.slide(now, window)
	rest := window - now.Sub(d.start)
	return d.now + int(float64(d.last)*float64(rest)/float64(window))
}

func (d *demand) slide(now time.Time, window time.Duration) {
	switch age := now.Sub(d.start); {
	case age < window:
	case age < 2*window:
		d.start, d.last, d.now = d.start.Add(window), d.now, 0
	default:
		d.start, d.last, d.now = now, 0, 0
	}
}
