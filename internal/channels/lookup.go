package channels

import (
	"context"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Lookup is implemented by a provider that can be asked about a message whose
// call left it open whether it was taken.
type Lookup interface {
	// LookUp asks once whether the provider has m, whose call began and ended at
	// the given instants. It sends nothing, and like [Provider.Send] it honours ctx,
	// never retries and has no other way out than its result.
	LookUp(ctx context.Context, m *Message, began, ended time.Time) Sighting
	// LookupScopes names the scopes that such a call goes through besides the
	// account, in the form of [Scoper].
	LookupScopes(t notify.Target) []string
}

// Sighting is what a provider showed when it was asked for a message. Three
// things can follow from it: one of Messages is the one (it was taken), there is
// none and Complete is set (it was not), or neither (nobody can tell).
type Sighting struct {
	// Messages are those that the provider has and that cannot be told from the one
	// asked for, oldest first: Accepted, or the outcome that they ended in since,
	// always with a MessageID. One of them may be another notification's of the same
	// text, which is for the caller to know by its id.
	Messages []Result
	// Complete: the message would be among Messages, had the provider taken it.
	Complete bool
	// Call is what the look-up's own call told: Accepted when it was answered, else
	// what went wrong. Its Scope and RetryAfter are as for a call that sends.
	Call Result
}

const (
	// LookupSettles is how long after the end of a call a provider may still show
	// nothing of a message that it took: what it lists is not written in the instant
	// in which it accepts, and a request that timed out here may still be at work
	// there. Nothing is Complete before.
	LookupSettles = 30 * time.Second
	// LookupSkew is by how much the provider's clock may be behind ours.
	LookupSkew = time.Minute
	// maxListing bounds how much of a look-up's answer is read.
	maxListing = 1 << 20
)

// MissedLookup returns the sighting of a look-up whose exchange gave no listing.
// What it is refused for says nothing about sending: a key may be good for one
// and not for the other.
func MissedLookup(ctx context.Context, x Exchange) Sighting {
	r := x.Default(ctx, false)
	if r.Outcome == notify.AccountRejected {
		r.Outcome = notify.MessageRejected
	}
	return Sighting{Call: r}
}

// FoundLookup returns the sighting of a look-up that was answered.
func FoundLookup(x Exchange, messages []Result, complete bool) Sighting {
	return Sighting{Messages: messages, Complete: complete, Call: Result{Outcome: notify.Accepted, HTTPStatus: x.Status}}
}
