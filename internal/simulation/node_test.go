package simulation

import (
	"errors"
	"fmt"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// node is one life of a process. Its clock is off by skew.
type node struct {
	w           *world
	index, life int
	skew        time.Duration
	phase       time.Duration // of its second
	alive       bool
	ready       bool // it has learned what is shared, and takes jobs
	readyAt     time.Time
	member      *resilience.Member
	link        *Link

	busyUntil                time.Time // idle seconds are left out
	ticking, syncing         bool
	flushAgain, refreshAgain bool
	refreshed                time.Time // when the last refresh that succeeded began
	cutUntil                 time.Time
	troubled                 time.Time // when its link was last slow or broken
	awaiting                 int       // answers
	reporting                *call
}

// call is one claim of a delivery and the call made under it.
type call struct {
	d          *delivery
	n          *node
	p          *provider // the account
	pass       *resilience.Pass
	claim      int
	scope      string // that has the breaker
	admitted   time.Time
	claimed    time.Time
	started    time.Time
	ended      time.Time
	known      notify.Outcome // as the cluster knows it; empty while under way
	verdict    resilience.Verdict
	generation uint64 // of a probe, and its number
	probe      uint64
	aware      bool // the node knew the breaker's state as it was

	told    fallback.Call   // by receipts
	heard   []notify.Status // every one of them
	settled bool            // by receipts, before its answer
	heeded  bool            // receipts of it have been applied

	strayed, again bool // see [node.judge]
}

func (n *node) String() string { return fmt.Sprintf("node %d.%d", n.index, n.life) }

func (n *node) clock() time.Time { return now().Add(n.skew) }

func (w *world) boot(index int) {
	n := &node{w: w, index: index, alive: true, phase: w.upTo(time.Second - 1)}
	n.skew = w.between(-2*time.Second, 2*time.Second)
	if old := w.nodes[index]; old != nil {
		n.life = old.life + 1
	}
	n.link = w.shared.Link(n.String())
	n.link.Via = n.via
	n.member = resilience.NewMember(n.link, w.Float64)
	w.nodes[index] = n
	w.logf("%s starts", n)
	w.after(0, func() { n.sync(false, true) })
}

var (
	errLost = errors.New("connection reset")
	errGone = errors.New("process is gone")
)

// via is the way to the database, which may lose and delay what passes.
func (n *node) via(_ Op, do func()) error {
	w, reporting := n.w, n.reporting
	apply := func() {
		outer := w.reporting
		w.reporting = reporting
		do()
		w.reporting = outer
	}
	switch {
	case !w.faulty:
		apply()
		return nil
	case now().Before(n.cutUntil):
		w.stats.Lost++
		return errLost
	}
	switch w.IntN(16) {
	case 0: // the request is lost
		n.await(w.upTo(2 * time.Second))
		w.stats.Lost++
		return errLost
	case 1: // the answer is lost
		apply()
		n.await(w.upTo(2 * time.Second))
		w.stats.Lost++
		return errLost
	case 2: // both are slow
		n.await(w.upTo(time.Second))
		if !n.alive {
			return errGone
		}
		apply()
		n.await(w.upTo(time.Second))
		if !n.alive {
			return errGone
		}
	default:
		apply()
	}
	return nil
}

func (n *node) await(d time.Duration) {
	n.awaiting++
	n.w.await(d)
	n.awaiting--
	if n.troubled.Before(now()) {
		n.troubled = now()
	}
}

// poke makes the node look each second for a while.
func (n *node) poke() {
	n.busyUntil = now().Add(3 * time.Second)
	n.tickNext()
}

func (n *node) tickNext() {
	if n.ticking || !n.alive {
		return
	}
	n.ticking = true
	next := now().Truncate(time.Second).Add(n.phase)
	if !next.After(now()) {
		next = next.Add(time.Second)
	}
	n.w.at(next, n.tick)
}

func (n *node) tick() {
	n.ticking = false
	n.sync(true, true)
	if now().Before(n.busyUntil) {
		n.tickNext()
	}
}

// sync hands in and learns, one at a time as the real loop does.
func (n *node) sync(flush, refresh bool) {
	n.flushAgain, n.refreshAgain = n.flushAgain || flush, n.refreshAgain || refresh
	if n.syncing {
		return
	}
	n.syncing = true
	for n.alive && (n.flushAgain || n.refreshAgain) {
		flush, refresh = n.flushAgain, n.refreshAgain
		n.flushAgain, n.refreshAgain = false, false
		if flush && n.member.Flush(n.w.t.Context(), n.clock()) != nil {
			n.poke()
			continue
		}
		if !refresh || !n.alive {
			continue
		}
		began := now()
		if n.member.Refresh(n.w.t.Context(), n.clock()) != nil {
			n.poke()
			continue
		}
		n.refreshed = began
		if !n.ready {
			n.ready, n.readyAt = n.member.Known(), now()
		}
	}
	n.syncing = false
}

// kicked flushes at once if the member asks for it.
func (n *node) kicked() {
	select {
	case <-n.member.Kicked():
		n.w.after(time.Millisecond, func() { n.sync(true, false) })
	default:
	}
	n.poke()
}

// work is what a job does for one delivery.
func (n *node) work(d *delivery, turn int) {
	w := n.w
	if !n.alive || d.turn != turn || d.final || d.claimed != nil {
		return
	}
	if t := n.clock(); !t.Before(d.state.Ends) {
		n.uncalled(d, turn, func() fallback.Decision { return fallback.Overdue(d.state, d.policy(), d.because, t) })
		return
	}
	known, begun := n.refreshed, now()
	to := n.admit(d)
	switch {
	case !n.alive || d.turn != turn || d.final:
		if to.pass != nil && n.alive {
			to.pass.Withdraw(w.t.Context(), n.clock())
		}
		return
	case to.pass == nil:
		w.stats.Refusals++
		if begun.Equal(now()) { // else what the node knew may be another thing by now
			w.checkWait(n, d, to)
		}
		n.uncalled(d, turn, func() fallback.Decision {
			return fallback.Refuse(d.state, d.policy(), to.bar.Reason, to.bar.Scope, to.bar.Until, n.clock())
		})
		return
	}
	c := &call{d: d, n: n, p: to.p, scope: to.p.breakerScope(d.n.narrow[d.step]), pass: to.pass, admitted: now()}
	c.aware = known.After(w.shared.Record(c.scope).ChangedAt)
	if begun.Equal(now()) {
		n.judge(c)
	}
	if c.pass.Probe() {
		r := w.shared.Record(c.scope)
		c.generation, c.probe = r.Generation, r.Probes
	}
	took := w.between(time.Millisecond, 20*time.Millisecond)
	if w.faulty && w.oneIn(20) {
		took = w.upTo(20 * time.Second) // the database is slow, or the process was stopped for a while
	}
	w.after(took, func() { n.claim(c, turn) })
}

func reasonOf(d *resilience.Denial) notify.WaitReason {
	switch d.Kind {
	case resilience.KindGate:
		return notify.WaitThrottled
	case resilience.KindRamp:
		return notify.WaitCapacity
	case resilience.KindBreaker:
	}
	return notify.WaitBreakerOpen
}

// uncalled records what was decided without a call.
func (n *node) uncalled(d *delivery, turn int, decide func() fallback.Decision) {
	n.w.after(n.w.between(time.Millisecond, 20*time.Millisecond), func() {
		if n.alive && d.turn == turn && !d.final && d.claimed == nil {
			n.w.record(d, turn, decide())
		}
	})
}

// claim marks the delivery, and makes the call if all is still as it was.
func (n *node) claim(c *call, turn int) {
	w, d := n.w, c.d
	if !n.alive {
		return
	}
	if !w.claimFor(d, turn, n, c.p) {
		c.pass.Withdraw(w.t.Context(), n.clock())
		if d.turn == turn && !d.final && d.claimed == nil && !now().Before(d.state.Expires) {
			n.uncalled(d, turn, func() fallback.Decision { return fallback.Overdue(d.state, d.policy(), d.because, d.state.Expires) })
		}
		return
	}
	c.claim, c.claimed = d.claim, now()
	d.calls = append(d.calls, c)
	until, ok := c.pass.Start(n.clock())
	if !ok {
		c.known = notify.NotAttempted
		c.pass.Withdraw(w.t.Context(), n.clock())
		n.settle(c, turn, answer{outcome: notify.NotAttempted})
		return
	}
	limit := c.p.timeout
	if !until.IsZero() {
		limit = min(limit, until.Sub(n.clock()))
	}
	c.started = now()
	w.checkStart(c)
	w.truth(c.scope).calls = append(w.truth(c.scope).calls, c)
	w.stats.Calls++
	if c.probe != 0 {
		w.stats.Probes++
	}
	a := c.p.call(n, d.n.narrow[d.step], limit)
	w.logf("%s calls %s for n%d.%d: %s in %v, probe %d", n, c.scope, d.n.id, d.step, a.outcome, a.took, c.probe)
	w.after(a.took, func() { c.ended = now() })
	w.report(c, a)
	if w.faulty && w.oneIn(25) {
		a.took += w.upTo(time.Minute) // the process was stopped for a while, or starved
	}
	w.after(a.took, func() { n.answered(c, turn, a) })
}

// answered takes in what a call told.
func (n *node) answered(c *call, turn int, a answer) {
	w, p := n.w, c.p
	if !n.alive {
		return
	}
	e := a.evidence()
	c.known, c.verdict = a.outcome, e.Verdict
	switch a.outcome {
	case notify.Throttled:
		w.stats.Throttled++
	case notify.Unknown:
		w.stats.Unknown++
	default:
	}
	if scope, quiet := p.quiet(a); quiet > 0 {
		if w.faulty && w.oneIn(20) {
			w.logf("operator resets %s while an answer is on its way", scope)
			w.override(p, scope, reset, 0) // of which the node hears later than of the instant
		}
		w.named(scope, n, now().Add(quiet))
		n.member.Throttle(scope, n.clock().Add(quiet), n.clock())
	}
	w.after(w.between(time.Millisecond, 20*time.Millisecond), func() { n.settle(c, turn, a) })
	n.reporting = c
	c.pass.Done(w.t.Context(), e, a.took, n.clock())
	n.reporting = nil
	n.kicked()
}

// settle decides what an answer leads to, again if the delivery has moved on.
func (n *node) settle(c *call, turn int, a answer) {
	w, d := n.w, c.d
	if !n.alive {
		return
	}
	scope := c.p.account
	if a.scope != "" {
		scope += "/" + a.scope
	}
	o := fallback.Outcome{Kind: a.outcome, RetryAfter: a.retryAfter, Scope: scope}
	decide := func() fallback.Decision {
		f := fallback.Decide(d.state, d.policyAfter(), o, n.clock())
		n.widen(d, &f)
		return f
	}
	if w.record(d, turn, decide()) {
		return
	}
	switch mine := d.claimed == n && d.claim == c.claim; {
	case !d.final && mine:
		w.record(d, d.turn, decide())
	case a.outcome != notify.Accepted, !d.final && d.claimed != nil:
	case d.final:
		w.correct(d, fallback.Evidence{Status: notify.Sent})
	case !notify.UntilAccepted.MetBy(d.state.Status):
		w.record(d, d.turn, decide())
	}
}

// announce tells the nodes that something changed. Some do not hear it.
func (w *world) announce() {
	heard := map[*node]bool{}
	for _, n := range w.nodes {
		if n == nil || !n.alive {
			continue
		}
		n.poke()
		after := w.between(time.Millisecond, 20*time.Millisecond)
		switch {
		case !w.faulty || !w.oneIn(4):
			heard[n] = true
		case w.oneIn(2):
			after += w.upTo(3 * time.Second)
		default:
			continue
		}
		w.after(after, func() { n.sync(false, true) })
	}
	for _, q := range w.fresh {
		q.heard = heard
	}
	w.fresh = nil
}
