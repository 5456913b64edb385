package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestCancelAnswersDefinitively(t *testing.T) {
	t.Parallel()
	d := open(t)
	stepped := func(status notify.Status, reason notify.WaitReason) func() store.Delivery {
		return func() store.Delivery { return d.waitingFor(status, reason) }
	}
	for _, c := range []struct {
		name   string
		in     func() store.Delivery
		want   store.CancelResult
		status notify.Status // after it
		final  bool
	}{
		{"queued", func() store.Delivery { return d.accept(row())[0] }, store.Canceled, notify.Canceled, true},
		{"scheduled", func() store.Delivery {
			return d.accept(row(waiting(notify.WaitScheduled, "", now().Add(time.Hour))))[0]
		}, store.Canceled, notify.Canceled, true},
		{"in a call", func() store.Delivery { return d.claim(d.accept(row())[0]).Delivery }, store.TooLate, notify.Sending, false},
		{"between two calls", stepped(notify.Waiting, notify.WaitBackoff), store.TooLate, notify.Canceled, true},
		{"of unknown outcome", stepped(notify.Uncertain, notify.WaitReconcile), store.TooLate, notify.Canceled, true},
		{"sent", stepped(notify.Sent, notify.WaitReceipt), store.TooLate, notify.Sent, true},
		{"delivered", stepped(notify.Delivered, notify.WaitReceipt), store.TooLate, notify.Delivered, true},
		{"ended", func() store.Delivery {
			c := d.claim(d.accept(row())[0])
			d.record(outcome(c, notify.Accepted, sent))
			return d.delivery(c.DeliveryID)
		}, store.AlreadyFinal, notify.Sent, true},
	} {
		before := c.in()
		at := now()
		got, err := d.Cancel(t.Context(), "default", before.Notification, at)
		if err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", c.name, got, err, c.want)
		}
		want := before
		if c.want != store.AlreadyFinal {
			want.Turn, want.Stop, want.Status, want.Final = before.Turn+1, "canceled", c.status, c.final
			if c.final {
				want.JobID, want.Because, want.FinishedAt = 0, "canceled", at
			}
		}
		record := d.get(before.Notification)
		if diff := cmp.Diff(want, record.Deliveries[0]); diff != "" {
			t.Errorf("%s: delivery (-want +got):\n%s", c.name, diff)
		}
		if len(record.Waits) != 0 {
			t.Errorf("%s: it still waits: %+v", c.name, record.Waits)
		}
		if marked := record.CanceledAt.Equal(at); marked != (c.want != store.AlreadyFinal) {
			t.Errorf("%s: canceled at %v", c.name, record.CanceledAt)
		}
		events := d.count(`select count(*) from dispatcher.events where notification_id = $1 and type = 'canceled' and because = $2 and final = $3`,
			before.Notification, string(c.want), c.final)
		if want := c.want != store.AlreadyFinal; (events == 1) != want {
			t.Errorf("%s: %d events", c.name, events)
		}
		if again, err := d.Cancel(t.Context(), "default", before.Notification, now()); err != nil || again != store.AlreadyFinal {
			t.Errorf("%s, again: %q, %v", c.name, again, err)
		}
		if got := d.tryClaim(claimOf(record.Deliveries[0])); len(got) != 0 {
			t.Errorf("%s: it can be claimed", c.name)
		}
	}
}

func TestCancelKnowsOnlyItsOwnProject(t *testing.T) {
	t.Parallel()
	d := open(t)
	delivery := d.accept(row())[0]
	for _, c := range []struct {
		project string
		id      store.Delivery
	}{{"other", delivery}, {"default", row().Starts[0].Delivery}} {
		if got, err := d.Cancel(t.Context(), c.project, c.id.Notification, now()); !errors.Is(err, store.ErrNotFound) || got != "" {
			t.Errorf("%s: %q, %v", c.project, got, err)
		}
	}
	if got := d.delivery(delivery.DeliveryID); got.Status != notify.Queued {
		t.Errorf("delivery is %s", got.Status)
	}
}

func TestCancelStopsEveryDelivery(t *testing.T) {
	t.Parallel()
	d := open(t)
	deliveries := d.accept(row(devices(3)))
	d.record(outcome(d.claim(deliveries[0]), notify.RecipientRejected, store.After{Status: notify.Failed, Final: true}))
	d.claim(deliveries[1])
	got, err := d.Cancel(t.Context(), "default", deliveries[0].Notification, now())
	if err != nil || got != store.TooLate {
		t.Errorf("%q, %v", got, err)
	}
	record := d.get(deliveries[0].Notification)
	var states []string
	for _, delivery := range record.Deliveries {
		states = append(states, string(delivery.Status)+"/"+delivery.Stop)
	}
	if diff := cmp.Diff([]string{"failed/", "sending/canceled", "canceled/canceled"}, states); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
}

func TestAnEndIsCorrectedByEvidenceOfHigherRankOnly(t *testing.T) {
	t.Parallel()
	d := open(t)
	better := map[notify.Status][]notify.Status{
		notify.Sent:      {notify.Failed, notify.Delivered, notify.Read},
		notify.Failed:    {notify.Delivered, notify.Read},
		notify.Blocked:   {notify.Delivered, notify.Read},
		notify.Lapsed:    {notify.Delivered, notify.Read},
		notify.Canceled:  {notify.Sent, notify.Delivered, notify.Read},
		notify.Delivered: {notify.Read},
		notify.Read:      nil,
	}
	for from, want := range better {
		var got []notify.Status
		for _, to := range []notify.Status{notify.Sent, notify.Failed, notify.Delivered, notify.Read, notify.Waiting} {
			delivery := d.accept(row())[0]
			d.record(after0(delivery, store.After{Status: from, Final: true}))
			before := d.delivery(delivery.DeliveryID)
			if _, err := d.Correct(t.Context(), store.Correction{DeliveryID: delivery.DeliveryID, Status: to}, now()); err != nil {
				t.Fatal(err)
			}
			after := d.delivery(delivery.DeliveryID)
			events := d.count("select count(*) from dispatcher.events where notification_id = $1 and type = 'corrected' and because = $2",
				delivery.Notification, string(to))
			if corrected := after.Status == to && from != to; corrected {
				got = append(got, to)
				before.Status = to
				if events != 1 {
					t.Errorf("%s to %s: %d events", from, to, events)
				}
			} else if events != 0 {
				t.Errorf("%s to %s: an event without a correction", from, to)
			}
			if diff := cmp.Diff(before, after); diff != "" {
				t.Errorf("%s to %s:\n%s", from, to, diff)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s is corrected to (-want +got):\n%s", from, diff)
		}
	}
	open := d.accept(row())[0]
	if _, err := d.Correct(t.Context(), store.Correction{DeliveryID: open.DeliveryID, Status: notify.Read}, now()); err != nil || d.delivery(open.DeliveryID).Status != notify.Queued {
		t.Errorf("one that has not ended was corrected, %v", err)
	}
	if _, err := d.Correct(t.Context(), store.Correction{DeliveryID: row().Starts[0].DeliveryID, Status: notify.Read}, now()); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}
