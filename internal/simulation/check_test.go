package simulation

import (
	"slices"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// scopeTruth is what really happened to a scope.
type scopeTruth struct {
	calls    []*call
	quiets   []*quiet
	openedAt time.Time // since when it has not been closed; zero while it is
}

// quiet is an instant that a provider named.
type quiet struct {
	until     time.Time
	read      time.Time
	reader    *node
	committed time.Time      // zero while it is only known to its reader
	heard     map[*node]bool // those who were told of the commit
}

func (w *world) truth(scope string) *scopeTruth {
	if w.scopes[scope] == nil {
		w.scopes[scope] = &scopeTruth{}
	}
	return w.scopes[scope]
}

// named notes an instant that a node read in an answer.
func (w *world) named(scope string, by *node, until time.Time) {
	t := w.truth(scope)
	t.quiets = slices.DeleteFunc(t.quiets, func(q *quiet) bool { return !q.until.After(now()) })
	t.quiets = append(t.quiets, &quiet{until: until, read: now(), reader: by})
	w.logf("%s reads that %s wants quiet until %.3f", by, scope, until.Sub(w.begin).Seconds())
}

// gated notes that a gate became known to all.
func (w *world) gated(g resilience.ScopeGate) {
	for _, q := range w.truth(g.Scope).quiets {
		if q.committed.IsZero() && !q.until.After(g.Until) {
			q.committed = now()
			w.fresh = append(w.fresh, q)
		}
	}
}

// checkStart holds a call that starts against the rules.
func (w *world) checkStart(c *call) {
	w.checkRepeat(c)
	w.checkFailover(c)
	w.checkOrder(c)
	for _, s := range c.p.scopesFor(c.d.n.narrow[c.d.step]) {
		w.checkQuiet(c, s.Name)
	}
	w.checkBreaker(c)
}

// checkRepeat is I2 and I7: what may have been accepted, or never will be, is not
// sent again.
func (w *world) checkRepeat(c *call) {
	policy := c.d.policy()
	unknown := 0
	for i, earlier := range c.d.calls[:len(c.d.calls)-1] {
		if s := earlier.told.Receipt; earlier.heeded && (s != notify.Failed || i == len(c.d.calls)-2) {
			w.breaks("I2", "%s is sent again after a receipt said %s", c.d, s)
		}
		switch earlier.known {
		case notify.Accepted:
			w.breaks("I2", "%s is sent again after an acceptance", c.d)
		case notify.RecipientRejected, notify.MessageRejected, notify.Suppressed:
			w.breaks("I7", "%s is sent again after %s", c.d, earlier.known)
		case notify.Unknown:
			unknown++
		case "":
			w.breaks("I2", "%s is sent while another call of it is under way", c.d)
		default: // may be tried again
		}
	}
	switch {
	case unknown == 0 || policy.OnUnknown == notify.Resend:
	case policy.OnUnknown != notify.Reconcile || !policy.Last || unknown > 1:
		w.breaks("I2", "%s is sent again after %d unknown outcomes, policy %s", c.d, unknown, policy.OnUnknown)
	}
}

// checkOrder is I3: chain order, and nothing after an end.
func (w *world) checkOrder(c *call) {
	n := c.d.n
	if !n.canceledAt.IsZero() && n.canceledAt.Before(c.claimed) {
		w.breaks("I3", "%s is claimed after its cancel", c.d)
	}
	if !c.claimed.Before(n.ExpiresAt) {
		w.breaks("I3", "%s is claimed after it expired", c.d)
	}
	if n.Mode == notify.All {
		return
	}
	for _, earlier := range n.deliveries[:c.d.step] {
		if !earlier.final || earlier.met {
			w.breaks("I3", "%s is sent although an earlier step is %s, met %t", c.d, earlier, earlier.met)
		}
	}
}

// checkQuiet is I4.
func (w *world) checkQuiet(c *call, scope string) {
	for _, q := range w.truth(scope).quiets {
		if !now().Before(q.until) {
			continue
		}
		left, known := q.until.Sub(now()), now().Sub(q.committed)
		bound := 1500 * time.Millisecond
		if q.heard[c.n] {
			bound = 250 * time.Millisecond
		}
		switch {
		case q.reader == c.n:
			w.breaks("I4", "%s calls %s %v before the instant that it read itself", c.n, scope, left)
		case q.committed.IsZero():
			if since := now().Add(-4 * time.Second); q.read.Before(since) && q.reader.alive && q.reader.untroubled(since) && !w.covered(scope, q) {
				w.breaks("I4", "%s calls %s %v before an instant that %s has read and not handed in", c.n, scope, left, q.reader)
			}
		case c.n.refreshed.After(q.committed):
			w.breaks("I4", "%s calls %s %v before the instant that it knows of", c.n, scope, left)
		case known > bound && c.n.readyAt.Before(q.committed) && c.n.untroubled(q.committed):
			w.breaks("I4", "%s calls %s %v before an instant committed %v ago, heard %t", c.n, scope, left, known, q.heard[c.n])
		}
	}
}

// covered reports whether a later instant is known to all.
func (w *world) covered(scope string, q *quiet) bool {
	return slices.ContainsFunc(w.truth(scope).quiets, func(o *quiet) bool {
		return !o.committed.IsZero() && !o.until.Before(q.until)
	})
}

// untroubled reports whether the node's link to the database has worked since.
func (n *node) untroubled(since time.Time) bool {
	return n.awaiting == 0 && n.troubled.Before(since.Add(-2*time.Second))
}

// checkBreaker is the first half of I5: one probe, and nothing else while a
// breaker is not closed, as far as the caller can know.
func (w *world) checkBreaker(c *call) {
	t := w.truth(c.scope)
	r := w.shared.Record(c.scope)
	if c.probe == 0 {
		if !t.openedAt.IsZero() && c.n.refreshed.After(t.openedAt) {
			w.breaks("I5", "%s calls %s, no probe, while the breaker is %s since %v", c.n, c.scope, r.State, now().Sub(t.openedAt))
		}
		return
	}
	for _, other := range t.calls {
		if other.probe != 0 && other.generation == c.generation && other.ended.IsZero() && other.n.alive && r.State == resilience.HalfOpen {
			w.breaks("I5", "probes %d of %s and %d of %s are in flight together", other.probe, other.n, c.probe, c.n)
		}
	}
}

// changed holds a change of a breaker against what really happened.
func (w *world) changed(before resilience.ScopeRecord, c resilience.Transition) {
	t := w.truth(before.Scope)
	w.logf("%s goes from %s to %s because %s, generation %d", before.Scope, c.From, c.To, c.Reason, c.Generation)
	if before.Generation != 0 && c.Generation != before.Generation+1 {
		w.breaks("I5", "%s goes from generation %d to %d", before.Scope, before.Generation, c.Generation)
	}
	switch {
	case c.Reason == resilience.ReasonForced:
	case c.Reason == resilience.ReasonReset:
		t.quiets = nil // an operator knows better than the provider
	case c.From == resilience.HalfOpen:
		w.checkVerdict(before, c)
	case c.To == resilience.Open:
		w.checkTrip(before, c)
	}
	switch c.To {
	case resilience.Closed:
		w.stats.Closings++
		t.openedAt = time.Time{}
		w.release(before.Scope)
	case resilience.Open:
		w.stats.Trips++
		if t.openedAt.IsZero() {
			t.openedAt = now()
		}
	case resilience.HalfOpen:
	}
}

// checkVerdict is the second half of I5: only the last probe's verdict counts, and
// enough of them close the breaker.
func (w *world) checkVerdict(before resilience.ScopeRecord, c resilience.Transition) {
	by := w.reporting
	if by == nil || by.generation != before.Generation || by.probe != before.Probes {
		w.breaks("I5", "%s leaves half-open (%s) by a verdict that is void", before.Scope, c.Reason)
	}
	if c.To == resilience.Open {
		if by.verdict != resilience.Failure && by.verdict != resilience.Rejected {
			w.breaks("I6", "%s is opened by a probe with verdict %d", before.Scope, by.verdict)
		}
		return
	}
	good, neutral := 0, 0
	for _, call := range w.truth(before.Scope).calls {
		if call.probe == 0 || call.generation != before.Generation || call.ended.IsZero() {
			continue
		}
		switch call.verdict {
		case resilience.Success:
			good++
		case resilience.Neutral:
			neutral++
		case resilience.Failure, resilience.Rejected, resilience.None:
		}
	}
	if good+neutral/resilience.DefaultNeutrals < resilience.DefaultSuccesses {
		w.breaks("I5", "%s closes after %d successful and %d neutral probes", before.Scope, good, neutral)
	}
}

// checkTrip is I6: a closed breaker opens only on failures of calls that were let
// pass since it closed, and not on the word of one where others know better.
func (w *world) checkTrip(before resilience.ScopeRecord, c resilience.Transition) {
	failures, rejections, slow := 0, 0, 0
	failing, answered := map[*node]bool{}, map[*node]bool{}
	for _, call := range w.truth(before.Scope).calls {
		if call.ended.IsZero() || call.known == "" || call.admitted.Before(before.ChangedAt) || now().Sub(call.ended) > resilience.DefaultFailures*resilience.WindowWidth {
			continue
		}
		switch call.verdict {
		case resilience.Failure:
			failures++
			failing[call.n] = true
		case resilience.Rejected:
			rejections++
		case resilience.Success:
			if age := now().Sub(call.ended); age > 2500*time.Millisecond && age < 10*time.Second && call.aware && call.n.alive && call.n.untroubled(call.ended) {
				answered[call.n] = true
			}
		case resilience.None, resilience.Neutral:
		}
		if took := call.ended.Sub(call.started); took >= call.p.breaker.SlowCall {
			slow++
		}
	}
	enough := false
	switch c.Reason {
	case resilience.ReasonFailures:
		enough = failures >= resilience.DefaultFailures
	case resilience.ReasonRejected:
		enough = rejections > 0
	case resilience.ReasonFailureRate:
		enough = failures >= resilience.DefaultMinCalls/2
	case resilience.ReasonSlow:
		enough = slow >= resilience.DefaultMinCalls/2
	default:
		w.breaks("I6", "%s opens because %s", before.Scope, c.Reason)
	}
	if !enough {
		w.breaks("I6", "%s opens (%s) after %d failures, %d rejections and %d slow calls since it closed", before.Scope, c.Reason, failures, rejections, slow)
	}
	if c.Reason != resilience.ReasonFailures && c.Reason != resilience.ReasonFailureRate {
		return
	}
	for n := range answered {
		if len(failing) == 1 && !failing[n] {
			w.breaks("I6", "%s opens although %s has answers and only one node sees failures", before.Scope, n)
		}
	}
}

// checkRow holds a row that was just written against the rules.
func (w *world) checkRow(d *delivery, f fallback.Decision) {
	spent, stopped := 0, d.state.Stop != ""
	for _, c := range d.calls {
		if c.settled {
			spent++
			continue
		}
		switch c.known {
		case notify.Accepted, notify.Unknown, notify.ProviderUnavailable, notify.RecipientUnavailable, notify.RecipientRejected,
			notify.MessageRejected, notify.Suppressed:
			spent++
		case notify.Throttled, notify.AccountRejected, notify.NotAttempted, notify.Expired:
		}
	}
	if d.state.Attempts != spent {
		w.breaks("I6", "%s has used %d attempts, its calls are %d", d, d.state.Attempts, spent)
	}
	if d.final == (d.wait != nil) || !d.final && d.held && d.wait.Scope == "" {
		w.breaks("I1", "%s is final %t and waits for %v", d, d.final, d.wait)
	}
	if last := len(d.calls) - 1; last >= 0 && !stopped && d.final && f.MoveOn && d.n.Mode == notify.First && d.step+1 < len(d.n.steps) &&
		d.n.deliveries[d.step+1] == nil {
		w.breaks("I7", "%s ended and no next step was started", d)
	}
	if f.Met && !notify.UntilAccepted.MetBy(d.state.Status) {
		w.breaks("I3", "%s met its criterion", d)
	}
}

// checkAtRest is I1 when nothing is left to do: all is over, or waits for a
// receipt and says so.
func (w *world) checkAtRest() {
	for _, n := range w.notes {
		for i, d := range n.deliveries {
			switch {
			case d == nil && i == 0:
				w.breaks("I1", "n%d has no delivery", n.id)
			case d == nil || d.final:
			case d.wait == nil:
				w.breaks("I1", "%s is stuck", d)
			case d.wait.Reason != notify.WaitReceipt:
				w.breaks("I1", "%s waits for %s %s until %.3f although all has been well for long", d, d.wait.Reason, d.wait.Scope, d.wait.Due.Sub(w.begin).Seconds())
			case !d.wait.Due.After(now().Add(-3 * time.Second)):
				w.breaks("I1", "%s waits although its time is over", d)
			}
			if d == nil {
				continue
			}
			w.checkEvidence(d)
			if notify.UntilAccepted.MetBy(d.state.Status) {
				w.stats.Delivered++
			}
		}
	}
}

// checkDelivered is liveness: what comes after the repair arrives.
func (w *world) checkDelivered(notes []*notification) {
	for _, n := range notes {
		if d := n.deliveries[0]; !notify.UntilAccepted.MetBy(d.state.Status) {
			w.breaks("I1", "%s was not delivered within %v of a repaired provider", d, canaryFor)
		}
	}
}
