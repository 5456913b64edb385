package dispatch

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// paceWait is how long an admission may wait for a pacer's tokens: about one
// round trip. A slow scope's token is spent where it was asked for, or not at all.
const paceWait = 50 * time.Millisecond

// maxPaced bounds how many scopes are remembered as waiting for their pace.
const maxPaced = 10_000

// Cluster is the admission that all nodes share: breakers and gates through a
// [resilience.Member], rates through a [resilience.Pacer]. Retry budgets are each
// node's own, and so hold for all of them together.
type Cluster struct {
	member *resilience.Member
	pacer  *resilience.Pacer // nil paces nothing

	mu      sync.Mutex
	budgets map[string]*resilience.Budget // by account
	paced   map[string]time.Time          // the next slot of scopes that are over their rate
}

var _ Admission = (*Cluster)(nil)

// NewCluster returns an admission over a process's part in the shared state. A
// nil pacer paces nothing.
func NewCluster(member *resilience.Member, pacer *resilience.Pacer) *Cluster {
	return &Cluster{member: member, pacer: pacer, budgets: map[string]*resilience.Budget{}, paced: map[string]time.Time{}}
}

// Admit implements [Admission]. The order is by what a refusal costs: breakers
// and gates give back what they gave, a budget is refunded, and a pacer's tokens
// are spent, so they come last.
func (c *Cluster) Admit(ctx context.Context, a *Account, scopes []string, retry store.RetryKind, now time.Time) (Ticket, *Refusal) {
	account := a.Provider.Info().Account
	pass, denial := c.member.Admit(ctx, scopesOf(a, scopes), now)
	if denial != nil {
		return nil, refusalOf(denial)
	}
	t := &clusterTicket{member: c.member, pass: pass, account: account}
	if retry != store.FirstCall && retry != lookUp {
		t.budget = c.budget(a)
		charge, ok, until := t.budget.Retry(kindOf(retry), now)
		if !ok {
			pass.Withdraw(ctx, now)
			// Spread, or all that were refused come back for the one that is free.
			return nil, &Refusal{Reason: notify.WaitBudget, Scope: account, Until: until.Add(rand.N(resilience.DefaultBudgetMinimum))}
		}
		t.charge = charge
	}
	if paces := a.paces(scopes); len(paces) > 0 && c.pacer != nil {
		if ok, until := c.pacer.Wait(ctx, paces, paceWait); !ok {
			t.Withdraw(ctx, now)
			return nil, &Refusal{Reason: notify.WaitCapacity, Until: c.slot(paces, until, now)}
		}
	}
	if retry == store.FirstCall {
		c.budget(a).First()
	}
	return t, nil
}

func kindOf(r store.RetryKind) resilience.RetryKind {
	if r == store.RetryAfterThrottle {
		return resilience.AfterThrottle
	}
	return resilience.AfterFailure
}

// budget returns the account's retry budget.
func (c *Cluster) budget(a *Account) *resilience.Budget {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := a.Provider.Info().Account
	b := c.budgets[name]
	if b == nil {
		b = resilience.NewBudget(a.Budget)
		c.budgets[name] = b
	}
	return b
}

// slot is when a call that was over its rates is to come back. Those that wait
// for the same scope are given its slots one after the other, as far apart as the
// rate asks for, so that each comes back about when there is a token for it.
func (c *Cluster) slot(paces []resilience.Pace, until, now time.Time) time.Time {
	nodes := c.member.Nodes()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.paced) >= maxPaced {
		maps.DeleteFunc(c.paced, func(_ string, next time.Time) bool { return !next.After(now) })
	}
	for _, p := range paces {
		next := c.paced[p.Scope]
		if next.Before(now) {
			next = now
		}
		if next.After(until) {
			until = next
		}
		if len(c.paced) < maxPaced {
			c.paced[p.Scope] = next.Add(time.Duration(nodes) * p.Limit.Interval())
		}
	}
	return until
}

// Health implements [Admission].
func (c *Cluster) Health(a *Account, scopes []string, now time.Time) resilience.Health {
	info := a.Provider.Info()
	return c.member.Health(info.Account, scopes, info.Channel == notify.Webhook, now)
}

// Known implements [Admission].
func (c *Cluster) Known() bool { return c.member.Known() }

// Room implements [Admission].
func (c *Cluster) Room(scope string, interval time.Duration, now time.Time) int {
	return c.member.Room(scope, interval, now)
}

type clusterTicket struct {
	member  *resilience.Member
	pass    *resilience.Pass
	account string
	budget  *resilience.Budget // nil for a first call
	charge  resilience.RetryCharge
}

// Start implements [Ticket].
func (t *clusterTicket) Start(now time.Time) (until time.Time, ok bool) { return t.pass.Start(now) }

// Report implements [Ticket].
func (t *clusterTicket) Report(ctx context.Context, r channels.Result, took time.Duration, now time.Time) {
	if scope, d := quietOf(t.account, r); d > 0 {
		t.member.Throttle(scope, now.Add(d), now)
	}
	if t.budget != nil && (r.Outcome == notify.Accepted || r.Outcome == notify.NotAttempted) {
		t.budget.Refund(t.charge)
	}
	t.budget = nil
	t.pass.Done(ctx, evidenceOf(r), took, now)
}

// Withdraw implements [Ticket].
func (t *clusterTicket) Withdraw(ctx context.Context, now time.Time) {
	if t.budget != nil {
		t.budget.Refund(t.charge)
		t.budget = nil
	}
	t.pass.Withdraw(ctx, now)
}
