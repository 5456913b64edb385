package simulation

import (
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// report lets a provider tell what became of the message of a call, for a while:
// before the answer and long after it, more than once, in any order, and not all
// that it says arrives. Of a call that it did not take it has nothing to tell.
func (w *world) report(c *call, a answer) {
	p := c.p
	took := a.outcome == notify.Accepted || a.outcome == notify.Unknown && w.oneIn(2)
	if !took || p.best == notify.Sent && !p.bounces {
		return
	}
	var says []notify.Status
	switch fails := w.faulty && w.oneIn(3); {
	case p.best == notify.Sent && fails: // nobody tells of its success
		says = []notify.Status{notify.Failed}
	case p.best == notify.Sent:
	case fails && w.oneIn(4): // which it took back
		says = []notify.Status{notify.Sent, notify.Failed, notify.Delivered}
	case fails:
		says = []notify.Status{notify.Sent, notify.Failed}
	default:
		says = []notify.Status{notify.Sent, notify.Delivered, notify.Read}[:1+w.IntN(p.best.Rank()-notify.Failed.Rank()+1)]
	}
	kind := pick(w, notify.RecipientUnavailable, notify.RecipientRejected, notify.ProviderUnavailable)
	for _, status := range says {
		for range 1 + w.IntN(2) {
			if w.faulty && w.oneIn(6) {
				w.stats.LostReceipts++
				continue
			}
			delay := w.upTo(5 * time.Second)
			if w.faulty && w.oneIn(4) {
				delay = w.upTo(3 * time.Minute)
			}
			w.after(delay, func() { w.received(c, status, kind) })
		}
	}
}

// received keeps a receipt; some node applies it before long.
func (w *world) received(c *call, status notify.Status, kind notify.Outcome) {
	w.stats.Receipts++
	if c.known == "" {
		w.stats.EarlyReceipts++
	}
	c.told.Receive(status, kind)
	c.heard = append(c.heard, status)
	w.logf("a receipt for call %d of n%d.%d: %s", c.claim, c.d.n.id, c.d.step, status)
	w.after(w.between(time.Millisecond, 400*time.Millisecond), func() { w.apply(c.d) })
}

// apply weighs what is known of a delivery and records what follows, from a copy
// that is as old as a round trip, under the copy's turn.
func (w *world) apply(d *delivery) {
	n := w.living()
	if n == nil {
		w.after(200*time.Millisecond, func() { w.apply(d) })
		return
	}
	state, turn, final, known := d.state, d.turn, d.final, d.known()
	e := fallback.Weigh(known)
	flying, calls := d.claimed != nil, len(d.calls)
	w.after(w.between(time.Millisecond, 20*time.Millisecond), func() {
		switch {
		case !n.alive: // its lease ends
			w.after(10*time.Second, func() { w.apply(d) })
		case final:
			w.correct(d, e)
		case d.turn != turn || (d.claimed != nil) != flying: // it has moved on
			w.apply(d)
		default:
			for _, c := range d.calls[:calls] {
				c.heeded = c.heeded || c.told.Receipt != ""
			}
			f, changed := fallback.Receive(state, d.policy(), e, n.clock())
			if !changed {
				return
			}
			w.checkFailure(d, known, state.Status, f)
			if flying {
				d.calls[len(d.calls)-1].settled = true
			}
			w.record(d, turn, f)
		}
	})
}

// checkFailure is I3: a failed receipt ends a step only where no other call of it
// was accepted, or may yet be.
func (w *world) checkFailure(d *delivery, calls []fallback.Call, before notify.Status, f fallback.Decision) {
	if f.Status != notify.Failed {
		return
	}
	for i, c := range calls {
		last := i == len(calls)-1
		switch {
		case c.Receipt == "" && c.Outcome == notify.Accepted, notify.UntilAccepted.MetBy(c.Receipt):
			w.breaks("I3", "%s is failed by a receipt although call %d was taken", d, i+1)
		case last && c.Receipt == "" && !notify.UntilAccepted.MetBy(before):
			w.breaks("I3", "%s is failed by the receipt of an earlier call", d)
		}
	}
}

// known is what is known of a delivery's calls.
func (d *delivery) known() []fallback.Call {
	var out []fallback.Call
	for _, c := range d.calls {
		if c.known == notify.NotAttempted {
			continue
		}
		call := c.told
		call.Outcome = c.known
		out = append(out, call)
	}
	return out
}

// correct raises the status of a delivery that has ended, and stops what went on
// in its place.
func (w *world) correct(d *delivery, e fallback.Evidence) {
	before := d.state.Status
	taken := notify.UntilAccepted.MetBy(e.Status)
	if e.Status == "" || before == notify.Canceled && !taken || before != notify.Canceled && e.Status.Rank() <= before.Rank() {
		return
	}
	d.state.Status = e.Status
	w.stats.Corrected++
	w.logf("%s is corrected from %s", d, before)
	w.checkRank(d, before)
	step := d.n.Chain[d.step]
	if d.n.Mode != notify.First || !step.Success.MetBy(e.Status) {
		return
	}
	d.met = true
	for _, later := range d.n.deliveries[d.step+1:] {
		if later == nil || later.final || later.state.Stop != "" {
			continue
		}
		w.stats.Superseded++
		w.stop(later, fallback.BecauseSuperseded)
	}
}

// checkRank is I8: what is known of a message is never unlearned. That a message
// failed is more than that it was sent.
func (w *world) checkRank(d *delivery, before notify.Status) {
	switch before {
	case notify.Sent, notify.Failed, notify.Delivered, notify.Read:
		if d.state.Status.Rank() < before.Rank() {
			w.breaks("I8", "%s was %s", d, before)
		}
	default:
	}
}

// checkEvidence is I8 when all receipts have been applied: a delivery is what all
// that was said of it says together, in whatever order it was said.
func (w *world) checkEvidence(d *delivery) {
	best, failed, taken, told := notify.Sent, false, false, false
	for _, c := range d.calls {
		gaveUp, has := false, c.known == notify.Accepted
		for _, s := range c.heard {
			told = true
			gaveUp, has = gaveUp || s == notify.Failed, has || s != notify.Failed
			if s != notify.Failed {
				best = notify.Best(best, s)
			}
		}
		failed, taken = failed || gaveUp, taken || has && !gaveUp
	}
	switch is := d.state.Status; {
	case !told:
	case best != notify.Sent && is != best:
		w.breaks("I8", "%s, and a receipt says %s", d, best)
	case best == notify.Sent && failed && !taken && notify.UntilAccepted.MetBy(is):
		w.breaks("I8", "%s, and receipts say failed", d)
	}
}
