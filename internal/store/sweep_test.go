package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// sweep walks all slices of a size and sums up.
func (d *db) sweep(size int) store.Swept {
	d.t.Helper()
	var all store.Swept
	for after := uuid.Nil; ; {
		s, err := d.Sweep(d.t.Context(), after, size, now())
		if err != nil {
			d.t.Fatal(err)
		}
		all.Requeued, all.Rewaited = all.Requeued+s.Requeued, all.Rewaited+s.Rewaited
		all.Orphans = append(all.Orphans, s.Orphans...)
		if after = s.Next; after == uuid.Nil {
			return all
		}
	}
}

// waitingFor brings a claimed delivery into a status in which it waits.
func (d *db) waitingFor(status notify.Status, reason notify.WaitReason) store.Delivery {
	d.t.Helper()
	c := d.claim(d.accept(row())[0])
	r := outcome(c, notify.Accepted, store.After{Status: status, Attempts: 1})
	r.Wait = waitOf(c.Delivery, reason, now().Add(time.Hour))
	d.record(r)
	return d.delivery(c.DeliveryID)
}

func TestTheSweepTouchesNothingThatIsFine(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.link(d.node)
	d.accept(row(), row(waiting(notify.WaitScheduled, "", now().Add(time.Hour))), row(devices(3)))
	d.claim(d.accept(row())[0])
	d.waitingFor(notify.Sent, notify.WaitReceipt)
	d.waitingFor(notify.Delivered, notify.WaitReceipt)
	d.waitingFor(notify.Uncertain, notify.WaitReconcile)
	d.record(outcome(d.claim(d.accept(row())[0]), notify.Accepted, sent))
	fresh := d.accept(row())[0] // by a node that is not registered yet
	if _, _, err := d.Claim(t.Context(), uuid.New(), []store.Claim{claimOf(fresh)}, true); err != nil {
		t.Fatal(err)
	}
	for _, state := range []string{"running", "retryable", "scheduled"} {
		d.exec("update dispatcher.river_job set state = $2::dispatcher.river_job_state where id = $1", d.accept(row())[0].JobID, state)
	}
	before := d.census()
	if got := d.sweep(2); got.Requeued+got.Rewaited+len(got.Orphans) != 0 {
		t.Errorf("swept %+v", got)
	}
	if got := d.census(); got != before {
		t.Errorf("after the sweep %s\nbefore %s", got, before)
	}
}

func TestTheSweepQueuesAgainWhatLostItsJob(t *testing.T) {
	t.Parallel()
	d := open(t)
	var rows []store.Acceptance
	for range 30 {
		rows = append(rows, row())
	}
	rows = append(rows, row(devices(3)))
	deliveries := d.accept(rows...)
	scheduled := d.accept(row(waiting(notify.WaitScheduled, "", now().Add(time.Hour))))[0]
	d.exec("delete from dispatcher.river_job where queue = 'push'")
	d.exec("update dispatcher.river_job set state = 'discarded', finalized_at = now()")
	d.exec("delete from dispatcher.waits")
	if got := d.sweep(10); got.Requeued != len(deliveries)+1 {
		t.Errorf("swept %+v, want %d requeued", got, len(deliveries)+1)
	}
	if got := d.sweep(10); got.Requeued != 0 {
		t.Errorf("swept again: %+v", got)
	}
	for _, delivery := range append(deliveries, scheduled) {
		got := d.delivery(delivery.DeliveryID)
		if got.Status != notify.Queued || got.Turn != delivery.Turn || got.JobID == delivery.JobID {
			t.Fatalf("delivery %+v", got)
		}
		if items := one[int](d, "select jsonb_array_length(args -> 'i') from dispatcher.river_job where id = $1 and state = 'available'", got.JobID); items != 1 {
			t.Errorf("its job has %d deliveries", items)
		}
		d.claim(got)
	}
}

func TestTheSweepLetsWaitAgainWhatMayHaveArrived(t *testing.T) {
	t.Parallel()
	d := open(t)
	for _, c := range []struct {
		status notify.Status
		reason notify.WaitReason
	}{
		{notify.Sent, notify.WaitReceipt},
		{notify.Delivered, notify.WaitReceipt},
		{notify.Read, notify.WaitReceipt},
		{notify.Uncertain, notify.WaitReconcile},
	} {
		delivery := d.waitingFor(c.status, c.reason)
		want := d.get(delivery.Notification).Waits
		d.exec("delete from dispatcher.waits where notification_id = $1", delivery.Notification)
		jobs := d.count(countJobs)
		if got := d.sweep(100); got.Rewaited != 1 || got.Requeued != 0 {
			t.Errorf("%s: swept %+v", c.status, got)
		}
		got := d.get(delivery.Notification)
		if diff := cmp.Diff(delivery, got.Deliveries[0]); diff != "" {
			t.Errorf("%s: the delivery was changed:\n%s", c.status, diff)
		}
		want[0].Due, want[0].Until, want[0].Since = delivery.EndsAt, delivery.EndsAt, got.Waits[0].Since
		if diff := cmp.Diff(want, got.Waits); diff != "" {
			t.Errorf("%s: waits (-want +got):\n%s", c.status, diff)
		}
		if n := d.count(countJobs); n != jobs {
			t.Errorf("%s: it would be sent again", c.status)
		}
	}
	stale := d.waitingFor(notify.Sent, notify.WaitReceipt)
	d.exec("update dispatcher.waits set turn = turn - 1 where notification_id = $1", stale.Notification)
	if got := d.sweep(100); got.Rewaited != 1 {
		t.Errorf("a wait of another turn: swept %+v", got)
	}
}

func TestTheSweepFindsClaimsThatNobodyWillRecord(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name       string
		registered bool
		running    bool
		claimed    string
		want       int
	}{
		{"of a node that is gone", false, true, "6 seconds", 1},
		{"of a node that is gone, a moment ago", false, false, "4 seconds", 0},
		{"of a living node and its running job", true, true, "1 hour", 0},
		{"of a living node whose job is over", true, false, "11 minutes", 1},
		{"of a living node whose job was deleted in mid-call", true, false, "9 minutes", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			if c.registered {
				d.link(d.node)
			}
			delivery := d.accept(row())[0]
			if d.run(d.node, delivery); !c.running {
				d.exec("delete from dispatcher.river_job")
			}
			d.claim(delivery)
			d.exec("update dispatcher.deliveries set claimed_at = clock_timestamp() - $1::text::interval", c.claimed)
			got := d.sweep(10)
			if len(got.Orphans) != c.want || got.Requeued != 0 {
				t.Fatalf("swept %+v", got)
			}
			if c.want == 1 {
				if diff := cmp.Diff(d.delivery(delivery.DeliveryID), got.Orphans[0]); diff != "" {
					t.Errorf("orphan (-stored +swept):\n%s", diff)
				}
			}
		})
	}
}

// One slice finds at most five hundred; the rest must not be passed over.
func TestTheSweepGoesOnWhereASliceWasTooFull(t *testing.T) {
	t.Parallel()
	d := open(t)
	rows := make([]store.Acceptance, 700)
	for i := range rows {
		rows[i] = row()
	}
	d.accept(rows...)
	d.exec("delete from dispatcher.river_job")
	if got := d.sweep(20_000); got.Requeued != len(rows) {
		t.Errorf("swept %+v, want %d requeued", got, len(rows))
	}
}
