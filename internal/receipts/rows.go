package receipts

import (
	"crypto/sha256"
	"slices"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// receiptsOf are a report's receipts as they are kept. One that names no message,
// or tells nothing that a receipt can tell, is dropped.
func receiptsOf(account string, reported []channels.Receipt, now time.Time) []store.Receipt {
	out := make([]store.Receipt, 0, len(reported))
	for _, r := range reported {
		r = r.Clean()
		if r.Ref.IsZero() && r.MessageID == "" || !tells(r.Status) {
			continue
		}
		out = append(out, store.Receipt{
			DeliveryID: deliveryOf(r.Ref), Attempt: r.Ref.Attempt, Account: account, MessageID: r.MessageID,
			Status: r.Status, Outcome: r.Outcome, Code: r.Code, Detail: r.Detail, At: believable(r.At, now), ReceivedAt: now,
			Suppress: r.Suppress, SuppressFor: r.SuppressFor,
		})
	}
	return out
}

func tells(s notify.Status) bool {
	return slices.Contains([]notify.Status{notify.Sent, notify.Delivered, notify.Read, notify.Failed}, s)
}

func deliveryOf(r channels.Ref) store.DeliveryID {
	return store.DeliveryID{Notification: r.Notification, Step: int16(r.Step), Target: int16(r.Target)}
}

// believable is a provider's time, or the zero time for one that can only be a
// mistake and that the database might not hold.
func believable(at, now time.Time) time.Time {
	const day = 24 * time.Hour
	if at.Before(now.Add(-10*365*day)) || at.After(now.Add(2*day)) {
		return time.Time{}
	}
	return at
}

// consentsOf are what people said, as it is kept. What is said to be of later than
// now is of now, or nothing that comes would be later.
func consentsOf(account string, a Account, said []channels.Consent, now time.Time) []store.Consent {
	out := make([]store.Consent, 0, len(said))
	for _, c := range said {
		row := store.Consent{
			Account: account, Projects: a.Projects, Channel: a.Channel, Delivery: deliveryOf(c.Ref), Stop: c.Stop, Reason: c.Reason,
			Word: wordOf(c), SaidAt: believable(c.At, now), At: now,
		}
		if row.SaidAt.After(now) {
			row.SaidAt = now
		}
		if c.Target != (notify.Target{}) {
			row.Address = c.Target.Hash(a.Channel)
		}
		out = append(out, row)
	}
	return out
}

// wordOf tells a consent apart from every other of the account: by the hash of its
// id, which may hold an address, else by its instant; zero where it has neither, and
// a repeat cannot be known.
func wordOf(c channels.Consent) [16]byte {
	id := c.ID
	if id == "" {
		if c.At.IsZero() {
			return [16]byte{}
		}
		id = c.Reason + "@" + c.At.UTC().Format(time.RFC3339Nano)
	}
	sum := sha256.Sum256([]byte(id))
	return [16]byte(sum[:16])
}
