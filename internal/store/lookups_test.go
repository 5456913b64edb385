package store_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// doubtful is a delivery whose one attempt has an unknown outcome.
func (d *db) doubtful() store.Attempt {
	d.t.Helper()
	c := d.claim(d.accept(row())[0])
	r := outcome(c, notify.Unknown, store.After{Status: notify.Uncertain, Attempts: 1})
	r.Wait = waitOf(c.Delivery, notify.WaitReconcile, now())
	d.record(r)
	return *r.Attempt
}

// settle settles an attempt by a message.
func (d *db) settle(a store.Attempt, o notify.Outcome, message string) store.Settlement {
	d.t.Helper()
	a.Outcome, a.ProviderMessageID, a.Detail = o, message, "looked up"
	fate, err := d.SettleAttempt(d.t.Context(), a)
	if err != nil {
		d.t.Fatal(err)
	}
	return fate
}

func TestAnAttemptIsSettledOnce(t *testing.T) {
	t.Parallel()
	d := open(t)
	a := d.doubtful()
	if got := d.settle(a, notify.Accepted, "SM1"); got != store.Settled {
		t.Fatalf("settlement %d", got)
	}
	got, err := d.LastAttempt(t.Context(), a.DeliveryID)
	if err != nil || got.Outcome != notify.Accepted || got.ProviderMessageID != "SM1" || got.Detail != "looked up" || got.ID != a.ID {
		t.Fatalf("attempt %+v, %v", got, err)
	}
	for _, o := range []notify.Outcome{notify.Accepted, notify.ProviderUnavailable} {
		if got := d.settle(a, o, "SM2"); got != store.Moved {
			t.Errorf("settlement %d of one that is settled, by %s", got, o)
		}
	}
}

func TestAMessageSettlesNoAttemptBesideItsOwn(t *testing.T) {
	t.Parallel()
	d := open(t)
	one, two := d.doubtful(), d.doubtful()
	if got := d.settle(one, notify.Accepted, "SM1"); got != store.Settled {
		t.Fatalf("settlement %d", got)
	}
	if got := d.settle(two, notify.Accepted, "SM1"); got != store.Taken {
		t.Errorf("settlement %d by another's message", got)
	}
	flying := d.claim(d.accept(row())[0])
	if got := d.settle(two, notify.Accepted, "SM2"); got != store.Contested {
		t.Errorf("settlement %d by what may be the message of a call under way", got)
	}
	d.record(outcome(flying, notify.RecipientRejected, store.After{Status: notify.Failed, Final: true, Attempts: 1}))
	if got := d.settle(two, notify.Accepted, "SM2"); got != store.Settled {
		t.Errorf("settlement %d by its own message", got)
	}
	if _, err := d.LastAttempt(t.Context(), store.DeliveryID{Notification: uuid.New()}); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("last attempt of nothing: %v", err)
	}
}
