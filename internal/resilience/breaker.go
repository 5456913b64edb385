package resilience

import (
	"time"
)

// State is a breaker's state.
type State string

// The states.
const (
	Closed   State = "closed"    // calls pass
	Open     State = "open"      // no call passes
	HalfOpen State = "half_open" // one call at a time passes, as a probe
)

// Defaults of [BreakerConfig].
const (
	DefaultFailures    = 5
	DefaultOpenFor     = 30 * time.Second
	DefaultOpenCap     = 5 * time.Minute
	DefaultSuccesses   = 2
	DefaultProbeLease  = time.Minute
	DefaultNeutrals    = 3
	DefaultRejectedFor = 5 * time.Minute
	DefaultHealthy     = time.Hour
	DefaultMinCalls    = 20
)

// openJitter is the part of the open time by which it is shortened or lengthened
// at random, so that scopes that failed together are not probed together.
const openJitter = 0.2

// BreakerConfig are the numbers of a [Breaker]; those that are not positive have
// their defaults.
type BreakerConfig struct {
	Failures    int           // failures in a row that open it; default 5
	OpenFor     time.Duration // how long it stays open the first time; default 30 s
	OpenCap     time.Duration // the longest, but for Retry-After; default 5 min
	Successes   int           // successful probes in a row that close it; default 2
	ProbeLease  time.Duration // after which a probe without a verdict is given up; default 1 min. Longer than any call.
	Neutrals    int           // neutral answers to probes that count as one success; default 3
	RejectedFor time.Duration // how long it stays open at least after [Rejected]; default 5 min
	Healthy     time.Duration // closed for so long, it forgets how often it was open; default 1 h

	// Rates of the last minute's calls that open it too, from MinCalls calls on;
	// default 20. A rate of 0 is none. They hold where breakers are shared.
	MinCalls    int
	FailureRate float64       // such as 0.5
	SlowRate    float64       // of calls that took SlowCall or longer
	SlowCall    time.Duration // 0 counts none as slow
}

// OpenTime returns how long a breaker stays open for the count-th time, counting
// from 1, since it was last healthy: OpenFor doubled each time up to OpenCap,
// ±20 % by rand, a random number in [0, 1), and never less than atLeast.
func (c BreakerConfig) OpenTime(count int, atLeast time.Duration, rand float64) time.Duration {
	base, limit := orDefault(c.OpenFor, DefaultOpenFor), orDefault(c.OpenCap, DefaultOpenCap)
	d := float64(double(base, max(count, 1)-1, limit))
	return max(time.Duration(d*(1-openJitter+2*openJitter*unit(rand))), atLeast)
}

// Verdict is what a call told about the health of its provider.
type Verdict uint8

// The verdicts.
const (
	// None: no call was made, or it was ended by us. It frees a probe.
	None Verdict = iota
	// Neutral: the provider gave an answer that speaks neither for nor against its
	// health, such as a bad recipient or a 429.
	Neutral
	// Success: the provider did what it was asked.
	Success
	// Failure: it failed, or gave no answer.
	Failure
	// Rejected: it refuses the account itself. The breaker opens at once, since
	// only a repair can help, and is probed slowly.
	Rejected
)

// Evidence is what a call reports to the breaker that let it pass.
type Evidence struct {
	Verdict Verdict
	// RetryAfter is what the provider asked for; the breaker does not probe sooner.
	RetryAfter time.Duration
	// Code is the provider's own code, for operators; at most 64 bytes.
	Code string
}

// Permit is a call's leave to start. It names the generation it was given under,
// and the probe if it is one. The zero Permit is that of a breaker that has
// never changed.
type Permit struct {
	generation uint64
	probe      uint64
}

// Probe reports whether the call is a probe.
func (p Permit) Probe() bool { return p.probe != 0 }

// Breaker is the state machine of one scope.
//
//   - Closed, it counts failures in a row. A success clears the count, a neutral
//     answer leaves it as it is. At Failures it opens.
//   - Open, it admits nothing until its time is over. The next call asking then
//     makes it half-open and is the first probe.
//   - Half-open, it admits one probe at a time. Successes in a row close it, a
//     failure opens it for longer. A probe that reports None, or nothing within
//     its lease, frees the place without a verdict. Each Neutrals neutral answers
//     count as one success, for a provider that talks sense is there.
//   - Every change of state starts a new generation. A verdict under a permit of
//     an older generation, or of a probe whose place another has taken, is void.
//   - An operator may force it open or closed, for good or until an instant. While
//     forced, verdicts are void. When a forced-open time is over the breaker is
//     probed as after any other; when a forced-closed time is over it starts
//     afresh.
//
// It makes no calls, has no goroutine and no clock. It is not safe for
// concurrent use.
type Breaker struct {
	cfg        BreakerConfig
	state      State // empty is Closed
	generation uint64
	reason     Reason
	changedAt  time.Time

	failures  int // in a row, while closed
	openCount int // times opened since it was last healthy
	trips     int // those of them from closed
	openUntil time.Time
	code      string // of the answer that opened it, until it closes

	probes     uint64 // given out so far; the last one's number
	probing    bool
	leaseUntil time.Time
	successes  int // in a row, while half-open
	neutral    int // since the last success, while half-open

	forced *Override
}

