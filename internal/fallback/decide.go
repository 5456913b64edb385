package fallback

import (
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// State is the history of a delivery before the decision.
type State struct {
	Status                                notify.Status
	Attempts, Throttles, Crashes, Repeats int
	Ends, Expires                         time.Time
	Stop                                  string // canceled or acknowledged: no further call
}

// Outcome is what an attempt told us, as far as the decision needs it.
type Outcome struct {
	Kind       notify.Outcome
	Status     notify.Status // what acceptance proves; sent by default
	RetryAfter time.Duration
	Scope      string // what a wait for it is held by
	Crashed    bool   // Unknown because the worker died
	Reason     string // of Suppressed, why the address is barred; empty where the provider did not say
}

// Decision is what happens next. Exactly one of Final, Wait.Reason and Requeue
// holds.
type Decision struct {
	State   // the history after it
	Final   bool
	Because string // why it ended, waits or is sent again
	Wait    Wait
	// Requeue: make the next call now.
	Requeue bool
	// Pass, with a wait that is over at once: the next call goes to another account.
	Pass bool
	// Met: the step met its success criterion; in mode first nothing more is sent.
	Met bool
	// MoveOn: the delivery ended without meeting it; the chain goes on once every
	// target of the step has.
	MoveOn bool
}

// Wait is why and until when a delivery does not move.
type Wait struct {
	Reason notify.WaitReason
	Scope  string
	Due    time.Time
}

// Decide says what an attempt's outcome leads to. It follows the outcome to
// action table of the design: a permanent failure is never retried, throttling
// uses no attempt, an unknown outcome is not repeated unless the policy says so,
// and a wait that outlasts the step's time moves on at once.
func Decide(s State, p Policy, o Outcome, now time.Time) Decision {
	d := Decision{State: s}
	d.Attempts += o.spends(s.Status)
	if o.Kind == notify.Accepted {
		return d.accepted(p, o, now)
	}
	if known, ok := d.known(p, now); ok {
		return known
	}
	because := string(o.Kind)
	switch o.Kind {
	case notify.Unknown:
		return d.unknown(p, o, now)
	case notify.Throttled:
		d.Throttles++
		return d.throttled(p, o, now)
	case notify.ProviderUnavailable:
		delay := max(p.Backoff(d.Attempts-1), o.RetryAfter)
		return d.retry(p, because, Wait{notify.WaitBackoff, o.Scope, now.Add(delay)})
	case notify.RecipientUnavailable:
		delay := max(p.SlowBackoff(d.Attempts-1), o.RetryAfter)
		return d.retry(p, because, Wait{notify.WaitBackoff, o.Scope, now.Add(delay)})
	case notify.RecipientRejected, notify.MessageRejected:
		return d.end(notify.Failed, because)
	case notify.AccountRejected:
		if p.Elsewhere {
			return d.pass(because, notify.WaitAccountRejected, now)
		}
		if p.Last {
			return d.wait(because, Wait{notify.WaitAccountRejected, o.Scope, now.Add(RepairEvery)})
		}
		return d.end(notify.Failed, because)
	case notify.Suppressed:
		if o.Reason != "" {
			because += ": " + o.Reason
		}
		return d.end(notify.Blocked, because)
	case notify.Expired:
		return d.lapse(because, now)
	case notify.NotAttempted:
		return d.wait(because, Wait{notify.WaitBackoff, o.Scope, now})
	case notify.Accepted: // above
	}
	return d.end(notify.Failed, because)
}

// spends returns how many attempts the outcome uses up, if it comes while the
// delivery has the given status. Where no call was under way, it is that of a call
// counted before as unknown or by a receipt, or a suppression that was found on our
// own list.
func (o Outcome) spends(s notify.Status) int {
	if s == notify.Uncertain {
		return 0
	}
	switch o.Kind {
	case notify.Unknown, notify.ProviderUnavailable, notify.RecipientUnavailable, notify.RecipientRejected, notify.MessageRejected:
		return 1
	case notify.Accepted, notify.Suppressed:
		if s.Rank() == notify.Waiting.Rank() || o.Kind == notify.Accepted && taken(s) {
			return 0
		}
		return 1
	case notify.Throttled, notify.AccountRejected, notify.NotAttempted, notify.Expired:
	}
	return 0
}

// Refuse says what our own refusal to call leads to. It uses up no attempt. until
// is when the refusal may end; zero when nobody knows, as when an operator has
// stopped an account.
func Refuse(s State, p Policy, reason notify.WaitReason, scope string, until, now time.Time) Decision {
	d := Decision{State: s}
	if known, ok := d.known(p, now); ok {
		return known
	}
	switch {
	case !now.Before(s.Ends):
		return Overdue(s, p, string(reason), now)
	case until.IsZero():
		until = now.Add(AskAgain)
	case until.After(s.Ends) && !p.Last:
		return d.end(notify.Failed, string(reason))
	}
	return d.wait(string(reason), Wait{reason, scope, until})
}

// Overdue ends a delivery whose time is over: expired when the notification is,
// else failed with the chain moving on. waitedFor, if not empty, is what held it.
func Overdue(s State, p Policy, waitedFor string, now time.Time) Decision {
	d := Decision{State: s}
	because, expired := BecauseOverdue, !now.Before(s.Expires)
	if expired {
		because = BecauseExpired
	}
	if waitedFor != "" && waitedFor != because {
		because += ": " + waitedFor
	}
	switch {
	case taken(s.Status):
		return d.unheard(p, BecauseOverdue)
	case s.Stop != "":
		return d.stopped()
	case expired:
		return d.lapse(because, now)
	}
	return d.end(notify.Failed, because)
}

// Due says what happens when a wait is over. Most waits end in a call; those for
// knowledge end in a decision.
func Due(s State, p Policy, reason notify.WaitReason, now time.Time) Decision {
	d := Decision{State: s}
	if reason == notify.WaitReceipt {
		return d.unheard(p, BecauseNoReceipt)
	}
	if known, ok := d.known(p, now); ok {
		return known
	}
	switch {
	case reason == notify.WaitReconcile:
		return d.unreconciled(p, now)
	case !now.Before(s.Ends):
		return Overdue(s, p, string(reason), now)
	}
	return d.requeue(string(reason))
}

// Impossible ends a delivery that this service cannot send, for a reason of our
// own: [BecauseNoAccount] or [BecauseInvalid].
func Impossible(s State, because string) Decision {
	d := Decision{State: s}
	if s.Stop != "" {
		return d.stopped()
	}
	return d.end(notify.Failed, because)
}
