package store_test

import (
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestACancelThatFailsKeepsNoLaterOneWaiting(t *testing.T) {
	t.Parallel()
	d := open(t)
	deliveries := d.accept(row(), row(), row())
	for _, delivery := range deliveries {
		d.exec("insert into dispatcher.cancel_requests (notification_id, project, requested_at) values ($1, 'default', now())", delivery.Notification)
	}
	leave := d.stranger("select from dispatcher.notifications where id = " + quoted(deliveries[0]) + " for update")
	soon(t, func() {
		if n, err := d.ApplyCancelRequests(t.Context(), 10, now()); n != 2 || err == nil {
			t.Errorf("applied %d, %v", n, err)
		}
	})
	leave()
	if n, err := d.ApplyCancelRequests(t.Context(), 10, now()); n != 1 || err != nil {
		t.Errorf("applied %d when the lock is gone, %v", n, err)
	}
	for _, delivery := range deliveries {
		if got := d.delivery(delivery.DeliveryID).Status; got != notify.Canceled {
			t.Errorf("one is %s", got)
		}
	}
}