// NewBreaker returns a closed breaker.
func NewBreaker(cfg BreakerConfig) *Breaker { return &Breaker{cfg: cfg} }

// Refusal says until when a breaker admits nothing: its open time's end, or its
// probe's lease. The zero time means until an operator resets it.
type Refusal struct {
	Until  time.Time
	Forced bool
}

// Refuses reports whether Admit would refuse, and changes nothing.
func (b *Breaker) Refuses(now time.Time) (Refusal, bool) {
	switch b.current() {
	case Open:
		r := Refusal{Until: b.openUntil, Forced: b.forced != nil}
		return r, r.Until.IsZero() || now.Before(r.Until)
	case HalfOpen:
		return Refusal{Until: b.leaseUntil}, b.probing && now.Before(b.leaseUntil)
	case Closed:
	}
	return Refusal{}, false
}

// Admit asks for leave to make one call. With ok, the call must be reported with
// the permit. A change of state, if any, is returned.
func (b *Breaker) Admit(now time.Time) (p Permit, ok bool, change Transition) {
	if _, refused := b.Refuses(now); refused {
		return Permit{}, false, Transition{}
	}
	switch {
	case b.current() == Open:
		change = b.move(HalfOpen, ReasonProbe, now)
	case b.forced != nil && b.forced.over(now):
		change = b.move(Closed, ReasonForceOver, now)
	}
	p.generation = b.generation
	if b.current() == HalfOpen {
		b.probes++
		b.probing, b.leaseUntil = true, now.Add(orDefault(b.cfg.ProbeLease, DefaultProbeLease))
		p.probe = b.probes
	}
	return p, true, change
}

// Report gives the verdict of a call. rand is a random number in [0, 1), used
// when the breaker opens. A change of state, if any, is returned.
func (b *Breaker) Report(p Permit, e Evidence, now time.Time, rand float64) Transition {
	if p.generation != b.generation || b.forced != nil {
		return Transition{}
	}
	switch b.current() {
	case Closed:
		return b.reportClosed(e, now, rand)
	case HalfOpen:
		if !b.probing || p.probe != b.probes {
			return Transition{}
		}
		b.probing = false
		return b.reportProbe(e, now, rand)
	case Open: // no permit is ever given under an open generation
	}
	return Transition{}
}

func (b *Breaker) reportClosed(e Evidence, now time.Time, rand float64) Transition {
	switch e.Verdict {
	case Success:
		b.failures = 0
	case Failure:
		b.failures++
		if b.failures >= orDefault(b.cfg.Failures, DefaultFailures) {
			return b.open(ReasonFailures, e, now, rand)
		}
	case Rejected:
		return b.open(ReasonRejected, e, now, rand)
	case None, Neutral:
	}
	return Transition{}
}

func (b *Breaker) reportProbe(e Evidence, now time.Time, rand float64) Transition {
	switch e.Verdict {
	case Neutral:
		b.neutral++
		if b.neutral < orDefault(b.cfg.Neutrals, DefaultNeutrals) {
			return Transition{}
		}
	case Success:
	case Failure:
		return b.open(ReasonProbeFailed, e, now, rand)
	case Rejected:
		return b.open(ReasonRejected, e, now, rand)
	case None:
		return Transition{}
	}
	b.neutral = 0
	b.successes++
	if b.successes < orDefault(b.cfg.Successes, DefaultSuccesses) {
		return Transition{}
	}
	return b.move(Closed, ReasonProbesSucceeded, now)
}

func (b *Breaker) open(why Reason, e Evidence, now time.Time, rand float64) Transition {
	if b.current() == Closed && b.openCount > 0 && b.healthy(now) {
		b.openCount, b.trips = 0, 0
	}
	b.openCount++
	if b.current() == Closed {
		b.trips++
	}
	b.code = e.Code
	atLeast := e.RetryAfter
	if e.Verdict == Rejected {
		atLeast = max(atLeast, orDefault(b.cfg.RejectedFor, DefaultRejectedFor))
	}
	b.openUntil = now.Add(b.cfg.OpenTime(b.openCount, atLeast, rand))
	return b.move(Open, why, now)
}

// healthy reports whether it has been closed long enough to forget its past.
func (b *Breaker) healthy(now time.Time) bool {
	return now.Sub(b.changedAt) >= orDefault(b.cfg.Healthy, DefaultHealthy)
}

// move changes the state and starts a generation.
func (b *Breaker) move(to State, why Reason, now time.Time) Transition {
	t := Transition{From: b.current(), To: to, Reason: why, At: now}
	b.generation++
	b.state, b.reason, b.changedAt = to, why, now
	b.failures, b.successes, b.neutral, b.probing, b.forced = 0, 0, 0, false, nil
	switch to {
	case Open:
		t.Until, t.Code = b.openUntil, b.code
	case Closed:
		b.code = ""
	case HalfOpen:
	}
	t.Generation = b.generation
	return t
}

func (b *Breaker) current() State {
	if b.state == "" {
		return Closed
	}
	return b.state
}
