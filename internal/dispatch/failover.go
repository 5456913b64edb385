package dispatch

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// policyAfter is the policy for what follows from an outcome: also whether another
// account may have the delivery now.
func (d *Dispatcher) policyAfter(n *notify.Notification, delivery *store.Delivery, o *outcome) fallback.Policy {
	registry := d.registry.Load()
	p := registry.policy(n, int(delivery.Step), o.account, rand.Float64())
	p.Patience = fallback.Patience(n.Priority)
	// A limit of the recipient's own is the same for all of them.
	own := strings.Contains(o.Scope, "/") && !interchangeable(delivery.Channel)
	if o.account != nil && !own {
		p.Elsewhere = registry.elsewhere(delivery, o.account.Provider.Info().Account)
	}
	return p
}

// widen lets a wait for an account that turned the delivery away end when any
// other one can be called: those that did so before, and are barred now.
func (d *Dispatcher) widen(f *fallback.Decision, delivery *store.Delivery, now time.Time) {
	if f.Pass || f.Wait.Scope == "" || len(delivery.Refused) == 0 {
		return
	}
	switch f.Wait.Reason {
	case notify.WaitThrottled, notify.WaitAccountRejected:
	default:
		return
	}
	fares := []fallback.Candidate{{Bar: fallback.Bar{Reason: f.Wait.Reason, Scope: f.Wait.Scope, Until: f.Wait.Due}}}
	registry := d.registry.Load()
	for _, name := range delivery.Refused {
		if a := registry.named(delivery.Channel, name); a != nil {
			h := d.cfg.Admission.Health(a, scopesFor(a.Provider.Info().Provider, delivery.Scopes), now)
			fares = append(fares, fareOf(a, &h, 0))
		}
	}
	f.Wait.Scope = store.AnyOf(scopesOfBars(fares, f.Wait.Scope))
}

// unfit reports whether an account should leave a message to another one of its
// channel: it would not take it, or it cannot tell what the step wants to know. This
// is known only now, since what is queued holds no content.
func (d *Dispatcher) unfit(c *store.Claimed, a *Account) bool {
	registry, info := d.registry.Load(), a.Provider.Info()
	if !registry.elsewhere(&c.Delivery, info.Account) {
		return false
	}
	switch success := c.Notification.Chain[c.Step].Success; success {
	case notify.UntilDelivered, notify.UntilRead:
		if !success.MetBy(info.MaxObservable) {
			return true
		}
	default:
	}
	checker, ok := a.Provider.(channels.Checker)
	return ok && checker.Check(message(&c.Notification, int(c.Step), int(c.Target), int(c.Round))) != nil
}

// passOn gives a claim back for which no call was made, for another account.
func (d *Dispatcher) passOn(ctx context.Context, c *store.Claimed, a *Account) {
	now, n := d.now(), &c.Notification
	o := outcome{Outcome: fallback.Outcome{Kind: notify.NotAttempted}, account: a}
	decision := fallback.PassOn(stateOf(&c.Delivery), d.policyAfter(n, &c.Delivery, &o), now)
	r := d.result(n, c.Delivery, decision, now)
	r.Uncalled = true
	if d.commit(ctx, n, &c.Delivery, decision, r, lasting) == store.Late {
		d.late(ctx, c.Delivery, o)
	}
}
