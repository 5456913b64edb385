package resilience

import (
	"math"
	"sync"
	"time"
)

// Defaults of [BudgetConfig].
const (
	DefaultBudgetCapacity  = 100
	DefaultBudgetPerFirst  = 0.15
	DefaultBudgetThrottled = 0.3
	DefaultBudgetMinimum   = 10 * time.Second
)

// BudgetConfig configures a [Budget]. Zero fields take their defaults.
type BudgetConfig struct {
	Capacity  float64       // what a full budget holds, in retries; default 100
	PerFirst  float64       // what each first attempt adds, in retries; default 0.15
	Throttled float64       // what a retry after a throttled attempt costs; default 0.3, other retries cost 1
	Minimum   time.Duration // one retry in so much time is let through whatever the budget holds; default 10 s
}

// Budget bounds retries of one account by its first attempts, so that a provider
// in trouble meets little more than its usual load: each first attempt adds a
// fraction of a retry, each retry takes one when it starts, and one that succeeds
// gives it back. Every node that keeps to its own budget keeps the cluster to the
// same ratio. It starts full and is safe for concurrent use.
type Budget struct {
	mu    sync.Mutex
	cfg   budgetNumbers
	stats BudgetStats
	level milli
	last  time.Time // when a retry last started
}

// milli is a thousandth of a retry: fractions must add up over millions of calls.
type milli int64

func toMilli(v, def float64) milli {
	if !(v > 0) {
		v = def
	}
	return milli(math.Round(min(v, 1e9) * 1000))
}

const one milli = 1000

type budgetNumbers struct {
	capacity, perFirst, throttled milli
	minimum                       time.Duration
}

// BudgetStats is what a budget shows.
type BudgetStats struct {
	Level   float64 // retries in hand
	Firsts  int64   // first attempts so far
	Retries int64   // retries started so far; calls made per first attempt are 1 + Retries/Firsts
	Refused int64   // retries refused so far
}

// NewBudget returns a full budget.
func NewBudget(cfg BudgetConfig) *Budget {
	n := budgetNumbers{
		capacity:  toMilli(cfg.Capacity, DefaultBudgetCapacity),
		perFirst:  toMilli(cfg.PerFirst, DefaultBudgetPerFirst),
		throttled: toMilli(cfg.Throttled, DefaultBudgetThrottled),
		minimum:   orDefault(cfg.Minimum, DefaultBudgetMinimum),
	}
	return &Budget{cfg: n, level: n.capacity}
}

// RetryKind says what a retry follows, and with it what it costs.
type RetryKind int

// The kinds.
const (
	AfterFailure  RetryKind = iota // the provider failed, or nothing is known
	AfterThrottle                  // the provider asked for quiet, and got it
)

// RetryCharge is what one retry took from its budget. The zero value is nothing.
type RetryCharge struct{ taken milli }

// First notes that a first attempt starts.
func (b *Budget) First() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stats.Firsts++
	b.level = min(b.level+b.cfg.perFirst, b.cfg.capacity)
}

// Retry charges for a retry. It is called when the retry starts, not when it is
// planned: what is planned may never run. Where it is refused, until is when
// the minimum lets one through, at the latest; first attempts may do so sooner.
func (b *Budget) Retry(kind RetryKind, now time.Time) (c RetryCharge, ok bool, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	cost := one
	if kind == AfterThrottle {
		cost = b.cfg.throttled
	}
	if b.level < cost {
		if free := b.last.Add(b.cfg.minimum); now.Before(free) {
			b.stats.Refused++
			return RetryCharge{}, false, free
		}
		cost = b.level // what is left, so that a refund makes nothing up
	}
	b.level -= cost
	b.last = now
	b.stats.Retries++
	return RetryCharge{cost}, true, time.Time{}
}

// Refund gives back what a retry was charged that succeeded, or that made no
// call after all. It must be called at most once for each charge.
func (b *Budget) Refund(c RetryCharge) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.level = min(b.level+c.taken, b.cfg.capacity)
}

// Stats returns what the budget holds and has seen.
func (b *Budget) Stats() BudgetStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.stats
	s.Level = float64(b.level) / float64(one)
	return s
}
