package notify

// Status is how far a delivery, a step or a notification has come.
//
// A step's status is the maximum of its evidence, in the order of [Status.Rank];
// it never falls. The last four are ends that are no evidence about a provider.
type Status string

// The statuses.
const (
	Pending   Status = "pending"   // not started
	Waiting   Status = "waiting"   // until an instant, for a [WaitReason]
	Queued    Status = "queued"    // a job that can run now holds it
	Sending   Status = "sending"   // a worker claimed it and may be calling
	Uncertain Status = "unknown"   // a call was made and nobody knows its result
	Sent      Status = "sent"      // a provider accepted it
	Failed    Status = "failed"    // it will not be delivered by this step
	Delivered Status = "delivered" // it reached the device, mailbox or endpoint
	Read      Status = "read"      // the person opened it

	PartiallyFailed Status = "partially_failed" // notification with mode all only
	Lapsed          Status = "expired"          // its time was over
	Canceled        Status = "canceled"
	Blocked         Status = "suppressed" // no step may be sent to this person
)

// Rank orders evidence: pending < waiting, queued < sending < unknown < sent <
// failed < delivered < read. Ends without evidence rank with failed, so that a
// later receipt may still correct them.
func (s Status) Rank() int {
	switch s {
	case Pending:
		return 0
	case Waiting, Queued:
		return 1
	case Sending:
		return 2
	case Uncertain:
		return 3
	case Sent:
		return 4
	case Failed, PartiallyFailed, Lapsed, Canceled, Blocked:
		return 5
	case Delivered:
		return 6
	case Read:
		return 7
	}
	return -1
}

// Valid reports whether s is one of the statuses.
func (s Status) Valid() bool { return s.Rank() >= 0 }

// taken reports whether a provider is known to have the message.
func (s Status) taken() bool { return s == Sent || s == Delivered || s == Read }

// Best returns the status of higher rank, and s where they are equal.
func Best(s, t Status) Status {
	if t.Rank() > s.Rank() {
		return t
	}
	return s
}

// NotificationStatuses lists what a notification as a whole can be.
func NotificationStatuses() []Status {
	return []Status{
		Queued, Sending, Sent, Delivered, Read, Failed, PartiallyFailed, Lapsed, Canceled, Blocked,
	}
}

// Criterion is what must be known of a step for the chain to stop there.
type Criterion string

// The criteria. A step without one needs [UntilAccepted].
const (
	UntilAccepted     Criterion = "accepted"
	UntilDelivered    Criterion = "delivered"
	UntilRead         Criterion = "read"
	UntilAcknowledged Criterion = "acknowledged"
)

// MetBy reports whether evidence s satisfies the criterion. An acknowledgement
// is a mark beside the status and satisfies every criterion by itself.
func (c Criterion) MetBy(s Status) bool {
	switch c {
	case UntilAccepted, "":
		return s.taken()
	case UntilDelivered:
		return s == Delivered || s == Read
	case UntilRead:
		return s == Read
	case UntilAcknowledged:
		return false
	}
	return false
}

// Needs returns the status that must be seen of a message for the criterion to be
// met. What the application acknowledges needs no provider to tell more than that
// it took the message.
func (c Criterion) Needs() Status {
	switch c {
	case UntilDelivered:
		return Delivered
	case UntilRead:
		return Read
	case UntilAccepted, UntilAcknowledged:
	}
	return Sent
}

// Observable reports whether an account of which best is the most that can ever be
// known may meet the criterion.
func (c Criterion) Observable(best Status) bool { return best.Rank() >= c.Needs().Rank() }

// Valid reports whether c is one of the criteria.
func (c Criterion) Valid() bool {
	switch c {
	case UntilAccepted, UntilDelivered, UntilRead, UntilAcknowledged:
		return true
	}
	return false
}
