package dispatch

import (
	"context"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// Local is the admission of one process alone.
type Local struct{ guard *resilience.Guard }

var _ Admission = (*Local)(nil)

// NewLocal returns an admission over guard.
func NewLocal(guard *resilience.Guard) *Local { return &Local{guard} }

// Admit implements [Admission].
func (l *Local) Admit(_ context.Context, a *Account, scopes []string, now time.Time) (Ticket, *Refusal) {
	ticket, denial := l.guard.Admit(scopesOf(a, scopes), now)
	if denial != nil {
		return nil, refusalOf(denial)
	}
	return &localTicket{guard: l.guard, ticket: ticket, account: a.Provider.Info().Account}, nil
}

// Room implements [Admission].
func (l *Local) Room(scope string, _ time.Duration, now time.Time) int {
	if l.guard.Refuses(scope, now) {
		return 0
	}
	return resilience.Unlimited
}

type localTicket struct {
	guard   *resilience.Guard
	ticket  resilience.Ticket
	account string
}

// Report implements [Ticket].
func (t *localTicket) Report(_ context.Context, r channels.Result, _ time.Duration, now time.Time) {
	if scope, d := quietOf(t.account, r); d > 0 {
		t.guard.Throttle(scope, now.Add(d), now)
	}
	t.ticket.Done(evidenceOf(r), now)
}

// Withdraw implements [Ticket].
func (t *localTicket) Withdraw(_ context.Context, now time.Time) {
	t.ticket.Done(resilience.Evidence{Verdict: resilience.None}, now)
}
