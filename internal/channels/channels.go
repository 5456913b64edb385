// Package channels is the port between the dispatcher and the providers: what an
// adapter is given, what it gives back, and the helpers that keep the adapters
// alike. One package below it per channel, one file per provider.
package channels

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Provider speaks to one vendor on behalf of one account. It is safe for
// concurrent use.
type Provider interface {
	// Info describes the account; it never changes.
	Info() Info
	// Send makes at most one call for one message and reports what is known of
	// it. It never retries, never sleeps and never panics on a provider's answer;
	// it honours ctx, whose deadline is the call's. An error of any kind is a
	// Result: there is no other way out.
	Send(ctx context.Context, m *Message) Result
}

// Checker is implemented by a provider that can tell before the call, from the
// message alone, that it will not send it. It is asked when a notification is
// accepted and again before the call. The error, nil if all is well, is a
// *[CheckError].
type Checker interface {
	Check(m *Message) error
}

// Scoper is implemented by a provider whose limits are narrower than the
// account, such as a Slack conversation or a webhook's host. The names are
// relative to the account, hold no address in clear and are at most 64 bytes.
type Scoper interface {
	Scopes(t notify.Target) []string
}

// Paced is implemented by a provider whose vendor bears only so many calls of a
// scope. Calls are kept below that rate, over all nodes, so that it need not
// refuse any. A rate of 0 is no limit.
type Paced interface {
	Pace(scope string) (perSecond float64, burst int)
}

// Bounded is implemented by a provider that can have only so many calls under way
// at once, from this process. Whatever is over waits before it is claimed, so that
// no attempt has begun while nothing can be sent; a call beyond is at the mercy of
// its deadline.
type Bounded interface {
	// MaxCalls is how many, at least 1. It never changes.
	MaxCalls() int
}

// Info describes one configured account.
type Info struct {
	Account  string // unique over all channels, such as "twilio-main"
	Channel  notify.Channel
	Provider string // such as "twilio"
	// MaxObservable is the best that can ever be known of a message: sent,
	// delivered or read.
	MaxObservable notify.Status
	// Receipts says that something may be told later of a message that was accepted,
	// be it only that it failed, as by a bounce. Where MaxObservable is more than sent
	// that goes without saying.
	Receipts bool
}

// Message is one delivery as an adapter sees it. Adapters do not change it.
type Message struct {
	// Key is the delivery's idempotency key: the same over attempts, crashes and
	// accounts. See [notify.DeliveryKey].
	Key            uuid.UUID
	NotificationID uuid.UUID
	// Ref names the delivery and the attempt, for receipts to come back with.
	Ref Ref
	// Callback is where the provider may report what becomes of the message: an
	// absolute URL of this service that holds Ref. Empty where the service has no
	// public address.
	Callback  string
	To        notify.Target
	Content   notify.Content
	Priority  notify.Priority
	Reference string
	Metadata  jsontext.Value // a JSON object, or nil
	Trace     string         // W3C traceparent, or empty
	CreatedAt time.Time
	ExpiresAt time.Time // what a provider's own time to live is made from
}

// Result is what one attempt told us. The zero value is not a valid Result; use
// the helpers of this package.
type Result struct {
	Outcome notify.Outcome
	// Status is what an Accepted outcome proves: sent (the default), or delivered
	// where the answer itself comes from the recipient.
	Status notify.Status
	// Scope is what a Throttled outcome or RetryAfter applies to, one of the
	// provider's own scopes; empty means the whole account.
	Scope string
	// RetryAfter is how long the provider asked to be left alone, measured from
	// the instant of its answer; 0 when it named nothing.
	RetryAfter time.Duration
	// HTTPStatus is the answer's status, 0 for none or for another protocol.
	HTTPStatus int
	// Code is the provider's own code, such as "21211", "UNREGISTERED" or
	// "550 5.1.1"; at most 64 bytes, never an address or a text of the message.
	Code string
	// MessageID is the provider's id of an accepted message.
	MessageID string
	// Detail helps an operator; at most 256 bytes, redacted: no address, no text
	// of the message, no secret.
	Detail string
	// Suppress asks that the address be put on the suppression list: it is dead,
	// or the person opted out. SuppressFor is for how long; 0 means for good.
	Suppress    bool
	SuppressFor time.Duration
}

// CheckError says why a message cannot be sent by a provider.
type CheckError struct {
	// Field is a JSON pointer into the request, such as "/content/sms/body".
	Field string
	// Reason says what is allowed; it never echoes the value.
	Reason string
}

// Error implements error.
func (e *CheckError) Error() string { return e.Field + ": " + e.Reason }
