package dispatch

import (
	"context"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Admission answers, from what this process knows and without a round trip,
// whether a call may start now.
type Admission interface {
	// Admit asks for leave to call through account, whose narrower scopes are given
	// too; retry says whether the call repeats an earlier one. With leave, the ticket must be reported back once; without, the refusal
	// says why.
	Admit(ctx context.Context, a *Account, scopes []string, retry store.RetryKind, now time.Time) (Ticket, *Refusal)
	// Health tells how a call through account would be answered, without asking for
	// leave: nothing changes by it.
	Health(a *Account, scopes []string, now time.Time) resilience.Health
	// Known reports whether what the other nodes decided has been learned, without
	// which no call may start.
	Known() bool
	// Room returns how many calls of a scope may start within the interval:
	// [resilience.Unlimited], or a number.
	Room(scope string, interval time.Duration, now time.Time) int
}

// Ticket is leave for one call.
type Ticket interface {
	// Start asks once more, right before the call: claiming takes a while. With
	// leave, the call must have ended at until, if that is not zero.
	Start(now time.Time) (until time.Time, ok bool)
	// Report tells what the call told and how long it took.
	Report(ctx context.Context, r channels.Result, took time.Duration, now time.Time)
	// Withdraw says that no call was made after all, or that nobody knows what came
	// of it. After a Report it does nothing.
	Withdraw(ctx context.Context, now time.Time)
}

// Refusal is why a call may not start now.
type Refusal struct {
	Reason notify.WaitReason
	Scope  string
	// Until is when to ask again.
	Until time.Time
}

// scopesOf returns the scopes of a call: the account, and below it what is
// narrower.
func scopesOf(a *Account, scopes []string) []resilience.Scope {
	info := a.Provider.Info()
	out := make([]resilience.Scope, 0, 1+len(scopes))
	// A webhook account has no health of its own: each host has. Elsewhere the
	// account is what fails, and narrower scopes are only ever throttled.
	byHost := info.Channel == notify.Webhook
	out = append(out, resilience.Scope{Name: info.Account, Breaker: breakerIf(!byHost, a)})
	for _, s := range scopes {
		out = append(out, resilience.Scope{Name: info.Account + "/" + s, Breaker: breakerIf(byHost, a)})
	}
	return out
}

func breakerIf(yes bool, a *Account) *resilience.BreakerConfig {
	if yes {
		return &a.Breaker
	}
	return nil
}

func refusalOf(d *resilience.Denial) *Refusal {
	r := &Refusal{Reason: notify.WaitBreakerOpen, Scope: d.Scope, Until: d.Until}
	switch d.Kind {
	case resilience.KindGate:
		r.Reason = notify.WaitThrottled
	case resilience.KindRamp:
		r.Reason = notify.WaitCapacity
	case resilience.KindBreaker:
	}
	return r
}

// evidenceOf is what a result says to a breaker. An account's refusal that is
// about a narrower scope says nothing about the account.
func evidenceOf(r channels.Result) resilience.Evidence {
	e := resilience.Evidence{Verdict: resilience.Neutral, RetryAfter: r.RetryAfter, Code: r.Code}
	switch {
	case r.Outcome == notify.NotAttempted, r.Outcome == notify.Expired:
		e.Verdict = resilience.None
	case r.Outcome == notify.AccountRejected && r.Scope == "":
		e.Verdict = resilience.Rejected
	case r.Outcome.Evidence() == notify.Success:
		e.Verdict = resilience.Success
	case r.Outcome.Evidence() == notify.Failure:
		e.Verdict = resilience.Failure
	}
	return e
}

// quietOf returns for how long, and which scope, a result asks to be left alone.
func quietOf(account string, r channels.Result) (scope string, d time.Duration) {
	d = r.RetryAfter
	if r.Outcome == notify.Throttled && d == 0 {
		d = defaultQuiet
	}
	if r.Scope != "" {
		account += "/" + r.Scope
	}
	return account, d
}

// defaultQuiet is how long a scope is left alone after a 429 that named no time.
const defaultQuiet = time.Second
