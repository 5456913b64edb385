package store_test

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// aged makes a notification's id and times as old as given.
func aged(age time.Duration) func(*store.Acceptance) {
	return func(a *store.Acceptance) {
		n := &a.Notification
		n.CreatedAt, n.SendAt = n.CreatedAt.Add(-age), n.SendAt.Add(-age)
		ms := n.CreatedAt.UnixMilli()
		for i := range 6 {
			n.ID[i] = byte(ms >> (40 - 8*i))
		}
	}
}

// ended accepts a notification of an age whose only delivery ended then.
func (d *db) ended(age, finished time.Duration) uuid.UUID {
	d.t.Helper()
	delivery := d.accept(row(aged(age)))[0]
	d.record(outcome(d.claim(delivery), notify.Accepted, store.After{Status: notify.Sent, Final: true, FinishedAt: now().Add(-finished)}))
	return delivery.Notification
}

const day = 24 * time.Hour

func TestExpireDeletesWhatEndedLongAgoWithAllThatBelongsToIt(t *testing.T) {
	t.Parallel()
	d := open(t)
	gone := []uuid.UUID{d.ended(40*day, 40*day), d.ended(31*day, 31*day)}
	if _, err := d.Cancel(t.Context(), "default", gone[0], now()); err != nil {
		t.Fatal(err)
	}
	d.exec("insert into dispatcher.marks (notification_id, acknowledged_at) values ($1, now())", gone[1])
	kept := []uuid.UUID{
		d.ended(40*day, 29*day),                       // ended lately
		d.ended(time.Hour, time.Hour),                 // young
		d.accept(row(aged(60 * day)))[0].Notification, // not ended
	}
	half := d.accept(row(aged(60*day), devices(2))) // one of two has ended
	d.record(outcome(d.claim(half[0]), notify.Accepted, store.After{Status: notify.Sent, Final: true, FinishedAt: now().Add(-59 * day)}))
	kept = append(kept, half[0].Notification)
	waits := d.accept(row(aged(60*day), waiting(notify.WaitReceipt, "", now())))
	kept = append(kept, waits[0].Notification)
	if deleted, err := d.Expire(t.Context(), now().Add(-30*day), now(), 100); err != nil || deleted != 2 {
		t.Errorf("deleted %d, %v", deleted, err)
	}
	for _, table := range []string{"notifications", "deliveries", "attempts", "events", "marks", "waits"} {
		column := "notification_id"
		if table == "notifications" {
			column = "id"
		}
		if n := d.count("select count(*) from dispatcher."+table+" where "+column+" = any($1)", gone); n != 0 {
			t.Errorf("%d rows of %s are left", n, table)
		}
	}
	left := one[[]uuid.UUID](d, "select array_agg(notification_id order by id) from dispatcher.events where type = 'accepted'")
	if !slices.Equal(left, kept) {
		t.Errorf("events are left of %v, want %v", left, kept)
	}
	if n := d.count("select count(*) from dispatcher.notifications where id = any($1)", kept); n != int64(len(kept)) {
		t.Errorf("%d of %d notifications were kept", n, len(kept))
	}
}

func TestExpireWorksInBatchesUntilAllIsGone(t *testing.T) {
	t.Parallel()
	for _, batch := range []int{1, 2, 3, 5, 100} {
		t.Run(fmt.Sprintf("of %d", batch), func(t *testing.T) {
			t.Parallel()
			d := open(t)
			for i := range 5 {
				d.accept(row(aged(60 * day))) // which are passed over, between the others
				d.ended(40*day, 40*day)
				d.accept(row(aged(time.Duration(41+i)*day), key(strconv.Itoa(i), 1)))
			}
			d.exec("update dispatcher.idempotency_keys set expires_at = now() - interval '1 day'")
			for _, want := range []int64{10, 0} {
				if deleted, err := d.Expire(t.Context(), now().Add(-30*day), now(), batch); err != nil || deleted != want {
					t.Errorf("deleted %d, %v; want %d", deleted, err, want)
				}
			}
			if left := d.count("select count(*) from dispatcher.notifications"); left != 10 {
				t.Errorf("%d are left of ten that have not ended", left)
			}
		})
	}
}

func TestExpireDeletesKeysPastTheirTime(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.accept(row(key("a", 1)), row(key("b", 1)), row(key("c", 1)))
	if deleted, err := d.Expire(t.Context(), now().Add(-day), now(), 100); err != nil || deleted != 0 {
		t.Errorf("deleted %d before their time, %v", deleted, err)
	}
	d.exec("update dispatcher.idempotency_keys set expires_at = now() where key = 'b'")
	if deleted, err := d.Expire(t.Context(), now().Add(-day), now().Add(time.Second), 100); err != nil || deleted != 1 {
		t.Errorf("deleted %d, %v", deleted, err)
	}
	if keys := one[string](d, "select string_agg(key, ',' order by key) from dispatcher.idempotency_keys"); keys != "a,c" {
		t.Errorf("keys left: %s", keys)
	}
}

func TestExpirePassesOverWhatIsBeingWorkedOn(t *testing.T) {
	t.Parallel()
	d := open(t)
	held, free := d.ended(40*day, 40*day), d.ended(40*day, 40*day)
	tx, err := d.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context()) //nolint:errcheck // only ends the lock
	if _, err := tx.Exec(t.Context(), "select from dispatcher.notifications where id = $1 for no key update", held); err != nil {
		t.Fatal(err)
	}
	if deleted, err := d.Expire(t.Context(), now().Add(-30*day), now(), 100); err != nil || deleted != 1 {
		t.Errorf("deleted %d, %v", deleted, err)
	}
	if left := one[[]uuid.UUID](d, "select array_agg(id) from dispatcher.notifications"); !slices.Equal(left, []uuid.UUID{held}) {
		t.Errorf("left %v, want %v and not %v", left, held, free)
	}
}
