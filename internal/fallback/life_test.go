package fallback_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// callTime is the longest that a call takes.
const callTime = 30 * time.Second

// delivery drives one delivery through a life that rapid draws, as workers, the
// waker, the reaper and a canceling caller would, and checks each decision. What
// it remembers is the history itself, so that the rules can be stated without
// the counters that the decisions are made from.
type delivery struct {
	*rapid.T
	p   fallback.Policy
	s   fallback.State
	now time.Time
	d   fallback.Decision // the last one

	outcomes  []notify.Outcome // of calls, in order
	notBefore time.Time        // the instant a provider named
	since     time.Time        // when the last call's outcome became unknown
	met       bool
}

// live runs the delivery to its end.
func (l *delivery) live() {
	for moves := 0; !l.d.Final; moves++ {
		switch {
		case moves > 40:
			// A queue that stalls, so that every life is short.
			l.now = latest(l.now, l.s.Ends)
		case l.oneIn(60, "stopped"):
			l.stop()
			return
		}
		switch {
		case l.d.Wait.Reason == "" || l.d.Requeue:
			l.queued()
		case l.lateAcceptance():
			l.decide("late acceptance", fallback.Decide(l.s, l.p, fallback.Outcome{Kind: notify.Accepted}, l.now))
		case l.d.Wait.Reason == notify.WaitReconcile && l.p.Lookup:
			l.lookedUp()
		default:
			l.waited()
		}
	}
}

// lookedUp draws what a provider says of the last call, which was of unknown
// outcome until now.
func (l *delivery) lookedUp() {
	if len(l.outcomes) == 0 || l.outcomes[len(l.outcomes)-1] != notify.Unknown {
		l.Fatalf("a look-up after %v", l.outcomes)
	}
	l.now = latest(l.now, l.d.Wait.Due).Add(l.span("lag", time.Second))
	o := fallback.Outcome{Kind: notify.Unknown, Scope: "acct"}
	if !l.oneIn(2, "cannot tell") {
		o.Kind = rapid.SampledFrom([]notify.Outcome{
			notify.Accepted, notify.ProviderUnavailable, notify.ProviderUnavailable, notify.RecipientUnavailable, notify.RecipientRejected,
			notify.MessageRejected, notify.Throttled, notify.AccountRejected, notify.Suppressed, notify.Expired,
		}).Draw(l.T, "sighting")
		l.outcomes[len(l.outcomes)-1] = o.Kind
		o.RetryAfter = l.span("retry after", time.Minute)
		l.notBefore = latest(l.notBefore, l.now.Add(retryAfter(o)))
	}
	before := l.s
	l.decide("looked up: "+string(o.Kind), fallback.Reconcile(l.s, l.p, o, l.since, l.now))
	switch late := l.now.Sub(l.since) > fallback.ReconcileFor+time.Second; {
	case l.s.Attempts != before.Attempts:
		l.Fatalf("a look-up used an attempt: from %+v to %+v", before, l.s)
	case o.Kind != notify.Unknown && l.s.Repeats != before.Repeats:
		l.Fatalf("a repeat after a look-up that found %s", o.Kind)
	case o.Kind != notify.Unknown && l.d.Wait.Reason == notify.WaitReconcile, late && l.d.Wait.Reason == notify.WaitReconcile:
		l.Fatalf("still reconciling %v after the call, %s: %+v", l.now.Sub(l.since), o.Kind, l.d)
	}
}

// retryAfter is for how long an outcome's scope is left alone.
func retryAfter(o fallback.Outcome) time.Duration {
	switch o.Kind {
	case notify.Throttled, notify.ProviderUnavailable, notify.RecipientUnavailable:
		return o.RetryAfter
	default:
		return 0
	}
}

// waited lets the wait end, sometimes later than due.
func (l *delivery) waited() {
	l.now = latest(l.now, l.d.Wait.Due).Add(l.span("lag", time.Second))
	l.decide("due: "+string(l.d.Wait.Reason), fallback.Due(l.s, l.p, l.d.Wait.Reason, l.now))
}

// lateAcceptance reports whether a call that was taken for unknown turns out
// accepted, as when a worker was taken for dead.
func (l *delivery) lateAcceptance() bool {
	return !slices.Contains(shown, l.s.Status) && len(l.outcomes) > 0 && l.outcomes[len(l.outcomes)-1] == notify.Unknown &&
		l.oneIn(6, "late")
}

// queued is what a worker does with a delivery that may run.
func (l *delivery) queued() {
	l.now = l.now.Add(l.span("queue", 2*time.Second))
	switch {
	case !l.now.Before(l.s.Ends):
		l.decide("overdue", fallback.Overdue(l.s, l.p, l.d.Because, l.now))
	case l.now.Before(l.notBefore): // the gate of the scope
		l.refuse(notify.WaitThrottled, l.notBefore)
	case l.oneIn(4, "refused"):
		var until time.Time
		if rapid.Bool().Draw(l.T, "known end") {
			until = l.now.Add(l.span("refusal", 10*time.Minute))
		}
		l.refuse(rapid.SampledFrom(refusals).Draw(l.T, "refusal"), until)
	default:
		l.call()
	}
}

var refusals = []notify.WaitReason{notify.WaitBreakerOpen, notify.WaitCapacity, notify.WaitPaused, notify.WaitBudget}

func (l *delivery) refuse(reason notify.WaitReason, until time.Time) {
	before := l.s
	l.decide("refused", fallback.Refuse(l.s, l.p, reason, "acct", until, l.now))
	if l.s.Attempts != before.Attempts || l.s.Throttles != before.Throttles {
		l.Fatalf("a refusal used an attempt: %+v", l.s)
	}
}

