package resilience

import "time"

// BreakerRecord is a breaker as it is kept where several processes share it. A
// record that is not there is the zero one: closed, generation 0. Its instants
// are the store's clock, never a process's.
type BreakerRecord struct {
	State      State // empty is Closed
	Generation uint64
	Reason     Reason
	ChangedAt  time.Time
	OpenCount  int
	Trips      int
	Code       string
	OpenUntil  time.Time
	Probes     uint64
	Probing    bool
	LeaseUntil time.Time
	Successes  int
	Neutral    int
	Forced     *Override
}

// Record returns what has to be kept of the breaker. How many failures it has
// seen in a row while closed is not part of it: that is evidence, which each
// process gathers for itself.
func (b *Breaker) Record() BreakerRecord {
	return BreakerRecord{
		State: b.current(), Generation: b.generation, Reason: b.reason, ChangedAt: b.changedAt, OpenCount: b.openCount,
		Trips: b.trips, Code: b.code, OpenUntil: b.openUntil, Probes: b.probes, Probing: b.probing, LeaseUntil: b.leaseUntil, Successes: b.successes,
		Neutral: b.neutral, Forced: b.forced,
	}
}

// RestoreBreaker returns the breaker that a record was made of.
func RestoreBreaker(cfg BreakerConfig, r BreakerRecord) *Breaker {
	return &Breaker{
		cfg: cfg, state: r.State, generation: r.Generation, reason: r.Reason, changedAt: r.ChangedAt, openCount: r.OpenCount,
		trips: r.Trips, code: r.Code, openUntil: r.OpenUntil, probes: r.Probes, probing: r.Probing, leaseUntil: r.LeaseUntil, successes: r.Successes,
		neutral: r.Neutral, forced: r.Forced,
	}
}

// Trip opens a closed breaker on evidence that was gathered elsewhere. The
// evidence counts only if it was gathered under the breaker's generation: of
// several processes that find the same failures, the first one opens it and the
// others change nothing.
func (b *Breaker) Trip(seen uint64, why Reason, e Evidence, now time.Time, rand float64) Transition {
	if b.current() != Closed || b.forced != nil && !b.forced.over(now) || b.generation != seen {
		return Transition{}
	}
	return b.open(why, e, now, rand)
}
