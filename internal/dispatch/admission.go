package dispatch

import (
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// Admission answers, from what this process knows and without a round trip,
// whether a call may start now.
type Admission interface {
	// Admit asks for leave to call through account, whose narrower scopes are given
	// too. With leave, the ticket must be reported back once; without, the refusal
	// says why.
	Admit(a *Account, scopes []string, now time.Time) (Ticket, *Refusal)
	// Held returns the scopes for which nothing may be woken now.
	Held(now time.Time) []string
}

// Ticket is leave for one call.
type Ticket interface {
	// Report tells what the call told.
	Report(r channels.Result, now time.Time)
	// Withdraw says that no call was made after all.
	Withdraw(now time.Time)
}

// Refusal is why a call may not start now.
type Refusal struct {
	Reason notify.WaitReason
	Scope  string
	// Until is when to ask again.
	Until time.Time
}

// Local is the admission of one process alone.
type Local struct{ guard *resilience.Guard }

var _ Admission = (*Local)(nil)

// NewLocal returns an admission over guard.
func NewLocal(guard *resilience.Guard) *Local { return &Local{guard} }

// Admit implements [Admission].
func (l *Local) Admit(a *Account, scopes []string, now time.Time) (Ticket, *Refusal) {
	info := a.Provider.Info()
	all := make([]resilience.Scope, 0, 1+len(scopes))
	// A webhook account has no health of its own: each host has. Elsewhere the
	// account is what fails, and narrower scopes are only ever throttled.
	byHost := info.Channel == notify.Webhook
	all = append(all, resilience.Scope{Name: info.Account, Breaker: breakerIf(!byHost, a)})
	for _, s := range scopes {
		all = append(all, resilience.Scope{Name: info.Account + "/" + s, Breaker: breakerIf(byHost, a)})
	}
	ticket, denial := l.guard.Admit(all, now)
	if denial == nil {
		return &localTicket{guard: l.guard, ticket: ticket, account: info.Account}, nil
	}
	r := &Refusal{Reason: notify.WaitBreakerOpen, Scope: denial.Scope, Until: denial.Until}
	switch denial.Kind {
	case resilience.KindGate:
		r.Reason = notify.WaitThrottled
	case resilience.KindPaused:
		r.Reason = notify.WaitPaused
	case resilience.KindBreaker:
	}
	return nil, r
}

// Held implements [Admission].
func (l *Local) Held(now time.Time) []string {
	var held []string
	for _, s := range l.guard.Snapshot(now) {
		if s.Paused != nil || s.GateUntil.After(now) || s.Breaker.State == resilience.Open && (s.Breaker.OpenUntil.IsZero() || s.Breaker.OpenUntil.After(now)) {
			held = append(held, s.Scope)
		}
	}
	return held
}

func breakerIf(yes bool, a *Account) *resilience.BreakerConfig {
	if yes {
		return &a.Breaker
	}
	return nil
}

// defaultQuiet is how long a scope is left alone after a 429 that named no time.
const defaultQuiet = time.Second

type localTicket struct {
	guard   *resilience.Guard
	ticket  resilience.Ticket
	account string
}

// Report implements [Ticket].
func (t *localTicket) Report(r channels.Result, now time.Time) {
	e := resilience.Evidence{RetryAfter: r.RetryAfter}
	switch {
	case r.Outcome == notify.NotAttempted, r.Outcome == notify.Expired:
		e.Verdict = resilience.None
	case r.Outcome == notify.AccountRejected && r.Scope == "":
		e.Verdict = resilience.Rejected
	case r.Outcome.Evidence() == notify.Success:
		e.Verdict = resilience.Success
	case r.Outcome.Evidence() == notify.Failure:
		e.Verdict = resilience.Failure
	default:
		e.Verdict = resilience.Neutral
	}
	quietFor := r.RetryAfter
	if r.Outcome == notify.Throttled && quietFor == 0 {
		quietFor = defaultQuiet
	}
	if quietFor > 0 {
		scope := t.account
		if r.Scope != "" {
			scope += "/" + r.Scope
		}
		t.guard.Throttle(scope, now.Add(quietFor), now)
	}
	t.ticket.Done(e, now)
}

// Withdraw implements [Ticket].
func (t *localTicket) Withdraw(now time.Time) {
	t.ticket.Done(resilience.Evidence{Verdict: resilience.None}, now)
}
