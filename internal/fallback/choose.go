package fallback

import (
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Candidate is an account that may serve a delivery, as it fares now.
type Candidate struct {
	// Bar is what keeps the call from it; its Reason is empty where nothing does.
	Bar Bar
	// Own: the bar is the recipient's own, such as a webhook's host that wants
	// quiet. Another account would meet the same.
	Own bool
	// Refused: it turned this very delivery away.
	Refused bool
	// Probe: the call would be its breaker's probe, which has been due since
	// ProbeDue.
	Probe    bool
	ProbeDue time.Time
	// Share is the part of the deliveries that may go to it, less than 1 while they
	// come back to it, and Draw where in it this delivery stands: a number in
	// [0, 1), the same each time that this delivery and account are asked about.
	Share, Draw float64
}

// Clear reports whether nothing at all speaks against the account.
func (c *Candidate) Clear() bool {
	return c.Bar.Reason == "" && !c.Refused && !c.Probe && c.Draw < c.Share
}

// Bar is why an account may not be called now.
type Bar struct {
	Reason notify.WaitReason
	Scope  string
	Until  time.Time // when to ask again; zero where nobody knows
}

// Asked is what a choice is made for.
type Asked struct {
	Priority notify.Priority
	// Stay is the candidate that had the call before, where the next one may repeat
	// what it took; -1 for none.
	Stay int
	Ends time.Time // when the step's time is over
}

// Reasons, beside those of bars, for which an account is passed over.
const (
	PassedRefused   = "refused"   // it turned this delivery away
	PassedReturning = "returning" // its calls come back little by little
	PassedProbe     = "probe"     // a critical message is no probe
)

// probeWaits is for how long a breaker's probe waits for a message that is less
// than critical.
const probeWaits = time.Minute

// Patience is how long a delivery waits for the account that it would go to first
// rather than go to the next one: for a gate, a pace or a budget, whose end is
// known. An account whose breaker is open, or that an operator has stopped, is not
// waited for while there is another.
func Patience(p notify.Priority) time.Duration {
	switch p {
	case notify.Critical:
		return time.Second
	case notify.High:
		return 5 * time.Second
	case notify.Normal:
		return 30 * time.Second
	case notify.Low:
	}
	return 5 * time.Minute
}

// Choose returns which of the candidates, which are in the order of preference,
// the next call goes to, or -1 where none of them may be called before the step
// would rather wait; see [Soonest] for how long. The chosen one may have a bar that
// the delivery waits for.
//
//   - A repeat of a call that may have been taken stays with the account that had
//     it, unless that is barred for longer than patience allows.
//   - Else the first goes that nothing speaks against, or that is barred for less
//     than patience allows.
//   - An account that calls come back to takes its share of the deliveries, and a
//     critical one is no probe before nobody else was for a while; but either is
//     better than no account at all.
//   - An account that turned the delivery away is asked again only where there is
//     no other to wait for.
func Choose(candidates []Candidate, a Asked, now time.Time) int {
	if a.Stay >= 0 && a.Stay < len(candidates) {
		if c := &candidates[a.Stay]; !c.Refused && (c.Bar.Reason == "" || a.waits(c, now)) {
			return a.Stay
		}
	}
	soft, others := -1, false
	for i := range candidates {
		c := &candidates[i]
		switch {
		case c.Refused:
			continue
		case c.Bar.Reason != "":
			if soft < 0 && a.waits(c, now) {
				return i
			}
		case a.passes(c, now) != "":
			if soft < 0 {
				soft = i
			}
		default:
			return i
		}
		others = true
	}
	if soft >= 0 || others {
		return soft
	}
	for i := range candidates {
		if candidates[i].Bar.Reason == "" {
			return i
		}
	}
	return -1
}

// waits reports whether the delivery waits for what bars a candidate.
func (a Asked) waits(c *Candidate, now time.Time) bool {
	if c.Own {
		return true
	}
	switch c.Bar.Reason {
	case notify.WaitThrottled, notify.WaitBudget:
	case notify.WaitCapacity:
		if c.Bar.Scope != "" { // a breaker that has just closed, and no pace
			return false
		}
	default:
		return false
	}
	last := now.Add(Patience(a.Priority))
	if a.Ends.Before(last) {
		last = a.Ends
	}
	return !c.Bar.Until.IsZero() && !c.Bar.Until.After(last)
}

// passes says why a candidate that may be called is passed over if another one may
// be; nothing where it is not.
func (a Asked) passes(c *Candidate, now time.Time) string {
	switch {
	case c.Draw >= c.Share:
		return PassedReturning
	case c.Probe && a.Priority == notify.Critical && now.Sub(c.ProbeDue) < probeWaits:
		return PassedProbe
	}
	return ""
}

// Why says why a candidate was passed over.
func (a Asked) Why(c *Candidate, now time.Time) string {
	switch {
	case c.Bar.Reason != "":
		return string(c.Bar.Reason)
	case c.Refused:
		return PassedRefused
	}
	return a.passes(c, now)
}

// Soonest returns the bar that ends first, of those candidates that have one; its
// Until is zero where nobody knows of any. ok is false where none has.
func Soonest(candidates []Candidate) (b Bar, ok bool) {
	for i := range candidates {
		c := candidates[i].Bar
		if c.Reason == "" {
			continue
		}
		if !ok || !c.Until.IsZero() && (b.Until.IsZero() || c.Until.Before(b.Until)) {
			b, ok = c, true
		}
	}
	return b, ok
}

// PassOn gives a delivery for which no call was made to another account at once.
func PassOn(s State, p Policy, now time.Time) Decision {
	d := Decision{State: s}
	if known, ok := d.known(p, now); ok {
		return known
	}
	return d.pass(string(notify.NotAttempted), notify.WaitBackoff, now)
}
