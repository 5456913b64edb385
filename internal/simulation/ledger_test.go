package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// notification is a row, with its deliveries.
type notification struct {
	notify.Notification
	id         int
	steps      []*provider
	narrow     []string
	deliveries []*delivery // by step; nil where not started
	canceledAt time.Time
	acceptedAt time.Time
}

// delivery is a row with the fences of the real one: turn and claim.
type delivery struct {
	n     *notification
	step  int
	turn  int
	state fallback.State
	final bool

	because string
	met     bool
	wait    *fallback.Wait
	held    bool // the wait moves when its scope has room
	queued  bool
	worker  *node // that has its job
	claimed *node
	claim   int // counts claims; the claim's id
	calls   []*call

	at      *provider   // it was last claimed for
	refused []*provider // they turned it away just now
	draws   [2]float64  // where it stands in what may go to each account
}

func (d *delivery) String() string {
	return fmt.Sprintf("n%d.%d turn %d %s (%s)", d.n.id, d.step, d.turn, d.state.Status, d.because)
}

func (d *delivery) policy() fallback.Policy {
	w, p := d.provider().w, d.provider()
	spread := w.Float64()
	policy := fallback.NewPolicy(&d.n.Notification, d.step, p.policy)
	policy.Spread, policy.Observable, policy.Reports = spread, p.best, p.bounces
	policy.Backoff = func(n int) time.Duration { return p.retry.Delay(n+1, spread) }
	policy.SlowBackoff = func(n int) time.Duration { return p.slowly.Delay(n+1, spread) }
	return policy
}

// accept takes one notification with a chain over some of the providers.
func (w *world) accept() {
	n := w.draft()
	n.ExpiresAt = now().Add(pick(w, 24*time.Hour, 24*time.Hour, 10*time.Minute, w.between(time.Second, time.Minute)))
	for _, i := range w.Perm(len(w.providers)) {
		if len(n.steps) > 0 && w.oneIn(3) {
			continue
		}
		w.addStep(n, w.providers[i], pick(w, w.providers[i].narrow...))
		step := &n.Chain[len(n.Chain)-1]
		step.Attempts = pick(w, 0, 0, 1, 2, 6)
		step.OnUnknown = pick(w, "", "", "", notify.Resend, notify.Reconcile)
		if w.oneIn(3) {
			step.Within = notify.Duration(w.between(time.Second, 2*time.Minute))
		}
		if w.oneIn(2) && w.providers[i].best != notify.Sent {
			step.Success = notify.UntilDelivered
		}
	}
	w.begins(n)
	if w.oneIn(8) {
		w.after(w.upTo(time.Minute), func() { w.cancel(n) })
	}
}

// burst is many at once for one provider.
func (w *world) burst() {
	p := pick(w, w.providers...)
	for range 40 {
		n := w.draft()
		n.ExpiresAt = now().Add(24 * time.Hour)
		w.addStep(n, p, pick(w, p.narrow...))
		w.begins(n)
	}
}

// canaries is one notification for every scope.
func (w *world) canaries() []*notification {
	var out []*notification
	for _, p := range w.providers {
		for _, narrow := range p.narrow {
			n := w.draft()
			n.ExpiresAt = now().Add(24 * time.Hour)
			w.addStep(n, p, narrow)
			w.begins(n)
			out = append(out, n)
		}
	}
	return out
}

func (w *world) draft() *notification {
	n := &notification{id: len(w.notes), acceptedAt: now()}
	n.Mode, n.Priority = notify.First, pick(w, notify.Normal, notify.Critical)
	if w.oneIn(6) {
		n.Mode = notify.All
	}
	w.notes = append(w.notes, n)
	return n
}

func (w *world) addStep(n *notification, p *provider, narrow string) {
	n.Chain = append(n.Chain, notify.Step{Channel: p.channel})
	n.steps, n.narrow = append(n.steps, p), append(n.narrow, narrow)
}

