package channels

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Ref names a delivery, and one attempt of it where that is known. It travels
// through the provider, in a callback's URL or a field made for it, so that a
// receipt finds its delivery even if it comes before the call's own answer.
// It is a name and no proof: what carries it has to be signed or authenticated.
type Ref struct {
	Notification uuid.UUID
	Step, Target int
	// Attempt is the id of the attempt; zero where the carrier is the same for all
	// attempts of the delivery, such as a Message-ID.
	Attempt uuid.UUID
}

const (
	refDelivery = 16 + 1 + 2
	refAttempt  = refDelivery + 16
)

// IsZero reports whether r names nothing.
func (r Ref) IsZero() bool { return r == Ref{} }

// String returns the reference in at most 47 characters of the URL-safe base64
// alphabet (RFC 4648, section 5), which are also good for an email's local part;
// empty where r names nothing.
func (r Ref) String() string {
	if r.IsZero() {
		return ""
	}
	b := make([]byte, 0, refAttempt)
	b = append(b, r.Notification[:]...)
	b = append(b, byte(r.Step))
	b = binary.BigEndian.AppendUint16(b, uint16(r.Target))
	if r.Attempt != uuid.Nil {
		b = append(b, r.Attempt[:]...)
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

// ParseRef is the inverse of [Ref.String].
func ParseRef(s string) (Ref, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != refDelivery && len(b) != refAttempt {
		return Ref{}, errors.New("not a reference of ours")
	}
	r := Ref{Notification: uuid.UUID(b[:16]), Step: int(b[16]), Target: int(binary.BigEndian.Uint16(b[17:]))}
	if len(b) == refAttempt {
		r.Attempt = uuid.UUID(b[refDelivery:])
	}
	// One spelling only: the decoder skips line ends.
	if r.Notification == uuid.Nil || r.String() != s {
		return Ref{}, errors.New("not a reference of ours")
	}
	return r, nil
}

// Receipt is what a provider says later about a message that it has taken, or may
// have taken. It may come before the call's own answer, late, more than once and
// in any order.
type Receipt struct {
	// Ref is whose receipt it is; zero where the report names only the message.
	Ref Ref
	// MessageID is the provider's id of the message, at most 256 bytes; empty where
	// the report names only Ref.
	MessageID string
	// Status is sent, delivered, read or failed.
	Status notify.Status
	// Outcome is why it failed, as an attempt would have told it: which rejections
	// are for good, and which are not.
	Outcome notify.Outcome
	// Code and Detail are as in [Result].
	Code, Detail string
	// At is when it happened by the provider's clock; zero where it does not say.
	// Nothing is ordered by it.
	At time.Time
	// Suppress and SuppressFor are as in [Result].
	Suppress    bool
	SuppressFor time.Duration
}

// Clean returns r with its texts made fit for the database and for a log.
func (r Receipt) Clean() Receipt {
	r.MessageID, r.Code, r.Detail = Text(r.MessageID, maxID), Text(r.Code, maxCode), Text(r.Detail, maxDetail)
	if r.Status == notify.Failed && !r.Outcome.Valid() {
		r.Outcome = notify.RecipientUnavailable
	}
	return r
}

// Consent is what a person said about being written to: STOP, or START after it.
type Consent struct {
	// Target is who said it; the zero value where the report does not say, as in a
	// complaint whose address was taken out.
	Target notify.Target
	// Ref is the delivery that it answers; zero where that is not known. One of the
	// two is there.
	Ref Ref
	// Stop: nothing more may be sent to the address; else it may again, unless
	// something other than the person's word bars it.
	Stop bool
	// Reason is "stop", "start", "complaint" or "unsubscribe"; Code is the word or
	// the provider's code, never a text of the person.
	Reason, Code string
	// ID is the provider's id of the message or report that says so, at most 256
	// bytes, by which a repeat is known; empty where it has none.
	ID string
	// At is when the person said so by the provider's clock; zero where it does not
	// say. Of stops and starts the latest holds, in whatever order they come.
	At time.Time
}

// Callback is a request that a provider makes to us.
type Callback struct {
	Method string
	// URL is the whole URL as the provider called it, query included: the public
	// one, whatever stands between.
	URL string
	// Path is what follows /v1/receipts/{account}/, without a leading slash.
	Path   string
	Query  url.Values
	Header http.Header
	Body   []byte // at most 4 MiB
}

// Report is what a callback says.
type Report struct {
	Receipts []Receipt
	Consents []Consent
	// Answer is what the provider wants to hear; its zero value is 204 without a
	// body.
	Answer CallbackAnswer
}

// CallbackAnswer is the answer to a callback.
type CallbackAnswer struct {
	Status      int
	ContentType string
	Body        []byte
}

// CallbackReader is implemented by a provider that reports by callbacks what
// becomes of its messages.
type CallbackReader interface {
	// ReadCallback checks that a callback is the provider's and unaltered, and says
	// what it reports. The error is a *[CallbackError]; nothing of the report is
	// used then. Callbacks are idempotent: the same one may be read again. Whatever
	// it has to fetch for the check, it fetches within ctx.
	ReadCallback(ctx context.Context, c *Callback) (Report, error)
}

// CallbackError says why a callback is refused. Its text holds nothing of the
// callback's.
type CallbackError struct {
	// Status is 400 for one that cannot be read, 403 for one that is not proven to
	// be the provider's, 404 for a path that is none, 503 where the proof could not
	// be fetched.
	Status int
	Reason string
}

// Error implements error.
func (e *CallbackError) Error() string { return e.Reason }

// Poller is implemented by a provider that can be asked for the status of a
// message by its id, for when a callback was lost.
type Poller interface {
	// Poll asks once for the status of a message. The receipt's status is empty when
	// there is nothing new to tell yet. call is what the call itself told, as in
	// [Sighting]: Accepted when it was answered. It honours ctx, never retries, and
	// goes through the scopes of [Lookup], if any.
	Poll(ctx context.Context, messageID string) (r Receipt, call Result)
}
