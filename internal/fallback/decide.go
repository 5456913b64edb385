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
	// Met: the step met its success criterion; in mode first nothing more is sent.
	Met bool
	// MoveOn: the delivery ended, or will tell no more, without meeting it; the
	// chain goes on once every target of the step has.
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
	if o.Kind == notify.Accepted {
		return d.accepted(p, o, now)
	}
	if s.Stop != "" {
		return d.stopped()
	}
	because := string(o.Kind)
	switch o.Kind {
	case notify.Unknown:
		return d.unknown(p, o, now)
	case notify.Throttled:
		d.Throttles++
		return d.throttled(p, o, now)
	case notify.ProviderUnavailable:
		d.Attempts++
		delay := max(p.Backoff(d.Attempts-1), o.RetryAfter)
		return d.retry(p, because, Wait{notify.WaitBackoff, o.Scope, now.Add(delay)})
	case notify.RecipientUnavailable:
		d.Attempts++
		delay := max(p.SlowBackoff(d.Attempts-1), o.RetryAfter)
		return d.retry(p, because, Wait{notify.WaitBackoff, o.Scope, now.Add(delay)})
	case notify.RecipientRejected, notify.MessageRejected:
		d.Attempts++
		return d.end(notify.Failed, because)
	case notify.AccountRejected:
		if p.Last {
			return d.wait(because, Wait{notify.WaitAccountRejected, o.Scope, now.Add(RepairEvery)})
		}
		return d.end(notify.Failed, because)
	case notify.Suppressed:
		return d.end(notify.Blocked, because)
	case notify.Expired:
		return d.end(notify.Lapsed, because)
	case notify.NotAttempted:
		return d.wait(because, Wait{notify.WaitBackoff, o.Scope, now})
	case notify.Accepted: // above
	}
	return d.end(notify.Failed, because)
}

// Refuse says what our own refusal to call leads to. It uses up no attempt. until
// is when the refusal may end; zero when nobody knows.
func Refuse(s State, p Policy, reason notify.WaitReason, scope string, until, now time.Time) Decision {
	d := Decision{State: s}
	switch {
	case s.Stop != "":
		return d.stopped()
	case !now.Before(s.Ends):
		return Overdue(s, p, string(reason), now)
	case until.IsZero():
		return d.wait(string(reason), Wait{reason, scope, s.Ends})
	case until.After(s.Ends) && !p.Last:
		return d.end(notify.Failed, string(reason))
	}
	return d.wait(string(reason), Wait{reason, scope, until})
}

// Overdue ends a delivery whose time is over: expired when the notification is,
// else failed with the chain moving on. waitedFor, if not empty, is what held it.
func Overdue(s State, _ Policy, waitedFor string, now time.Time) Decision {
	d := Decision{State: s}
	if s.Stop != "" {
		return d.stopped()
	}
	if s.Status == notify.Sent {
		// It was accepted, and the receipt that the step asked for did not come.
		return d.silent(BecauseOverdue)
	}
	because := BecauseOverdue
	if !now.Before(s.Expires) {
		because = BecauseExpired
	}
	if waitedFor != "" && waitedFor != because {
		because += ": " + waitedFor
	}
	if !now.Before(s.Expires) {
		return d.end(notify.Lapsed, because)
	}
	return d.end(notify.Failed, because)
}

// Due says what happens when a wait is over. Most waits end in a call; those for
// knowledge end in a decision.
func Due(s State, p Policy, reason notify.WaitReason, now time.Time) Decision {
	d := Decision{State: s}
	if s.Stop != "" && reason != notify.WaitReceipt {
		return d.stopped()
	}
	switch reason {
	case notify.WaitReceipt:
		if p.Success.MetBy(s.Status) {
			d.Final, d.Met = true, true
			return d
		}
		return d.silent("no_receipt")
	case notify.WaitReconcile:
		if p.Last && s.Repeats == 0 && s.Attempts < p.Attempts && now.Before(s.Ends) {
			d.Repeats++
			return d.requeue(string(notify.Unknown))
		}
		return d.end(notify.Failed, string(notify.Unknown))
	case notify.WaitScheduled, notify.WaitBackoff, notify.WaitThrottled, notify.WaitBreakerOpen, notify.WaitPaused,
		notify.WaitCapacity, notify.WaitBudget, notify.WaitAccountRejected, notify.WaitQuietHours:
	}
	if !now.Before(s.Ends) {
		return Overdue(s, p, string(reason), now)
	}
	return d.requeue(string(reason))
}