// call checks that a call may start, and draws what comes of it.
func (l *delivery) call() {
	l.mayCall()
	l.s.Status = notify.Sending
	l.now = l.now.Add(l.span("call", callTime))
	if l.oneIn(30, "canceled") {
		l.s.Stop = fallback.BecauseCanceled
	}
	if l.oneIn(15, "early") {
		l.s.Status = rapid.SampledFrom([]notify.Status{notify.Sent, notify.Failed, notify.Delivered, notify.Read}).Draw(l.T, "receipt")
	}
	o := fallback.Outcome{Kind: l.outcome(), Scope: "acct"}
	switch o.Kind {
	case notify.Throttled, notify.ProviderUnavailable, notify.RecipientUnavailable:
		o.RetryAfter = l.span("retry after", time.Minute)
	case notify.Unknown:
		if o.Crashed = rapid.Bool().Draw(l.T, "crash"); !o.Crashed {
			o.RetryAfter = l.span("retry after", time.Minute)
		}
	case notify.Accepted:
		o.Status = rapid.SampledFrom([]notify.Status{"", notify.Sent, notify.Delivered}).Draw(l.T, "proof")
	case notify.RecipientRejected, notify.MessageRejected, notify.AccountRejected, notify.Suppressed, notify.NotAttempted, notify.Expired:
	}
	l.notBefore = latest(l.notBefore, l.now.Add(o.RetryAfter))
	before := l.s
	l.outcomes, l.since = append(l.outcomes, o.Kind), l.now
	l.decide("outcome "+string(o.Kind), fallback.Decide(l.s, l.p, o, l.now))
	used := l.s.Attempts - before.Attempts
	switch o.Kind {
	case notify.Throttled, notify.AccountRejected, notify.NotAttempted, notify.Expired:
		if used != 0 {
			l.Fatalf("%s used %d attempts", o.Kind, used)
		}
	case notify.Unknown, notify.ProviderUnavailable, notify.RecipientUnavailable, notify.RecipientRejected, notify.MessageRejected:
		if used != 1 {
			l.Fatalf("%s used %d attempts", o.Kind, used)
		}
	case notify.Accepted, notify.Suppressed: // neither is followed by a call
	}
}

// outcome draws one, and often one that is followed by another call.
func (l *delivery) outcome() notify.Outcome {
	if l.oneIn(3, "any") {
		return rapid.SampledFrom(notify.Outcomes()).Draw(l.T, "outcome")
	}
	return rapid.SampledFrom([]notify.Outcome{
		notify.ProviderUnavailable, notify.RecipientUnavailable, notify.Throttled, notify.Unknown, notify.AccountRejected, notify.NotAttempted,
	}).Draw(l.T, "passing outcome")
}

// mayCall states I2, I3, I4 and I7 for one delivery, from its outcomes.
func (l *delivery) mayCall() {
	switch {
	case l.met, l.s.Stop != "", !l.now.Before(l.s.Ends), !l.now.Before(l.s.Expires):
		l.Fatalf("a call after the end: met %t, %+v", l.met, l.s)
	case l.now.Before(l.notBefore):
		l.Fatalf("a call %v before the instant that the provider named", l.notBefore.Sub(l.now))
	}
	spent, unknown, throttled := 0, 0, 0
	for _, o := range l.outcomes {
		switch o {
		case notify.Accepted, notify.RecipientRejected, notify.MessageRejected, notify.Suppressed, notify.Expired:
			l.Fatalf("a call after %s", o)
		case notify.AccountRejected:
			if !l.p.Last {
				l.Fatalf("a call after %s although there is a next step", o)
			}
		case notify.Unknown:
			spent, unknown = spent+1, unknown+1
		case notify.ProviderUnavailable, notify.RecipientUnavailable:
			spent++
		case notify.Throttled:
			throttled++
		case notify.NotAttempted:
		}
	}
	switch {
	case spent >= l.p.Attempts:
		l.Fatalf("call %d of %d after %v", spent+1, l.p.Attempts, l.outcomes)
	case !l.p.Last && throttled >= l.p.Attempts:
		l.Fatalf("a call after %d throttlings although there is a next step", throttled)
	case unknown != l.s.Repeats:
		l.Fatalf("%d calls may have been repeated, %d were counted", unknown, l.s.Repeats)
	case unknown == 0, l.p.OnUnknown == notify.Resend:
	case l.p.OnUnknown != notify.Reconcile || !l.p.Last || unknown > 1:
		l.Fatalf("a call after %v with policy %s, last %t", l.outcomes, l.p.OnUnknown, l.p.Last)
	}
}

// stop is what becomes of a delivery that was stopped before a worker claimed it.
func (l *delivery) stop() {
	l.s.Stop = rapid.SampledFrom([]string{fallback.BecauseCanceled, fallback.BecauseAcknowledged}).Draw(l.T, "stop")
	l.decide("stopped", fallback.Overdue(l.s, l.p, "", l.now))
	if !l.d.Final || l.d.Because != l.s.Stop {
		l.Fatalf("a stopped delivery: %+v", l.d)
	}
}

// oneIn draws evenly, which rapid's ranges of integers do not.
func (l *delivery) oneIn(n int, label string) bool {
	faces := make([]bool, n)
	faces[n-1] = true
	return rapid.SampledFrom(faces).Draw(l.T, label)
}

func (l *delivery) span(label string, longest time.Duration) time.Duration {
	return time.Duration(rapid.Int64Range(0, int64(longest)).Draw(l.T, label))
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
