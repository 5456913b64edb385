package simulation

import (
	"fmt"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// behaviour is how a provider treats its callers for a while.
type behaviour string

const (
	healthy    behaviour = "healthy"
	down       behaviour = "down"       // every call fails
	slow       behaviour = "slow"       // answers come too late
	throttling behaviour = "throttling" // 429, mostly with Retry-After
	picky      behaviour = "picky"      // it takes no recipient and no message
	dropping   behaviour = "dropping"   // connections break after the request
	rejecting  behaviour = "rejecting"  // credentials are refused
)

// provider is one account and the vendor behind it.
type provider struct {
	w       *world
	channel notify.Channel
	account string
	narrow  []string // scopes below the account
	byHost  bool     // each of which has a breaker
	timeout time.Duration
	breaker resilience.BreakerConfig
	retry   resilience.Backoff
	slowly  resilience.Backoff
	policy  notify.UnknownPolicy
	best    notify.Status        // that can be observed
	bounces bool                 // failures are told of, though no success
	mood    map[string]behaviour // by scope that has a breaker
	sick    int                  // a node whose calls fail whatever the provider does; -1 for none
	second  *provider            // another account of the channel, to which calls fail over; nil for none
}

func (w *world) newProvider(i int) *provider {
	channel := []notify.Channel{notify.SMS, notify.Webhook, notify.Email}[i]
	p := &provider{
		w: w, channel: channel, account: string(channel) + "-main", byHost: channel == notify.Webhook,
		timeout: pick(w, 2*time.Second, 10*time.Second, 30*time.Second),
		retry:   resilience.Backoff{}, slowly: resilience.Backoff{Base: 30 * time.Second, Cap: 5 * time.Minute},
		policy: pick(w, "", "", notify.Resend, notify.Reconcile, notify.FallBack, notify.AssumeSent),
		best:   pick(w, notify.Sent, notify.Delivered, notify.Read), mood: map[string]behaviour{}, sick: -1, bounces: w.oneIn(2),
	}
	p.breaker = resilience.BreakerConfig{ProbeLease: p.timeout + 2*time.Second}
	if w.oneIn(3) {
		p.breaker.FailureRate, p.breaker.SlowRate, p.breaker.SlowCall = 0.5, 0.8, p.timeout/2
	}
	for j := range 1 + w.IntN(2) {
		p.narrow = append(p.narrow, fmt.Sprint("to", j))
	}
	for _, s := range p.narrow {
		p.changeMood(p.breakerScope(s))
		if !p.byHost {
			break
		}
	}
	if w.oneIn(4) {
		p.sick = w.IntN(4)
	}
	if !p.byHost && w.oneIn(2) {
		p.second = p.another()
	}
	return p
}

// another is a second account of the channel, which fares by itself.
func (p *provider) another() *provider {
	second := *p
	second.account, second.mood, second.sick = string(p.channel)+"-second", map[string]behaviour{}, -1
	second.changeMood(second.account)
	return &second
}

// accounts are all that there are.
func (w *world) accounts() []*provider {
	var out []*provider
	for _, p := range w.providers {
		if out = append(out, p); p.second != nil {
			out = append(out, p.second)
		}
	}
	return out
}

// breakerScope returns the scope whose breaker guards a call to the narrow scope.
func (p *provider) breakerScope(narrow string) string {
	if p.byHost {
		return p.account + "/" + narrow
	}
	return p.account
}

// scopesFor returns the scopes of a call, as the dispatcher makes them.
func (p *provider) scopesFor(narrow string) []resilience.Scope {
	account, below := resilience.Scope{Name: p.account}, resilience.Scope{Name: p.account + "/" + narrow}
	if p.byHost {
		below.Breaker = &p.breaker
	} else {
		account.Breaker = &p.breaker
	}
	return []resilience.Scope{account, below}
}

func (p *provider) changeMood(scope string) {
	w := p.w
	if !w.faulty {
		return
	}
	p.mood[scope] = pick(w, healthy, healthy, down, down, slow, throttling, picky, dropping, rejecting)
	w.logf("%s is %s", scope, p.mood[scope])
	w.after(w.between(5*time.Second, 100*time.Second), func() { p.changeMood(scope) })
}

func (p *provider) repair() {
	clear(p.mood)
	p.sick = -1
}

// answer is what comes of a call, and when.
type answer struct {
	outcome    notify.Outcome
	took       time.Duration
	retryAfter time.Duration
	scope      string // narrow scope that it is about; empty for the account
}

// call is answered according to the mood of the moment.
func (p *provider) call(from *node, narrow string, limit time.Duration) answer {
	w := p.w
	a := answer{outcome: notify.Accepted, took: w.between(10*time.Millisecond, 400*time.Millisecond)}
	mood := p.mood[p.breakerScope(narrow)]
	switch {
	case from.index == p.sick:
		a = answer{outcome: notify.ProviderUnavailable, took: a.took}
	case mood == down:
		a = answer{outcome: notify.ProviderUnavailable, took: a.took}
		if w.oneIn(5) {
			a.retryAfter = w.between(time.Second, time.Minute)
		}
	case mood == slow:
		a.took = w.between(p.timeout/2, 3*p.timeout)
	case mood == throttling:
		a = answer{outcome: notify.Throttled, took: a.took, scope: pick(w, "", narrow)}
		if !w.oneIn(4) {
			a.retryAfter = w.between(time.Second, 90*time.Second)
		}
	case mood == picky:
		a.outcome = pick(w, notify.RecipientRejected, notify.MessageRejected, notify.RecipientUnavailable, notify.Suppressed)
	case mood == dropping:
		a.outcome = notify.Unknown
	case mood == rejecting:
		a.outcome = notify.AccountRejected
	case w.faulty && w.oneIn(20):
		a.outcome = notify.RecipientRejected
	}
	if a.took > limit {
		a = answer{outcome: notify.Unknown, took: limit}
	}
	return a
}

// evidence is what an answer says to a breaker, by the dispatcher's rules.
func (a answer) evidence() resilience.Evidence {
	e := resilience.Evidence{Verdict: resilience.Neutral, RetryAfter: a.retryAfter}
	switch {
	case a.outcome == notify.NotAttempted, a.outcome == notify.Expired:
		e.Verdict = resilience.None
	case a.outcome == notify.AccountRejected:
		e.Verdict = resilience.Rejected
	case a.outcome.Evidence() == notify.Success:
		e.Verdict = resilience.Success
	case a.outcome.Evidence() == notify.Failure:
		e.Verdict = resilience.Failure
	}
	return e
}

// quiet is for how long and which scope the answer asks to be left alone.
func (p *provider) quiet(a answer) (scope string, d time.Duration) {
	d = a.retryAfter
	if a.outcome == notify.Throttled && d == 0 {
		d = time.Second
	}
	if a.scope != "" {
		return p.account + "/" + a.scope, d
	}
	return p.account, d
}
