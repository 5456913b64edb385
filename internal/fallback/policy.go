// Package fallback decides what comes next for a delivery: a retry, a wait, the
// next step of the chain, or the end. It is pure: history, outcome and clock go
// in, one decision comes out, and nothing else in the project chooses.
package fallback

import (
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Times without which nothing is decided.
const (
	// DefaultAttempts is one call and three retries, over all accounts.
	DefaultAttempts = 4
	// DefaultWithin bounds a step that has a next one.
	DefaultWithin = 2 * time.Minute
	// CriticalWithin bounds such a step of a critical notification.
	CriticalWithin = 30 * time.Second
	// ReconcileFor is how long an unknown outcome may wait to be settled.
	ReconcileFor = 2 * time.Minute
	// ReceiptWindow is how long receipts are awaited after an acceptance that met
	// the step's criterion; it may outlast the step and the notification, since
	// nothing else waits for it.
	ReceiptWindow = 72 * time.Hour
	// FailureWindow is the same where all that can come is that a message failed, as
	// with email: most bounces come within minutes, nearly all within a day.
	FailureWindow = 24 * time.Hour
	// RepairEvery is how often a delivery tries an account that rejected it.
	RepairEvery = 5 * time.Minute
	// ThrottleFloor is the least wait after a provider asked for quiet.
	ThrottleFloor = 250 * time.Millisecond
	// AskAgain is how long a refusal holds whose end nobody knows.
	AskAgain = 5 * time.Second
	// MaxCrashes is how many times a delivery may take its worker with it.
	MaxCrashes = 3
)

// Reasons, beside outcomes and wait reasons, for which a delivery ends.
const (
	BecauseCanceled     = "canceled"
	BecauseAcknowledged = "acknowledged"
	BecauseExpired      = "expired"
	BecauseOverdue      = "overdue"        // the step's own time was over
	BecauseCrashed      = "crashed_worker" // three workers died over it
	BecauseInvalid      = "invalid"        // the first worker found it could not be sent
	BecauseNoAccount    = "no_account"     // no configured account may serve it
	BecauseAssumed      = "assumed"        // unknown, and the policy says assume_sent
	BecauseNoReceipt    = "no_receipt"     // accepted, and no receipt says what the step asked for
	BecauseUndelivered  = "undelivered"    // a receipt said that it was not delivered, with the outcome after a colon
	BecauseUnobservable = "unobservable"   // no account that may serve it can tell what the step asks for
	BecauseSuperseded   = "superseded"     // an earlier step turned out to have met its criterion
)

// Policy is what a step and its account ask for, every default filled in.
type Policy struct {
	Success   notify.Criterion
	Attempts  int // at least 1
	OnUnknown notify.UnknownPolicy
	// Last says that the chain has no step after this one (always so in mode
	// all, where no step follows from another).
	Last bool
	// Observable is the best status that can ever be known of this step. Reports
	// says that something may still be told of an accepted message, be it only that
	// it failed.
	Observable notify.Status
	Reports    bool
	// Window is how long receipts are awaited once the criterion is met; 0 for the
	// default, [ReceiptWindow] or [FailureWindow].
	Window time.Duration
	// Lookup says that the provider can be asked for a message whose outcome is
	// unknown.
	Lookup bool
	// Elsewhere says that the channel has another account that has not turned the
	// delivery away. Patience is how long to wait for this one before that one is
	// asked, see [Patience].
	Elsewhere bool
	Patience  time.Duration
	// Backoff and SlowBackoff give the wait before retry n, counted from 0, for a
	// failure of the provider and of the recipient.
	Backoff, SlowBackoff func(n int) time.Duration
	// Spread is a number in [0, 1) by which waits of many are pulled apart.
	Spread float64
}

// NewPolicy fills in the defaults of step i of n; the caller adds what comes
// from the account.
func NewPolicy(n *notify.Notification, i int, account notify.UnknownPolicy) Policy {
	step := n.Chain[i]
	p := Policy{
		Success:   step.Success,
		Attempts:  step.Attempts,
		OnUnknown: step.OnUnknown,
		Last:      n.Mode == notify.All || i == len(n.Chain)-1,
	}
	if p.Success == "" {
		p.Success = notify.UntilAccepted
	}
	if p.Attempts == 0 {
		p.Attempts = DefaultAttempts
	}
	if p.OnUnknown == "" {
		p.OnUnknown = account
	}
	if p.OnUnknown == "" {
		p.OnUnknown = notify.DefaultUnknownPolicy(step.Channel)
	}
	return p
}

// window is for how long receipts are awaited that nothing depends on.
func (p *Policy) window() time.Duration {
	switch {
	case p.Window > 0:
		return p.Window
	case p.Observable.Rank() > notify.Sent.Rank():
		return ReceiptWindow
	}
	return FailureWindow
}

// Ends returns when the time of step i is over, if it becomes due at start.
func Ends(n *notify.Notification, i int, start time.Time) time.Time {
	within := n.Chain[i].Within.Std()
	if within == 0 {
		if n.Mode == notify.All || i == len(n.Chain)-1 {
			return n.ExpiresAt
		}
		within = DefaultWithin
		if n.Priority == notify.Critical {
			within = CriticalWithin
		}
	}
	if ends := start.Add(within); ends.Before(n.ExpiresAt) {
		return ends
	}
	return n.ExpiresAt
}
