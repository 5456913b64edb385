package resilience

import (
	"time"
)

// Defaults of [Backoff].
const (
	DefaultBackoffBase  = time.Second
	DefaultBackoffCap   = 30 * time.Second
	DefaultBackoffFloor = 250 * time.Millisecond
)

// Backoff is exponential backoff with full jitter: the delay is drawn evenly
// between a floor and a ceiling that doubles with each retry. Of the known kinds
// of jitter this one spreads a herd that failed together the most while the
// longest delay stays bounded. Its zero value has the defaults.
type Backoff struct {
	Base  time.Duration // ceiling of the first retry; default 1 s
	Cap   time.Duration // the highest ceiling; default 30 s
	Floor time.Duration // the shortest delay; default 250 ms; it wins over Cap
}

// Delay returns how long to wait before a retry, the first one being 1; lower
// numbers count as 1. rand is a random number in [0, 1).
func (b Backoff) Delay(retry int, rand float64) time.Duration {
	base, limit, floor := orDefault(b.Base, DefaultBackoffBase), orDefault(b.Cap, DefaultBackoffCap), orDefault(b.Floor, DefaultBackoffFloor)
	ceiling := double(base, max(retry, 1)-1, limit)
	if ceiling <= floor {
		return floor
	}
	return floor + time.Duration(unit(rand)*float64(ceiling-floor))
}

// double returns min(limit, d·2^times) without overflow.
func double(d time.Duration, times int, limit time.Duration) time.Duration {
	for range times {
		if d > limit/2 {
			return limit
		}
		d *= 2
	}
	return min(d, limit)
}

// unit forces a random number into [0, 1).
func unit(r float64) float64 {
	switch {
	case r >= 1:
		return 0x1.fffffffffffffp-1
	case r > 0:
		return r
	default: // negative, or not a number
		return 0
	}
}

// orDefault returns v, or def where v is not positive.
func orDefault[T int | time.Duration](v, def T) T {
	if v > 0 {
		return v
	}
	return def
}
