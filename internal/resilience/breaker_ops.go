package resilience

import "time"

// Reason says why a breaker changed.
type Reason string

// The reasons.
const (
	ReasonFailures        Reason = "failures"          // failures in a row
	ReasonFailureRate     Reason = "failure_rate"      // too many of the last minute's calls failed
	ReasonSlow            Reason = "slow"              // too many of the last minute's calls took too long
	ReasonRejected        Reason = "account_rejected"  // the provider refuses the account
	ReasonProbe           Reason = "probe"             // its open time is over
	ReasonProbeFailed     Reason = "probe_failed"      // a probe failed
	ReasonProbesSucceeded Reason = "probes_succeeded"  // enough probes succeeded
	ReasonForced          Reason = "forced"            // an operator forced it
	ReasonForceOver       Reason = "forced_until_over" // what an operator forced is over
	ReasonReset           Reason = "reset"             // an operator reset it
)

// Override is an operator's decision, and who took it, why and until when.
type Override struct {
	Who   string
	Why   string
	Until time.Time // the zero time: until it is taken back
}

func (o Override) over(now time.Time) bool {
	return !o.Until.IsZero() && !now.Before(o.Until)
}

// Transition is one change of a breaker. The zero value is no change.
type Transition struct {
	From, To   State // equal where an operator only changed how it is forced
	Reason     Reason
	Generation uint64 // the one that begins with it
	At         time.Time
	Until      time.Time // the end of the open or forced time; zero where there is none
	Code       string    // the provider's, where one answer opened it
	By         *Override // the operator's decision, for [ReasonForced] and [ReasonReset]
}

// Changed reports whether there was a change.
func (t Transition) Changed() bool { return t.To != "" }

// ForceOpen lets nothing pass. Afterwards the breaker is probed.
func (b *Breaker) ForceOpen(by Override, now time.Time) Transition {
	b.openUntil, b.code = by.Until, ""
	return b.force(Open, by, now)
}

// ForceClosed lets everything pass. Afterwards the breaker starts afresh.
func (b *Breaker) ForceClosed(by Override, now time.Time) Transition {
	b.openCount, b.trips = 0, 0
	return b.force(Closed, by, now)
}

// Reset closes the breaker and makes it forget everything but its generation.
func (b *Breaker) Reset(by Override, now time.Time) Transition {
	b.openCount, b.trips = 0, 0
	t := b.move(Closed, ReasonReset, now)
	t.By = &by
	return t
}

func (b *Breaker) force(to State, by Override, now time.Time) Transition {
	t := b.move(to, ReasonForced, now)
	b.forced = &by
	t.By, t.Until = &by, by.Until
	return t
}

// EndForced closes a breaker that was forced open until an instant that is over,
// without a probe: for a scope that has no breaker but by an operator's hand.
func (b *Breaker) EndForced(now time.Time) Transition {
	if b.current() != Open || b.openUntil.IsZero() || now.Before(b.openUntil) {
		return Transition{}
	}
	return b.move(Closed, ReasonForceOver, now)
}

// BreakerStatus is what a breaker shows of itself.
type BreakerStatus struct {
	State      State
	Generation uint64
	Reason     Reason    // of the last change; empty where there was none
	ChangedAt  time.Time // of the last change
	Failures   int       // in a row, while closed
	OpenCount  int       // times opened since it was last healthy
	Trips      int       // those of them from closed, a probe's failure not counted
	Code       string    // the provider's, of the answer that opened it; empty where it is closed
	// OpenUntil is the end of its open time, once past the instant since which a
	// probe is due; the zero time where it is not open, or forced open for good.
	OpenUntil time.Time
	// ProbeUntil is the end of the lease of the probe now out, if there is one.
	ProbeUntil time.Time
	Forced     *Override // the operator's decision that holds now, if there is one
}

// Status shows the breaker at an instant.
func (b *Breaker) Status(now time.Time) BreakerStatus {
	s := BreakerStatus{
		State: b.current(), Generation: b.generation, Reason: b.reason, ChangedAt: b.changedAt,
		Failures: b.failures, OpenCount: b.openCount, Trips: b.trips, Code: b.code,
	}
	if s.State == Open {
		s.OpenUntil = b.openUntil
	}
	if b.probing && now.Before(b.leaseUntil) {
		s.ProbeUntil = b.leaseUntil
	}
	if b.forced != nil && !b.forced.over(now) {
		by := *b.forced
		s.Forced = &by
	}
	return s
}

// Idle reports whether the breaker does not differ from a new one any more but
// for its generation, so that it may be forgotten once no permit of it can be
// out.
func (b *Breaker) Idle(now time.Time) bool {
	return b.current() == Closed && b.failures == 0 && (b.forced == nil || b.forced.over(now)) &&
		(b.generation == 0 || b.healthy(now))
}
