package fallback

import (
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Call is what is known of one call of a delivery.
type Call struct {
	// Outcome is what its own answer said; empty while it is under way, or where its
	// answer was never recorded.
	Outcome notify.Outcome
	// Receipt is the receipt of the highest rank, empty for none. Kind is why it
	// failed, where that is failed.
	Receipt notify.Status
	Kind    notify.Outcome
}

// Receive adds a receipt to what is known of a call. The order in which receipts
// come makes no difference.
func (c *Call) Receive(status notify.Status, kind notify.Outcome) {
	switch {
	case c.Receipt == "" || status.Rank() > c.Receipt.Rank():
		c.Receipt, c.Kind = status, kind
	case status == c.Receipt && kind < c.Kind: // one of them, and always the same one
		c.Kind = kind
	}
}

// Evidence is what the calls of a delivery say together: a message that one of
// them brought there is there, whatever became of the others.
type Evidence struct {
	// Status is sent, delivered, read, or failed where receipts say that of a call
	// and a provider has no message of another; empty where nothing is known.
	Status notify.Status
	// Kind is why it failed, and Last that it was the last call that did.
	Kind notify.Outcome
	Last bool
}

// Weigh joins what is known of a delivery's calls, in the order in which they were
// made. A receipt counts for more than the call's own answer, since it is about
// what came after it; a failed one takes an acceptance back, and is itself taken
// back by one that says delivered or read.
func Weigh(calls []Call) Evidence {
	var e Evidence
	for i, c := range calls {
		status := c.Receipt
		if status == "" && c.Outcome == notify.Accepted {
			status = notify.Sent
		}
		switch {
		case taken(status) && (!taken(e.Status) || status.Rank() > e.Status.Rank()):
			e = Evidence{Status: status}
		case status == notify.Failed && !taken(e.Status):
			e = Evidence{Status: notify.Failed, Kind: c.Kind, Last: i == len(calls)-1}
		}
	}
	return e
}

// Receive says what it leads to that receipts came for a delivery that has not
// ended, whatever it is doing; changed is false where they say nothing new. A
// failed receipt is the end of the step: the provider took the message and has
// given it up, so its own retries are over. Only the chain goes on from there,
// and only while the notification has time.
func Receive(s State, p Policy, e Evidence, now time.Time) (d Decision, changed bool) {
	d = Decision{State: s}
	switch {
	case taken(e.Status):
		if taken(s.Status) && s.Status.Rank() >= e.Status.Rank() {
			return d, false
		}
		d.Attempts += inFlight(s.Status)
		d.State.Status = e.Status
		return d.settled(p, now), true
	case e.Status != notify.Failed, notify.UntilDelivered.MetBy(s.Status):
		return d, false
	case !taken(s.Status) && !e.Last:
		// A later call is under way, or waits for its answer or for being made again:
		// that decides.
		return d, false
	}
	d.Attempts += inFlight(s.Status)
	d = d.end(notify.Failed, Undelivered(e.Kind))
	d.MoveOn = d.MoveOn && now.Before(s.Expires)
	return d, true
}

// Undelivered is why a step ended that a failed receipt came for.
func Undelivered(kind notify.Outcome) string {
	if kind == "" {
		return BecauseUndelivered
	}
	return BecauseUndelivered + ": " + string(kind)
}

// Unreachable reports whether a delivery that did not succeed and ended because of
// this ended since its address could not be reached: now, that is, not for good.
func Unreachable(because string) bool {
	return because == string(notify.RecipientUnavailable) || strings.HasSuffix(because, ": "+string(notify.RecipientUnavailable))
}

// Barred returns why the list of suppressions barred a delivery that ended because
// of this, and false where it ended otherwise.
func Barred(because string) (reason string, barred bool) {
	return strings.CutPrefix(because, string(notify.Suppressed)+": ")
}

// inFlight is the attempt that a call uses up whose answer has not come yet.
func inFlight(s notify.Status) int {
	if s == notify.Sending {
		return 1
	}
	return 0
}

// pollAfter is when a provider is asked for a receipt that may have been lost,
// counted from when it was first waited for.
var pollAfter = [...]time.Duration{
	time.Minute, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 8 * time.Hour, 24 * time.Hour, 48 * time.Hour,
}

// pollLead is how long before a wait for receipts ends the provider is asked for
// the last time, so that a lost callback does not cost a needless fallback.
const pollLead = 10 * time.Second

// PollAt returns when a provider is asked next for the status of a message whose
// receipts are waited for from since until due; zero for not any more.
func PollAt(since, due, now time.Time) time.Time {
	last := due.Add(-min(pollLead, due.Sub(since)/4))
	for _, after := range pollAfter {
		if at := since.Add(after); now.Before(at) && at.Before(last) {
			return at
		}
	}
	if now.Before(last) {
		return last
	}
	return time.Time{}
}
