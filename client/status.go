package client

import "time"

// Status is what became of a notification.
type Status struct {
	ID string `json:"id"`
	// Status is queued or sending while it is under way, then sent, delivered,
	// read, failed, partially_failed, expired, canceled or suppressed.
	Status         string         `json:"status"`
	Reference      string         `json:"reference"`
	Priority       Priority       `json:"priority"`
	Mode           Mode           `json:"mode"`
	CreatedAt      time.Time      `json:"created_at"`
	SendAt         time.Time      `json:"send_at"`
	ExpiresAt      time.Time      `json:"expires_at"`
	FinishedAt     *time.Time     `json:"finished_at"` // nil while more may come
	CanceledAt     *time.Time     `json:"canceled_at"`
	AcknowledgedAt *time.Time     `json:"acknowledged_at"`
	RetriedAt      *time.Time     `json:"retried_at"` // when it was last started again
	Round          int            `json:"round"`      // how many times it was
	Waiting        *Waiting       `json:"waiting"`    // nil while it is moving
	Metadata       map[string]any `json:"metadata"`
	Steps          []StepStatus   `json:"steps"`
	Timeline       []Entry        `json:"timeline"` // of [Client.Get] only
}

// Waiting is why something is not moving, and until when at least.
type Waiting struct {
	// Reason is for example scheduled, backoff, throttled, breaker_open, receipt.
	Reason string    `json:"reason"`
	Until  time.Time `json:"until"`
}

// StepStatus is how far a step has come.
type StepStatus struct {
	Channel     Channel  `json:"channel"`
	Account     string   `json:"account"`
	Success     Success  `json:"success"`
	Within      Duration `json:"within"`
	MaxAttempts int      `json:"max_attempts"`
	OnUnknown   string   `json:"on_unknown"`
	// MaxObservable is the best that can ever be known of the step: sent,
	// delivered or read.
	MaxObservable  string    `json:"max_observable"`
	Status         string    `json:"status"`
	Because        string    `json:"because"` // why it ended without success
	StartedBecause string    `json:"started_because"`
	Targets        int       `json:"targets"`
	Waiting        *Waiting  `json:"waiting"`
	Attempts       []Attempt `json:"attempts"` // of [Client.Get] only
	// Receipts are what providers said later, in the order in which it came; of
	// [Client.Get] only.
	Receipts []StatusReceipt `json:"receipts"`
}

// StatusReceipt is what a provider said later about a message that it took.
type StatusReceipt struct {
	Status            string     `json:"status"` // sent, delivered, read or failed
	At                *time.Time `json:"at"`     // by the provider's clock; nil where it does not say
	ReceivedAt        time.Time  `json:"received_at"`
	Account           string     `json:"account"`
	Target            int        `json:"target"`
	Outcome           string     `json:"outcome"` // why it failed
	ProviderCode      string     `json:"provider_code"`
	ProviderMessageID string     `json:"provider_message_id"`
	Detail            string     `json:"detail"`
}

// Entry is one line of a notification's story.
type Entry struct {
	At time.Time `json:"at"`
	// Type is started (a step), attempt (a call), receipt, or the type of an [Event].
	// More may be added.
	Type         string     `json:"type"`
	Step         *int       `json:"step"`   // of the chain, counted from 0; nil where it is about the whole
	Target       *int       `json:"target"` // which address of the step; nil where it is about all
	Channel      Channel    `json:"channel"`
	Account      string     `json:"account"`
	Because      string     `json:"because"`
	Until        *time.Time `json:"until"`   // when the wait that begins here is expected to end
	N            int        `json:"n"`       // of an attempt
	Outcome      string     `json:"outcome"` // of an attempt, and of a receipt that failed
	Status       string     `json:"status"`  // of a receipt
	ProviderCode string     `json:"provider_code"`
	Final        bool       `json:"final"`
}

// Attempt is one call of a provider.
type Attempt struct {
	Account           string    `json:"account"`
	Target            int       `json:"target"`
	N                 int       `json:"n"` // counts the calls to one target from 1
	StartedAt         time.Time `json:"started_at"`
	DurationMS        float64   `json:"duration_ms"`
	Outcome           string    `json:"outcome"`
	HTTPStatus        int       `json:"http_status"`
	RetryAfterMS      int64     `json:"retry_after_ms"`
	ProviderCode      string    `json:"provider_code"`
	ProviderMessageID string    `json:"provider_message_id"`
	Detail            string    `json:"detail"`
	PossibleDuplicate bool      `json:"possible_duplicate"`
}
