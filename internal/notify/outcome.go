package notify

// Outcome is what one attempt told us. Its zero value is no outcome.
type Outcome string

// The outcomes. What each one leads to is decided in package fallback alone.
const (
	// Accepted: the provider took the message and proved it, normally with an id.
	Accepted Outcome = "accepted"
	// Unknown: the request was written and no answer tells whether it was taken.
	Unknown Outcome = "unknown"
	// Throttled: the provider asked for quiet (429 and its like) for a scope.
	Throttled Outcome = "throttled"
	// ProviderUnavailable: a passing failure of the provider or the way to it.
	ProviderUnavailable Outcome = "provider_unavailable"
	// RecipientUnavailable: a passing failure of this recipient only.
	RecipientUnavailable Outcome = "recipient_unavailable"
	// RecipientRejected: this address will not work on this channel.
	RecipientRejected Outcome = "recipient_rejected"
	// MessageRejected: this content will not be taken on this channel.
	MessageRejected Outcome = "message_rejected"
	// AccountRejected: credentials, configuration or sender must be repaired.
	AccountRejected Outcome = "account_rejected"
	// Suppressed: the recipient opted out, or may not be written to by law.
	Suppressed Outcome = "suppressed"
	// NotAttempted: our own refusal; no call was made and no attempt is used.
	NotAttempted Outcome = "not_attempted"
	// Expired: the message's time was over before a call was made.
	Expired Outcome = "expired"
)

// Outcomes lists every outcome, for metrics and for tables in tests.
func Outcomes() []Outcome {
	return []Outcome{
		Accepted, Unknown, Throttled, ProviderUnavailable, RecipientUnavailable, RecipientRejected,
		MessageRejected, AccountRejected, Suppressed, NotAttempted, Expired,
	}
}

// Valid reports whether o is one of the outcomes.
func (o Outcome) Valid() bool {
	switch o {
	case Accepted, Unknown, Throttled, ProviderUnavailable, RecipientUnavailable, RecipientRejected,
		MessageRejected, AccountRejected, Suppressed, NotAttempted, Expired:
		return true
	}
	return false
}

// Evidence is what an outcome says to a circuit breaker.
type Evidence int

// The kinds of evidence. Neutral counts neither for nor against the provider,
// so that a thousand bad phone numbers never open a breaker and one malformed
// request never closes it.
const (
	Neutral Evidence = iota
	Success
	Failure
)

// Evidence returns what o says about the health of the provider.
func (o Outcome) Evidence() Evidence {
	switch o {
	case Accepted:
		return Success
	case Unknown, ProviderUnavailable:
		return Failure
	case Throttled, RecipientUnavailable, RecipientRejected, MessageRejected, AccountRejected,
		Suppressed, NotAttempted, Expired:
		return Neutral
	}
	return Neutral
}

// WaitReason says why a delivery is not moving now.
type WaitReason string

// The reasons. Every wait has one of them and an instant.
const (
	WaitScheduled       WaitReason = "scheduled"        // send_at is ahead
	WaitBackoff         WaitReason = "backoff"          // a retry after a passing failure
	WaitThrottled       WaitReason = "throttled"        // a provider named an instant
	WaitBreakerOpen     WaitReason = "breaker_open"     // the account's breaker is open
	WaitPaused          WaitReason = "paused"           // an operator paused the channel
	WaitCapacity        WaitReason = "capacity"         // too many calls in flight, or too many jobs of one project
	WaitBudget          WaitReason = "budget"           // the account's retry budget is empty
	WaitAccountRejected WaitReason = "account_rejected" // the account waits for repair
	WaitReceipt         WaitReason = "receipt"          // accepted; a receipt may still come
	WaitReconcile       WaitReason = "reconcile"        // unknown; a receipt or a look-up may settle it
	WaitQuietHours      WaitReason = "quiet_hours"      // the recipient's night
)

// WaitReasons lists every reason, for metrics and for tables in tests.
func WaitReasons() []WaitReason {
	return []WaitReason{
		WaitScheduled, WaitBackoff, WaitThrottled, WaitBreakerOpen, WaitPaused, WaitCapacity, WaitBudget,
		WaitAccountRejected, WaitReceipt, WaitReconcile, WaitQuietHours,
	}
}

// UnknownPolicy says what to do about an [Unknown] outcome.
type UnknownPolicy string

// The policies.
const (
	// Reconcile waits for a receipt or a look-up, then falls back if there is a
	// next step, else sends once more. Default for sms and whatsapp.
	Reconcile UnknownPolicy = "reconcile"
	// Resend treats it as a passing failure. Default elsewhere: the delivery's
	// key lets receivers and devices collapse a repeat.
	Resend UnknownPolicy = "resend"
	// FallBack moves on to the next step at once.
	FallBack UnknownPolicy = "fallback"
	// AssumeSent ends the step as sent. Only ever chosen, never a default.
	AssumeSent UnknownPolicy = "assume_sent"
)

// Valid reports whether p is one of the policies.
func (p UnknownPolicy) Valid() bool {
	switch p {
	case Reconcile, Resend, FallBack, AssumeSent:
		return true
	}
	return false
}

// DefaultUnknownPolicy is the policy of a channel whose account and step name none.
func DefaultUnknownPolicy(c Channel) UnknownPolicy {
	if c == SMS || c == WhatsApp {
		return Reconcile
	}
	return Resend
}
