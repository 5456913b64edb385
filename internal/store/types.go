package store

import (
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Errors that callers branch on.
var (
	// ErrNotFound: no such row in the caller's project.
	ErrNotFound = errors.New("not found")
	// ErrIdempotencyMismatch: the key was used before with another body.
	ErrIdempotencyMismatch = errors.New("idempotency key was used with another body")
)

// Accept is one notification to accept.
type Accept struct {
	Notification notify.Notification
	// Key and Fingerprint are the caller's Idempotency-Key and the SHA-256 of the
	// canonical body; an empty Key means none. Route tells routes apart.
	Key         string
	Route       string
	Fingerprint [32]byte
	// Answer is stored beside the key and given back to whoever repeats it.
	Answer []byte
}

// Accepted is what became of an [Accept].
type Accepted struct {
	ID       uuid.UUID
	Replayed bool   // an earlier request with the same key and body; nothing was written
	Answer   []byte // the answer to give: the earlier one when Replayed
}

// DeliveryID names a delivery.
type DeliveryID struct {
	Notification uuid.UUID
	Step         int16
	Target       int16
}

// Delivery is a row of deliveries.
type Delivery struct {
	DeliveryID
	Targets    int16
	Round      int16
	Turn       int32
	Project    string
	Channel    notify.Channel
	Priority   notify.Priority
	Address    [16]byte
	Status     notify.Status
	Final      bool
	Because    string   // why it ended or waits: an outcome, or one of the Because constants of fallback
	Stop       string   // "", canceled, acknowledged or superseded: no further call
	StartedWhy string   // first, all, or "fallback: …"
	Account    string   // the account last claimed for
	Pinned     string   // the account that the step names, empty for none
	Provider   string   // the provider that the target demands, empty for any
	Scopes     []string // the target's own scopes, relative to the account
	Refused    []string // accounts that turned it away just now; of a wait, not of the row
	Attempts   int16    // calls that count against the step's attempts
	Throttles  int16
	Crashes    int16
	Repeats    int16 // calls made although an earlier one may have been accepted
	Calls      int16
	JobID      int64 // 0 for none
	StartedAt  time.Time
	EndsAt     time.Time // when the step's own time is over
	ExpiresAt  time.Time
	ClaimedBy  uuid.UUID // zero when not claimed
	ClaimID    uuid.UUID // the id that the claim's attempt will have
	ClaimedAt  time.Time
	FinishedAt time.Time // zero while not final
	// HeldSince is since when it has been held, of one that is woken from that; it is
	// not read back.
	HeldSince time.Time
}

// Wait is a row of waits.
type Wait struct {
	DeliveryID
	Turn     int32
	Project  string
	Channel  notify.Channel
	Priority notify.Priority
	Reason   notify.WaitReason
	Scope    string
	// Held: it moves when Scope has room, and by itself only at Due.
	Held  bool
	Since time.Time
	// Until is when it is expected to move; of a wait that is not held that is Due.
	Until time.Time
	Due   time.Time
	// AskAt is when the provider is asked for the receipt that is waited for; zero
	// where it is not.
	AskAt time.Time
}

// Attempt is a row of attempts.
type Attempt struct {
	DeliveryID
	Turn              int32
	ID                uuid.UUID
	N                 int16 // counts the calls of a delivery from 1
	Node              uuid.UUID
	Account           string
	StartedAt         time.Time
	Duration          time.Duration
	Outcome           notify.Outcome
	HTTPStatus        int
	RetryAfter        time.Duration
	ProviderCode      string
	ProviderMessageID string
	Detail            string
	PossibleDuplicate bool
}

// Record is a notification with everything that is known of it.
type Record struct {
	Notification   notify.Notification // without its Content; see [Store.Content]
	Deliveries     []Delivery          // by step and target
	Waits          []Wait              // by step and target
	Attempts       []Attempt           // by step, target and turn
	Receipts       []Receipt           // in the order in which they came
	Events         []LoggedEvent       // in the order of their positions; of [Store.Get] only
	CanceledAt     time.Time           // zero for never
	AcknowledgedAt time.Time
	RetriedAt      time.Time // the last time that an operator started it again
	// AcceptedUntil is when it would have expired without a retry; zero without one.
	AcceptedUntil time.Time
	// Invalid says why the stored notification cannot be read, its content aside;
	// nil if it can. Its chain then has at least the steps that were started.
	Invalid error
}

// Filter selects notifications of one project, newest first. Zero fields do not
// filter.
type Filter struct {
	Project   string
	Status    notify.Status // of the notification as a whole
	Channel   notify.Channel
	Reference string
	Addresses [][16]byte // any of these; see notify.Target.Hash
	After     time.Time  // created at or after
	Before    time.Time  // created before
	Cursor    uuid.UUID  // only notifications older than this one
	Limit     int        // 1 to 200
}

// CancelResult is the definitive answer to a cancel.
type CancelResult string

// The answers.
const (
	// Canceled: no call had been claimed, and none will be.
	Canceled CancelResult = "canceled"
	// TooLate: a call is in flight or was made; later retries and steps are
	// stopped all the same.
	TooLate CancelResult = "too_late"
	// AlreadyFinal: there was nothing left to stop.
	AlreadyFinal CancelResult = "already_final"
)

// APIKey is a key as it may be shown: without its secret, which is not stored.
type APIKey struct {
	ID         uuid.UUID
	Project    string
	Name       string
	Hint       string // the first characters, to tell keys apart
	Scopes     []string
	CreatedAt  time.Time
	ExpiresAt  time.Time // zero for never
	RevokedAt  time.Time // zero while live
	LastUsedAt time.Time // zero for never; kept to the minute
	Limits     KeyLimits // where they are not the configured ones

	// What was refused because a limit was spent; of lists only.
	LastRefusedAt   time.Time // zero for not within the last day
	RefusedLastHour int64     // a row of a batch counts as one request
}

// Backlog is what a channel has ahead of it.
type Backlog struct {
	Channel notify.Channel
	Project string
	// Waiting counts waits by reason.
	Waiting map[notify.WaitReason]int64
	// Queued counts deliveries that River holds, running ones included.
	Queued int64
	// OldestDue is when the oldest due but unmoved delivery became due; zero
	// for none.
	OldestDue time.Time
	// OldestHeld is since when the oldest delivery waits that a breaker, a gate, a
	// pause or a limit holds, by reason; only reasons that hold any.
	OldestHeld map[notify.WaitReason]time.Time
}

// Pause is a channel that an operator paused.
type Pause struct {
	Channel notify.Channel
	By      string
	Reason  string
	Since   time.Time
}
