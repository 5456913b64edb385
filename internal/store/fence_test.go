package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Of a job that runs twice, one run may step aside while the other calls.
func TestWhatWasDecidedUnclaimedIsLateOnceTheDeliveryIsClaimed(t *testing.T) {
	t.Parallel()
	d := open(t)
	queued := d.accept(row())[0]
	c := d.claim(queued)
	aside := after0(queued, store.After{Status: notify.Waiting, Because: "capacity"})
	aside.Wait = waitOf(queued, notify.WaitCapacity, now().Add(time.Minute))
	if fates := d.record(aside); fates[0] != store.Late {
		t.Errorf("stepping aside: fate %d", fates[0])
	}
	if got := d.delivery(queued.DeliveryID); got.Status != notify.Sending || got.ClaimID != c.ClaimID || got.ClaimedBy != d.node {
		t.Errorf("the call's claim is gone: %+v", got)
	}
	other := outcome(c, notify.Accepted, store.After{Status: notify.Sent, Final: true, Attempts: 1})
	other.Attempt, other.Claim = nil, uuid.New()
	if fates := d.record(other); fates[0] != store.Late {
		t.Errorf("under another claim: fate %d", fates[0])
	}
	if fates := d.record(outcome(c, notify.Accepted, store.After{Status: notify.Sent, Final: true, Attempts: 1})); fates[0] != store.Written {
		t.Errorf("the call: fate %d", fates[0])
	}
	if got := d.count("select count(*) from dispatcher.waits"); got != 0 {
		t.Errorf("%d waits", got)
	}
}
