package simulation

import (
	"slices"
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// A channel may have a second account, of the same vendor's kind and with moods of
// its own. Which of them a call goes through is chosen by the dispatcher's rules.

// accounts are those that may have the delivery, in their order.
func (d *delivery) accounts() []*provider {
	first := d.n.steps[d.step]
	if first.second == nil {
		return []*provider{first}
	}
	return []*provider{first, first.second}
}

// provider is the account that the delivery was last claimed for, or would be first.
func (d *delivery) provider() *provider {
	if d.at != nil {
		return d.at
	}
	return d.n.steps[d.step]
}

// policyAfter is the policy for what follows from a call: also whether another
// account may have the delivery.
func (d *delivery) policyAfter() fallback.Policy {
	p := d.policy()
	p.Patience = fallback.Patience(d.n.Priority)
	p.Elsewhere = d.elsewhere()
	return p
}

// elsewhere reports whether there is an account that has neither called last nor
// turned the delivery away.
func (d *delivery) elsewhere() bool {
	return slices.ContainsFunc(d.accounts(), func(p *provider) bool { return p != d.provider() && !slices.Contains(d.refused, p) })
}

// way is where a call goes: leave for it, or why there is none now.
type way struct {
	p    *provider
	pass *resilience.Pass
	bar  fallback.Bar
}

// admit chooses among a delivery's accounts and asks for leave.
func (n *node) admit(d *delivery) way {
	accounts := d.accounts()
	if len(accounts) == 1 {
		return n.ask(d, accounts[0])
	}
	fares, asked := n.fares(d, accounts)
	i := fallback.Choose(fares, asked, n.clock())
	if i < 0 {
		soonest, _ := fallback.Soonest(fares)
		i = max(slices.IndexFunc(fares, func(f fallback.Candidate) bool { return f.Bar == soonest }), 0)
		w := n.ask(d, accounts[i])
		if w.pass == nil {
			w.bar = heldByAny(fares, w.bar)
		}
		return w
	}
	for {
		w := n.ask(d, accounts[i])
		if w.pass != nil || !n.alive {
			return w
		}
		barred := fares[i].Bar.Reason != ""
		fares[i].Bar = w.bar
		next := fallback.Choose(fares, asked, n.clock())
		switch {
		case next < 0:
			w.bar = heldByAny(fares, w.bar)
			return w
		case next == i || barred:
			return w
		}
		i = next
	}
}

// fares is how the accounts fare for a delivery, as the node knows.
func (n *node) fares(d *delivery, accounts []*provider) ([]fallback.Candidate, fallback.Asked) {
	asked := fallback.Asked{Priority: d.n.Priority, Stay: -1, Ends: d.state.Ends}
	fares := make([]fallback.Candidate, len(accounts))
	for i, p := range accounts {
		fares[i] = n.fare(d, p)
		fares[i].Draw = d.draws[i]
		if d.state.Repeats > 0 && p == d.at {
			asked.Stay = i
		}
	}
	return fares, asked
}

func (n *node) fare(d *delivery, p *provider) fallback.Candidate {
	h := n.member.Health(p.account, []string{d.n.narrow[d.step]}, p.byHost, n.clock())
	f := fallback.Candidate{Probe: h.Probe, ProbeDue: h.ProbeDue, Share: h.Share, Refused: slices.Contains(d.refused, p)}
	if h.Denied {
		f.Bar = barOf(&h.Denial)
	}
	return f
}

func barOf(d *resilience.Denial) fallback.Bar {
	return fallback.Bar{Reason: reasonOf(d), Scope: d.Scope, Until: d.Until}
}

func (n *node) ask(d *delivery, p *provider) way {
	pass, denial := n.member.Admit(n.w.t.Context(), p.scopesFor(d.n.narrow[d.step]), n.clock())
	if denial != nil {
		return way{p: p, bar: barOf(denial)}
	}
	return way{p: p, pass: pass}
}

// anyOf stands between the scopes of a wait that moves when one of them has room.
const anyOf = " or "

// heldByAny is the bar of a delivery that none of its accounts can have.
func heldByAny(fares []fallback.Candidate, by fallback.Bar) fallback.Bar {
	b, ok := fallback.Soonest(fares)
	if !ok {
		return by
	}
	var scopes []string
	for _, f := range fares {
		if s := f.Bar.Scope; s != "" && !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	b.Scope = strings.Join(scopes, anyOf)
	return b
}

// widen lets a wait for an account that turned the delivery away end when any other
// one can be called that did so before.
func (n *node) widen(d *delivery, f *fallback.Decision) {
	if f.Pass || f.Wait.Scope == "" || f.Wait.Reason != notify.WaitThrottled && f.Wait.Reason != notify.WaitAccountRejected {
		return
	}
	fares := []fallback.Candidate{{Bar: fallback.Bar{Reason: f.Wait.Reason, Scope: f.Wait.Scope, Until: f.Wait.Due}}}
	for _, p := range d.refused {
		fares = append(fares, n.fare(d, p))
	}
	f.Wait.Scope = heldByAny(fares, fares[0].Bar).Scope
}

// checkFailover holds the choice of an account for a call that starts against the
// rules, as far as the node knew them when it asked.
func (w *world) checkFailover(c *call) {
	d := c.d
	if len(d.calls) < 2 {
		return
	}
	before := d.calls[len(d.calls)-2]
	if before.p != c.p {
		w.stats.Failovers++
	}
	mayBeTaken := slices.ContainsFunc(d.calls[:len(d.calls)-1], func(c *call) bool { return c.known == notify.Unknown })
	if mayBeTaken && d.state.Repeats == 0 {
		w.breaks("I2", "%s is sent again through %s after an unknown outcome, and not marked as a possible duplicate", d, c.p.account)
	}
	if c.strayed {
		w.breaks("I2", "%s is repeated through %s although %s, which may have it, could be called", d, c.p.account, before.p.account)
	}
	if c.again {
		w.breaks("I3", "%s is sent again through %s, which turned it away, although another account could be called", d, c.p.account)
	}
}

// judge notes what speaks against the account that was chosen for a call.
func (n *node) judge(c *call) {
	d := c.d
	for _, p := range d.accounts() {
		if f := n.fare(d, p); f.Bar.Reason != "" || f.Refused || f.Probe {
			continue
		}
		c.strayed = c.strayed || d.state.Repeats > 0 && p == d.at && p != c.p
		c.again = c.again || slices.Contains(d.refused, c.p)
	}
}

// checkWait is I1 where a channel has two accounts: what one of them could have does
// not wait for the other, longer than patience allows.
func (w *world) checkWait(n *node, d *delivery, to way) {
	// The refusal itself ends a little later, lest all come back at once.
	if b := n.fare(d, to.p).Bar; b.Reason == notify.WaitThrottled && !b.Until.After(n.clock().Add(fallback.Patience(d.n.Priority))) {
		return
	}
	for _, p := range d.accounts() {
		if f := n.fare(d, p); f.Bar.Reason == "" && !f.Refused && !f.Probe { // a probe may have been asked for in vain
			w.breaks("I1", "%s waits for %s (%s) until %.3f although %s could have it", d, to.bar.Scope, to.bar.Reason, to.bar.Until.Sub(w.begin).Seconds(), p.account)
		}
	}
}

// checkPassed is I1 for a delivery that an account turned away: another account is
// asked before that one's repair is waited for.
func (w *world) checkPassed(d *delivery, f fallback.Decision, elsewhere bool) {
	if f.Wait.Reason == notify.WaitAccountRejected && !f.Pass && elsewhere {
		w.breaks("I1", "%s waits for the repair of %s although there is another account", d, f.Wait.Scope)
	}
}

// among reports whether one of the scopes that a wait is held by is this one.
func among(scopes, scope string) bool { return slices.Contains(strings.Split(scopes, anyOf), scope) }
