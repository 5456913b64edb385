package store_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// receipt says that a message came to a status; adapt changes it.
func receipt(d store.DeliveryID, status notify.Status, adapt ...func(*store.Receipt)) store.Receipt {
	r := store.Receipt{DeliveryID: d, Account: "main", MessageID: "SM1", Status: status, At: now(), ReceivedAt: now()}
	if status == notify.Failed {
		r.Outcome, r.Code, r.Detail = notify.RecipientUnavailable, "30003", "unreachable"
	}
	for _, f := range adapt {
		f(&r)
	}
	return r
}

// add keeps receipts and returns how many were new.
func (d *db) add(receipts ...store.Receipt) int {
	d.t.Helper()
	n, err := d.AddReceipts(d.t.Context(), receipts)
	if err != nil {
		d.t.Fatal(err)
	}
	return n
}

func TestWhatIsSaidTwiceIsKeptOnce(t *testing.T) {
	t.Parallel()
	d := open(t)
	delivery := d.accept(row())[0].DeliveryID
	attempt := func(id uuid.UUID) func(*store.Receipt) {
		return func(r *store.Receipt) { r.MessageID, r.Attempt = "", id }
	}
	one, two := uuid.New(), uuid.New()
	for i, c := range []struct {
		receipts []store.Receipt
		want     int
	}{
		{nil, 0},
		{[]store.Receipt{receipt(delivery, notify.Sent), receipt(delivery, notify.Delivered)}, 2},
		{[]store.Receipt{receipt(delivery, notify.Sent), receipt(delivery, notify.Sent)}, 0},
		// By a report that names the message only.
		{[]store.Receipt{receipt(store.DeliveryID{}, notify.Delivered)}, 0},
		{[]store.Receipt{receipt(delivery, notify.Failed), receipt(delivery, notify.Failed)}, 1},
		{[]store.Receipt{receipt(delivery, notify.Failed, func(r *store.Receipt) { r.Code = "30005" })}, 1},
		{[]store.Receipt{receipt(delivery, notify.Sent, func(r *store.Receipt) { r.Account = "other" })}, 1},
		{[]store.Receipt{receipt(delivery, notify.Sent, attempt(one)), receipt(delivery, notify.Sent, attempt(two))}, 2},
		{[]store.Receipt{receipt(delivery, notify.Sent, attempt(one))}, 0},
	} {
		if got := d.add(c.receipts...); got != c.want {
			t.Errorf("case %d: %d are new, want %d", i, got, c.want)
		}
	}
}

// Neither a caller's open transaction nor a worker's may hold a provider up.
func TestAReceiptWaitsForNobodyWhoMovesItsDelivery(t *testing.T) {
	t.Parallel()
	d := open(t)
	delivery := d.accept(row())[0].DeliveryID
	tx, err := d.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context()) //nolint:errcheck // the test's end
	for _, sql := range []string{
		"select from dispatcher.notifications where id = $1 for no key update",
		"update dispatcher.deliveries set turn = turn + 1 where notification_id = $1",
	} {
		if _, err := tx.Exec(t.Context(), sql, delivery.Notification); err != nil {
			t.Fatal(err)
		}
	}
	begun := time.Now()
	if got := d.add(receipt(delivery, notify.Delivered)); got != 1 || time.Since(begun) > 3*time.Second {
		t.Errorf("%d receipts are kept after %v", got, time.Since(begun))
	}
}

func TestAReceiptOfWhatIsGoneIsKeptAsUnknown(t *testing.T) {
	t.Parallel()
	d := open(t)
	gone := store.DeliveryID{Notification: uuid.Must(uuid.NewV7())}
	if got := d.add(receipt(gone, notify.Failed)); got != 1 {
		t.Errorf("%d are kept", got)
	}
	if got := d.count("select count(*) from dispatcher.receipts where notification_id is null and applied_at is null"); got != 1 {
		t.Errorf("%d are of an unknown message", got)
	}
}

func TestReceiptsGoWithTheirNotification(t *testing.T) {
	t.Parallel()
	d := open(t)
	delivery := d.accept(row())[0].DeliveryID
	d.add(receipt(delivery, notify.Delivered))
	d.exec("delete from dispatcher.notifications where id = $1", delivery.Notification)
	if got := d.count("select count(*) from dispatcher.receipts"); got != 0 {
		t.Errorf("%d receipts are left", got)
	}
}