func (w *world) begins(n *notification) {
	n.deliveries = make([]*delivery, len(n.steps))
	w.start(n, 0)
	for i := 1; n.Mode == notify.All && i < len(n.steps); i++ {
		w.start(n, i)
	}
}

// start makes a step's delivery and its job.
func (w *world) start(n *notification, step int) {
	d := &delivery{n: n, step: step, draws: [2]float64{w.Float64(), w.Float64()}}
	d.state = fallback.State{Status: notify.Queued, Ends: fallback.Ends(&n.Notification, step, now()), Expires: n.ExpiresAt}
	n.deliveries[step] = d
	w.enqueue(d)
}

// enqueue gives a job to some node before long.
func (w *world) enqueue(d *delivery) {
	turn := d.turn
	d.state.Status, d.queued, d.wait, d.worker = notify.Queued, true, nil, nil
	w.after(w.between(time.Millisecond, 30*time.Millisecond), func() { w.fetch(d, turn) })
}

func (w *world) fetch(d *delivery, turn int) {
	n := w.living()
	if n == nil {
		w.after(200*time.Millisecond, func() { w.fetch(d, turn) })
		return
	}
	if d.turn == turn && !d.final {
		d.worker = n
	}
	n.work(d, turn)
}

// claimFor marks a delivery as being sent by a node, unless it has moved on.
func (w *world) claimFor(d *delivery, turn int, n *node, p *provider) bool {
	if d.turn != turn || d.final || d.claimed != nil || d.state.Stop != "" || !now().Before(d.state.Expires) {
		return false
	}
	d.claimed, d.queued, d.at = n, false, p
	d.claim++
	d.state.Status = notify.Sending
	return true
}

// record writes a decision if the turn it was made under still holds.
func (w *world) record(d *delivery, turn int, f fallback.Decision) bool {
	if d.turn != turn || d.final {
		return false
	}
	before := d.state.Status
	w.checkPassed(d, f, d.elsewhere())
	d.turn++
	if f.Pass {
		w.stats.Passed++
		d.refused = append(d.refused, d.at)
	} else {
		d.refused = nil
	}
	d.state, d.final, d.because, d.met = f.State, f.Final, f.Because, f.Met
	d.claimed, d.worker, d.queued, d.wait = nil, nil, false, nil
	switch {
	case f.Final:
		next := d.step + 1
		if f.MoveOn && d.n.Mode == notify.First && next < len(d.n.steps) {
			w.stats.Fallbacks++
			w.start(d.n, next)
		}
	case f.Requeue:
		d.state.Status = notify.Waiting
		w.waits(d, fallback.Wait{Reason: notify.WaitBackoff, Due: now()})
	default:
		w.waits(d, f.Wait)
	}
	w.logf("%s, was %s; wait %+v", d, before, d.wait)
	w.checkRank(d, before)
	w.checkRow(d, f)
	return true
}

// waits gives a delivery a wait. What a scope holds moves when that has room.
func (w *world) waits(d *delivery, wait fallback.Wait) {
	d.held = wait.Scope != "" && heldBy(wait.Reason)
	if d.held {
		wait.Due = d.state.Ends
		for scope := range strings.SplitSeq(wait.Scope, anyOf) {
			w.held[scope] = append(w.held[scope], heldWait{d, d.turn})
		}
		w.wakeHeldSoon()
	}
	d.wait = &wait
	w.alarm(d, d.turn, wait.Due)
}

// heldBy reports whether a wait for this reason moves when its scope has room, by
// the dispatcher's rules.
func heldBy(reason notify.WaitReason) bool {
	switch reason {
	case notify.WaitThrottled, notify.WaitBreakerOpen, notify.WaitPaused, notify.WaitCapacity, notify.WaitBudget:
		return true
	default:
		return false
	}
}

func (w *world) alarm(d *delivery, turn int, due time.Time) {
	if due.Before(now()) {
		due = now()
	}
	w.at(due.Add(w.upTo(150*time.Millisecond)), func() { w.wake(d, turn) })
}

