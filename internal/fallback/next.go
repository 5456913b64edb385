package fallback

import (
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// taken reports whether a provider is known to have the message.
func taken(s notify.Status) bool { return notify.UntilAccepted.MetBy(s) }

// known decides where there is nothing left to choose: a receipt came before the
// call's own answer, or something stopped the delivery. Without it a message
// that arrived could be sent again because its call timed out.
func (d Decision) known(p Policy, now time.Time) (Decision, bool) {
	switch {
	case taken(d.State.Status):
		return d.settled(p, now), true
	case d.Stop != "":
		return d.stopped(), true
	case d.State.Status == notify.Failed:
		return d.end(notify.Failed, BecauseUndelivered), true
	}
	return d, false
}

func (d Decision) accepted(p Policy, o Outcome, now time.Time) Decision {
	status := o.Status
	if status == "" {
		status = notify.Sent
	}
	d.State.Status = notify.Best(d.State.Status, status)
	if !taken(d.State.Status) {
		return d.end(d.State.Status, BecauseUndelivered)
	}
	return d.settled(p, now)
}

// settled decides for a message that a provider has: whether that is enough, and
// how long to wait for more. A criterion that cannot be seen was refused when
// the notification was accepted, but accounts may have changed since.
func (d Decision) settled(p Policy, now time.Time) Decision {
	d.Met = p.Success.MetBy(d.State.Status)
	more := p.Observable.Rank() > d.State.Status.Rank()
	switch {
	case d.Stop != "":
		d.Final, d.Because = true, d.Stop
	case d.Met && (more || p.Reports && d.State.Status == notify.Sent):
		d.Wait = Wait{Reason: notify.WaitReceipt, Due: now.Add(p.window())}
	case d.Met:
		d.Final = true
	case more, p.Success == notify.UntilAcknowledged:
		d.Because, d.Wait = string(p.Success), Wait{Reason: notify.WaitReceipt, Due: d.Ends}
	default:
		return d.unheard(p, BecauseNoReceipt)
	}
	return d
}

// unheard ends a delivery of which nothing more will be waited for.
func (d Decision) unheard(p Policy, because string) Decision {
	d.Met = p.Success.MetBy(d.State.Status)
	switch {
	case !taken(d.State.Status):
		if d.Stop != "" {
			return d.stopped()
		}
		return d.end(notify.Failed, because)
	case d.Stop != "":
		because = d.Stop
	case d.Met:
		because = ""
	default:
		d.MoveOn = true
	}
	d.Final, d.Because = true, because
	return d
}

func (d Decision) unknown(p Policy, o Outcome, now time.Time) Decision {
	because := string(notify.Unknown)
	if o.Crashed {
		d.Crashes++
		if d.Crashes >= MaxCrashes {
			return d.end(notify.Failed, BecauseCrashed)
		}
	}
	switch p.OnUnknown {
	case notify.AssumeSent:
		return d.assumed(p, now)
	case notify.FallBack:
		return d.end(notify.Failed, because)
	case notify.Reconcile:
		return d.reconcile(o.Scope, d.lookAt(p, now, now))
	case notify.Resend:
	}
	delay := max(p.Backoff(d.Attempts-1), o.RetryAfter)
	next := d.retry(p, because, Wait{notify.WaitBackoff, o.Scope, now.Add(delay)})
	if !next.Final {
		next.Repeats++
	}
	return next
}

// assumed takes an unknown outcome for an acceptance. Where that is enough it is
// the end, although receipts could still come; a step that asks for more still
// has its time for it.
func (d Decision) assumed(p Policy, now time.Time) Decision {
	d.State.Status = notify.Sent
	d = d.settled(p, now)
	if d.Met {
		d.Final, d.Wait = true, Wait{}
	}
	d.Because = BecauseAssumed
	return d
}

// unreconciled decides for an unknown outcome that nothing has settled in time:
// the next step where there is one, else the message goes out once more.
func (d Decision) unreconciled(p Policy, now time.Time) Decision {
	if p.Last && d.Repeats == 0 && d.Attempts < p.Attempts && now.Before(d.Ends) {
		d.Repeats++
		return d.requeue(string(notify.Unknown))
	}
	return d.end(notify.Failed, string(notify.Unknown))
}

// throttled waits as long as the provider asked, or backs off where it named
// nothing, and a little longer so that the waiting do not return all at once.
// Where there is a next step, an answer of "too many" as often as the step has
// attempts is enough. Before that, and instead of a long wait, another account is
// asked if there is one.
func (d Decision) throttled(p Policy, o Outcome, now time.Time) Decision {
	because := string(notify.Throttled)
	delay := o.RetryAfter
	if delay == 0 {
		delay = p.Backoff(d.Throttles - 1)
	}
	delay = max(delay, ThrottleFloor)
	delay += time.Duration(p.Spread * float64(min(delay/10, 5*time.Second)))
	w := Wait{notify.WaitThrottled, o.Scope, now.Add(delay)}
	if p.Elsewhere && (delay > p.Patience || w.Due.After(d.Ends) || !p.Last && d.Throttles >= p.Attempts) {
		return d.pass(because, notify.WaitThrottled, now)
	}
	if !p.Last && (d.Throttles >= p.Attempts || w.Due.After(d.Ends)) {
		return d.end(notify.Failed, because)
	}
	return d.wait(because, w)
}

// pass goes to another account of the channel at once.
func (d Decision) pass(because string, reason notify.WaitReason, now time.Time) Decision {
	d = d.wait(because, Wait{Reason: reason, Due: now})
	d.Pass = true
	return d
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
	d.State.Status, d.Because, d.Final, d.MoveOn = status, because, true, d.Stop == ""
	return d
}

// lapse ends a delivery whose message is too old. The chain goes on only while
// the notification itself has time left.
func (d Decision) lapse(because string, now time.Time) Decision {
	d = d.end(notify.Lapsed, because)
	d.MoveOn = d.MoveOn && now.Before(d.Expires)
	return d
}

// stopped ends a delivery that an application or operator stopped.
func (d Decision) stopped() Decision {
	d.Final, d.Because = true, d.Stop
	if !taken(d.State.Status) {
		d.State.Status = notify.Canceled
	}
	return d
}
