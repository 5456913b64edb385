package fallback

import (
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// lookAfter is when a provider is asked for a message whose outcome is unknown,
// counted from when it became so: soon, for what it has, and once it can say that
// it has not. The last time is when reconciling ends.
var lookAfter = [...]time.Duration{10 * time.Second, 35 * time.Second}

// Reconcile says what it leads to that a provider was asked for a message whose
// outcome has been unknown since an instant. o is what the attempt is now known to
// have come to: Accepted, or the failure that followed; ProviderUnavailable, if the
// provider has no such message, whose retry repeats nothing; or Unknown, if nobody
// can tell yet. The attempt was counted when it became unknown, and is not again.
func Reconcile(s State, p Policy, o Outcome, since, now time.Time) Decision {
	d := Decision{State: s}
	if o.Kind != notify.Accepted || s.Status != notify.Uncertain {
		if known, ok := d.known(p, now); ok {
			return known
		}
	}
	if o.Kind != notify.Unknown {
		next := Decide(s, p, o, now)
		// What uses up no attempt of its own, as a throttling, has used this one.
		if !next.Final && !taken(next.State.Status) && s.Attempts >= p.Attempts {
			return d.end(notify.Failed, string(o.Kind))
		}
		return next
	}
	if due := d.lookAt(p, since, now); now.Before(due) {
		return d.reconcile(o.Scope, due)
	}
	return d.unreconciled(p, now)
}

// reconcile waits for what settles an unknown outcome.
func (d Decision) reconcile(scope string, due time.Time) Decision {
	d.State.Status = notify.Uncertain
	d.Because, d.Wait = string(notify.Unknown), Wait{notify.WaitReconcile, scope, due}
	return d
}

// lookAt returns when to look next whether an outcome is known that has not been
// since an instant; not after now once the time for it is over.
func (d Decision) lookAt(p Policy, since, now time.Time) time.Time {
	due := since.Add(ReconcileFor)
	if p.Lookup {
		for _, after := range lookAfter {
			if at := since.Add(after); now.Before(at) {
				due = at
				break
			}
		}
	}
	if due.After(d.Ends) {
		return d.Ends
	}
	return due
}