func (d Decision) accepted(p Policy, o Outcome, now time.Time) Decision {
	d.Attempts++
	status := o.Status
	if status == "" {
		status = notify.Sent
	}
	d.State.Status = notify.Best(d.State.Status, status)
	d.Met = p.Success.MetBy(d.State.Status)
	more := p.Observable.Rank() > d.State.Status.Rank() && d.Stop == ""
	switch {
	case d.Met && more:
		d.Wait = Wait{Reason: notify.WaitReceipt, Due: now.Add(ReceiptWindow)}
	case d.Met, d.Stop != "":
		d.Final = true
	case !p.Last && p.Success != notify.UntilAcknowledged && !more:
		return d.silent("no_receipt") // a criterion that cannot be seen is refused at accept time
	default:
		d.Because = string(p.Success)
		d.Wait = Wait{Reason: notify.WaitReceipt, Due: d.Ends}
	}
	return d
}

func (d Decision) unknown(p Policy, o Outcome, now time.Time) Decision {
	because := string(notify.Unknown)
	d.Attempts++
	if o.Crashed {
		d.Crashes++
		if d.Crashes >= MaxCrashes {
			return d.end(notify.Failed, BecauseCrashed)
		}
	}
	switch p.OnUnknown {
	case notify.AssumeSent:
		d.State.Status, d.Final, d.Because = notify.Sent, true, BecauseAssumed
		d.Met = p.Success.MetBy(notify.Sent)
		d.MoveOn = !d.Met
		return d
	case notify.FallBack:
		return d.end(notify.Failed, because)
	case notify.Reconcile:
		due := now.Add(ReconcileFor)
		if due.After(d.Ends) {
			due = d.Ends
		}
		d.State.Status = notify.Uncertain
		d.Because, d.Wait = because, Wait{notify.WaitReconcile, o.Scope, due}
		return d
	case notify.Resend:
	}
	d.Repeats++
	return d.retry(p, because, Wait{notify.WaitBackoff, o.Scope, now.Add(max(p.Backoff(d.Attempts-1), o.RetryAfter))})
}

// throttled waits as long as the provider asked, or backs off where it named
// nothing, and a little longer so that the waiting do not return all at once.
// Where there is a next step, an answer of "too many" as often as the step has
// attempts is enough.
func (d Decision) throttled(p Policy, o Outcome, now time.Time) Decision {
	because := string(notify.Throttled)
	delay := o.RetryAfter
	if delay == 0 {
		delay = p.Backoff(d.Throttles - 1)
	}
	delay = max(delay, ThrottleFloor)
	delay += time.Duration(p.Spread * float64(min(delay/10, 5*time.Second)))
	w := Wait{notify.WaitThrottled, o.Scope, now.Add(delay)}
	if !p.Last && (d.Throttles >= p.Attempts || w.Due.After(d.Ends)) {
		return d.end(notify.Failed, because)
	}
	return d.wait(because, w)
}

// retry waits for another call if the step has attempts and time for one.
func (d Decision) retry(p Policy, because string, w Wait) Decision {
	if d.Attempts >= p.Attempts || w.Due.After(d.Ends) {
		return d.end(notify.Failed, because)
	}
	return d.wait(because, w)
}

// wait is bounded by the step's time: what is still waiting then is overdue.
func (d Decision) wait(because string, w Wait) Decision {
	if w.Due.After(d.Ends) {
		w.Due = d.Ends
	}
	d.State.Status, d.Because, d.Wait = notify.Waiting, because, w
	return d
}

func (d Decision) requeue(because string) Decision {
	d.State.Status, d.Because, d.Requeue = notify.Queued, because, true
	return d
}

func (d Decision) end(status notify.Status, because string) Decision {
	d.State.Status, d.Because, d.Final, d.MoveOn = status, because, true, true
	return d
}

// silent ends a delivery that was accepted and told no more.
func (d Decision) silent(because string) Decision {
	d.Because, d.Final, d.MoveOn = because, true, true
	return d
}

// stopped ends a delivery that an application or operator stopped.
func (d Decision) stopped() Decision {
	if d.State.Status == notify.Sent || d.State.Status == notify.Delivered || d.State.Status == notify.Read {
		d.Final, d.Because = true, d.Stop
		return d
	}
	d.State.Status, d.Because, d.Final = notify.Canceled, d.Stop, true
	return d
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