// wake is what some node's waker does with a wait that is due: knowledge is
// decided upon, calls are queued.
func (w *world) wake(d *delivery, turn int) {
	if d.turn != turn || d.wait == nil || d.wait.Due.After(now()) {
		return
	}
	n := w.living()
	knowledge := d.wait.Reason == notify.WaitReceipt || d.wait.Reason == notify.WaitReconcile
	switch {
	case n == nil, knowledge && d.wait.Due.After(n.clock()): // or its clock is behind
		w.after(w.between(100*time.Millisecond, 400*time.Millisecond), func() { w.wake(d, turn) })
	case knowledge:
		w.record(d, turn, fallback.Due(d.state, d.policy(), d.wait.Reason, n.clock()))
	default:
		w.enqueue(d)
	}
}

// heldWait is a wait as long as its turn lasts.
type heldWait struct {
	d    *delivery
	turn int
}

// wakeEvery is the time between two looks of a waker.
const wakeEvery = 150 * time.Millisecond

func (w *world) wakeHeldSoon() {
	if !w.waking {
		w.waking = true
		w.after(w.between(wakeEvery/2, wakeEvery), w.wakeHeld)
	}
}

// wakeHeld moves what scopes have room for, as some node sees it.
func (w *world) wakeHeld() {
	w.waking = false
	n := w.living()
	for _, scope := range slices.Sorted(maps.Keys(w.held)) {
		waits := slices.DeleteFunc(w.held[scope], func(h heldWait) bool { return h.d.turn != h.turn || h.d.wait == nil })
		if n != nil {
			room := n.member.Room(scope, wakeEvery, n.clock())
			if room == resilience.Unlimited {
				room = len(waits)
			}
			for len(waits) > 0 && room > 0 {
				w.enqueue(waits[0].d)
				waits, room = waits[1:], room-1
			}
		}
		if w.held[scope] = waits; len(waits) == 0 {
			delete(w.held, scope)
		}
	}
	if len(w.held) > 0 {
		w.wakeHeldSoon()
	}
}

// release brings the waits for an account's repair forward when its breaker
// closes.
func (w *world) release(scope string) {
	for _, n := range w.notes {
		for _, d := range n.deliveries {
			if d != nil && d.wait != nil && among(d.wait.Scope, scope) && d.wait.Reason == notify.WaitAccountRejected && d.wait.Due.After(now()) {
				d.wait.Due = now()
				w.alarm(d, d.turn, now())
			}
		}
	}
}

// cancel stops all that is not claimed, and what is claimed from going on.
func (w *world) cancel(n *notification) {
	stopped := false
	for _, d := range n.deliveries {
		if d == nil || d.final {
			continue
		}
		stopped = true
		w.stop(d, fallback.BecauseCanceled)
	}
	if stopped {
		n.canceledAt = now()
		w.stats.Canceled++
		w.logf("n%d is canceled", n.id)
	}
}

// stop ends a delivery that is not claimed, and keeps one that is from going on.
func (w *world) stop(d *delivery, why string) {
	d.turn++
	d.state.Stop = why
	d.wait = nil
	if d.claimed == nil {
		d.final, d.queued, d.because = true, false, why
		if !notify.UntilAccepted.MetBy(d.state.Status) {
			d.state.Status = notify.Canceled
		}
	}
	w.logf("%s is stopped", d)
}

// bury settles what a dead node has claimed and queues what it was given.
func (w *world) bury(dead *node) {
	by := w.living()
	if by == nil {
		w.after(time.Second, func() { w.bury(dead) })
		return
	}
	w.logf("%s buries %s", by, dead)
	for _, n := range w.notes {
		for _, d := range n.deliveries {
			switch {
			case d == nil || d.final:
			case d.claimed == dead:
				c := d.calls[len(d.calls)-1]
				c.known = notify.Unknown
				o := fallback.Outcome{Kind: notify.Unknown, Crashed: true, Scope: d.provider().account}
				w.record(d, d.turn, fallback.Decide(d.state, d.policyAfter(), o, by.clock()))
			case d.worker == dead && d.queued:
				w.enqueue(d)
			}
		}
	}
}
