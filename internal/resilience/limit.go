package resilience

import (
	"fmt"
	"math"
	"time"
)

// Bounds of a [Limit]; what is outside them is taken as the nearest bound.
const (
	MinPerSecond = 1.0 / 3600
	MaxPerSecond = 1e6
	MaxBurst     = 1_000_000
)

// Limit is a rate with a burst, as the generic cell rate algorithm (GCRA, ITU-T
// I.371) enforces it: at most Burst + PerSecond·W tokens in any window of W
// seconds.
type Limit struct {
	PerSecond float64 // tokens that come back each second, from 1/3600 to 1,000,000
	Burst     int     // tokens that may be taken at once after a rest, from 1 to 1,000,000
}

// Check reports what is wrong with a limit that somebody configured.
func (l Limit) Check() error {
	if inside := l.PerSecond >= MinPerSecond && l.PerSecond <= MaxPerSecond; !inside { // nor is what is no number
		return fmt.Errorf("the rate must be from 1/3600 to %.0f a second", MaxPerSecond)
	}
	if l.Burst < 1 || l.Burst > MaxBurst {
		return fmt.Errorf("the burst must be from 1 to %d", MaxBurst)
	}
	return nil
}

// Interval is the time between two tokens, the emission interval of GCRA.
func (l Limit) Interval() time.Duration {
	rate := l.PerSecond
	if !(rate >= MinPerSecond) {
		rate = MinPerSecond
	}
	return time.Duration(math.Ceil(float64(time.Second) / min(rate, MaxPerSecond)))
}

// Window is how long an empty key takes until it is full: Burst intervals.
func (l Limit) Window() time.Duration { return time.Duration(l.burst()) * l.Interval() }

func (l Limit) burst() int { return min(max(l.Burst, 1), MaxBurst) }

// available returns how many tokens a key in debt has.
func (l Limit) available(debt time.Duration) int {
	return max(0, int((l.Window()-debt)/l.Interval()))
}

// wait returns how long a key in debt takes until it has n tokens, 0 where it
// has them.
func (l Limit) wait(debt time.Duration, n int) time.Duration {
	return max(0, debt-time.Duration(l.burst()-n)*l.Interval())
}

// shared returns one node's part of a limit that several enforce apart. A cost
// that the whole burst allows must fit the part's too, or it would never be met.
func (l Limit) shared(nodes, cost int) Limit {
	n := max(nodes, 1)
	return Limit{l.PerSecond / float64(n), min(max(l.burst()/n, cost), l.burst())}
}

// Ask is a request for tokens of one key.
type Ask struct {
	Key   string
	Limit Limit
	Want  int // how many, at least 1
	Least int // with fewer than these none is taken, at least 1
}

// Grant is the answer to an [Ask].
type Grant struct {
	Tokens int // from Least to Want, or 0
	// Debt is how far from full the key is after the grant: 0 when it is full,
	// the limit's Window when it is empty.
	Debt time.Duration
}

// GCRA is the state of one key that one process enforces. The zero value is
// full. It is not safe for concurrent use.
type GCRA struct {
	tat time.Time // the theoretical arrival time: when the key is full again
}

// Take takes up to want tokens, or none if there are fewer than least.
func (g *GCRA) Take(l Limit, want, least int, now time.Time) Grant {
	debt := g.debt(l, now)
	n := min(want, l.available(debt))
	if n < max(least, 1) {
		return Grant{Debt: debt}
	}
	debt += time.Duration(n) * l.Interval()
	g.tat = now.Add(debt)
	return Grant{n, debt}
}

// debt is never more than a whole burst, so that neither a smaller limit nor a
// clock that was set back refuses for longer than the limit itself would.
func (g *GCRA) debt(l Limit, now time.Time) time.Duration {
	return min(max(g.tat.Sub(now), 0), l.Window())
}
