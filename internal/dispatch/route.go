package dispatch

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// route is the way of one call. With a ticket, the place among the calls under way
// and the ticket have to be given back; without one, refused says why, or no
// account may have the delivery, or the job was stopped in line for a place.
type route struct {
	account *Account
	place   *place
	ticket  Ticket
	refused *Refusal
	// heldSince is since when the delivery was held before; zero if it was not.
	heldSince time.Time
	// full: what refuses is that too many calls are under way already.
	full bool
	// passed are the accounts that would have come before, with why they did not.
	passed []passed
}

type passed struct{ account, because string }

// detail tells an operator why the call goes where it goes.
func (w *route) detail() string {
	if len(w.passed) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("passed over ")
	for i, p := range w.passed {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(p.account + " (" + p.because + ")")
	}
	return b.String()
}

// choice is one delivery's choice among its accounts.
type choice struct {
	d        *Dispatcher
	channel  Channel
	envelope *store.Envelope
	item     *store.Item
	key      uint64
	now      time.Time
	accounts []*Account // in the order in which they are asked
	asked    fallback.Asked
	fares    []fallback.Candidate // how they fare; nil until that matters
}

// admit chooses the account for a delivery's call and asks for leave. Where all is
// well with the first account, no other is looked at.
func (d *Dispatcher) admit(ctx context.Context, r *Registry, e *store.Envelope, item *store.Item, now time.Time) route {
	var room [usual]*Account
	key := keyOf(item.ID, item.Step, item.Target)
	c := choice{
		d: d, channel: r.Channel(e.Channel), envelope: e, item: item, key: key, now: now,
		accounts: r.candidates(room[:0], e.Channel, e.Project, item.Pinned, item.Needs, key),
		asked:    fallback.Asked{Priority: e.Priority, Stay: -1, Ends: item.EndsAt()},
	}
	if len(c.accounts) == 0 {
		return route{}
	}
	i := c.first()
	if i < 0 {
		// The one that opens first is asked all the same: it may have done so by now.
		w := c.ask(ctx, c.soonest())
		if w.refused != nil && !w.full {
			w.refused = c.held(w.refused)
		}
		return w
	}
	for {
		w := c.ask(ctx, i)
		if w.refused == nil || w.full || len(c.accounts) == 1 {
			w.passed = c.passed(i)
			return w
		}
		c.look()
		barred := c.fares[i].Bar.Reason != "" // and waited for
		c.fares[i].Bar = fallback.Bar{Reason: w.refused.Reason, Scope: w.refused.Scope, Until: w.refused.Until}
		next := fallback.Choose(c.fares, c.asked, now)
		switch {
		case next < 0:
			w.refused = c.held(w.refused)
			return w
		case next == i || barred:
			return w
		}
		i = next
	}
}

// first returns the account that the call goes to as things look, -1 for none.
func (c *choice) first() int {
	if len(c.accounts) == 1 {
		return 0
	}
	if c.item.Stay == "" && len(c.item.Refused) == 0 {
		if f := c.fare(c.accounts[0]); f.Clear() {
			return 0
		}
	}
	c.look()
	return fallback.Choose(c.fares, c.asked, c.now)
}

// look finds out how all of the accounts fare.
func (c *choice) look() {
	if c.fares != nil {
		return
	}
	c.fares = make([]fallback.Candidate, len(c.accounts))
	for i, a := range c.accounts {
		name := a.Provider.Info().Account
		c.fares[i] = c.fare(a)
		c.fares[i].Refused = slices.Contains(c.item.Refused, name)
		if c.item.Stay == name {
			c.asked.Stay = i
		}
	}
}

func (c *choice) fare(a *Account) fallback.Candidate {
	h := c.d.cfg.Admission.Health(a, scopesFor(a.Provider.Info().Provider, c.item.Scopes), c.now)
	return fareOf(a, &h, c.key)
}

// fareOf is how an account fares for a delivery.
func fareOf(a *Account, h *resilience.Health, key uint64) fallback.Candidate {
	info := a.Provider.Info()
	f := fallback.Candidate{Probe: h.Probe, ProbeDue: h.ProbeDue, Share: h.Share}
	if h.Share < 1 {
		f.Draw = draw(key, info.Account, 0)
	}
	if h.Denied {
		r := refusalOf(&h.Denial)
		f.Bar = fallback.Bar{Reason: r.Reason, Scope: r.Scope, Until: r.Until}
		f.Own = h.Narrow && !interchangeable(info.Channel)
	}
	return f
}

// ask asks for a place and for leave to call through one of the accounts.
func (c *choice) ask(ctx context.Context, i int) (w route) {
	d, a := c.d, c.accounts[i]
	scopes := scopesFor(a.Provider.Info().Provider, c.item.Scopes)
	w = route{account: a}
	place, full := d.flights.take(ctx, flight{
		channel: c.envelope.Channel, project: c.envelope.Project, bounds: boundsOf(c.channel, a, scopes), priority: c.envelope.Priority,
		heldSince: c.item.HeldSince(),
	})
	c.now = d.cfg.Now() // it may have stood in line
	switch {
	case full != "":
		w.full, w.refused = true, &Refusal{Reason: notify.WaitCapacity, Scope: full, Until: c.now.Add(capacityWait)}
		return w
	case place == nil:
		return w
	}
	w.place = place
	defer func() {
		if w.ticket == nil {
			place.leave(false)
		}
	}()
	w.ticket, w.refused = d.cfg.Admission.Admit(ctx, a, scopes, c.item.Retry, c.now)
	return w
}

// soonest returns the account that opens first, of those that may be waited for.
func (c *choice) soonest() int {
	b, _ := fallback.Soonest(c.fares)
	return max(slices.IndexFunc(c.fares, func(f fallback.Candidate) bool { return f.Bar == b }), 0)
}

// held is the refusal of a delivery that none of its accounts can have: it waits
// for the one that opens first, and moves when any of them does.
func (c *choice) held(by *Refusal) *Refusal {
	b, ok := fallback.Soonest(c.fares)
	switch {
	case !ok:
		return by
	case b.Scope == "": // a pace, whose slot comes at its instant
		return &Refusal{Reason: b.Reason, Until: b.Until}
	}
	return &Refusal{Reason: b.Reason, Scope: store.AnyOf(scopesOfBars(c.fares, by.Scope)), Until: b.Until}
}

// scopesOfBars returns the scopes that hold accounts, those that open first before
// the others; instead where there are none.
func scopesOfBars(fares []fallback.Candidate, instead string) []string {
	bars := make([]fallback.Bar, 0, len(fares))
	for i := range fares {
		if fares[i].Bar.Scope != "" {
			bars = append(bars, fares[i].Bar)
		}
	}
	slices.SortStableFunc(bars, func(a, b fallback.Bar) int {
		if a.Until.IsZero() || b.Until.IsZero() {
			return cmp.Compare(b.Until.Unix(), a.Until.Unix())
		}
		return a.Until.Compare(b.Until)
	})
	var out []string
	for _, b := range bars {
		if !slices.Contains(out, b.Scope) {
			out = append(out, b.Scope)
		}
	}
	if len(out) == 0 {
		return []string{instead}
	}
	return out
}

// passed says which accounts would have come before the one chosen.
func (c *choice) passed(chosen int) []passed {
	var out []passed
	for i := range c.fares[:min(chosen, len(c.fares))] {
		if why := c.asked.Why(&c.fares[i], c.now); why != "" {
			out = append(out, passed{c.accounts[i].Provider.Info().Account, why})
		}
	}
	return out
}
