package store_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// barred lists who may not write to the address of row, with the reason.
func (d *db) barred() map[string]string {
	d.t.Helper()
	got := one[map[string]string](d, `select coalesce(jsonb_object_agg(project || ' ' || channel, reason || ' ' || source || coalesce(' until ' || until::date, '')), '{}')
		from dispatcher.suppressions`)
	return got
}

func (d *db) consents(list ...store.Consent) {
	d.t.Helper()
	for i := range list {
		list[i].At = now()
		if list[i].Account == "" {
			list[i].Account = "main"
		}
		if list[i].Reason == "" {
			list[i].Reason = store.ReasonStop
		}
	}
	if err := d.AddConsents(d.t.Context(), list); err != nil {
		d.t.Fatal(err)
	}
}

func TestAStopIsHeardByAllWhoWroteToTheAddress(t *testing.T) {
	t.Parallel()
	d := open(t)
	phone := notify.Target{Phone: "+15005550006"}
	address := phone.Hash(notify.SMS)
	first := d.accept(row(project("a")), row(project("a")), row(project("b")))[0]
	stop := store.Consent{Channel: notify.SMS, Address: address, Stop: true}

	d.consents(store.Consent{Channel: notify.WhatsApp, Address: phone.Hash(notify.WhatsApp), Stop: true})
	if diff := cmp.Diff(map[string]string{}, d.barred()); diff != "" {
		t.Errorf("a stop on a channel that nobody used (-want +got):\n%s", diff)
	}
	d.consents(stop, stop)
	d.consents(stop)
	want := map[string]string{"a sms": "stop main", "b sms": "stop main"}
	if diff := cmp.Diff(want, d.barred()); diff != "" {
		t.Errorf("after a stop (-want +got):\n%s", diff)
	}
	if got := d.tryClaim(claimOf(first)); len(got) != 0 {
		t.Error("who stopped is written to")
	}
	d.consents(store.Consent{Channel: notify.SMS, Address: address, Account: "other"}, store.Consent{Channel: notify.WhatsApp, Address: address})
	if diff := cmp.Diff(want, d.barred()); diff != "" {
		t.Errorf("after starts that are not meant (-want +got):\n%s", diff)
	}
	d.consents(store.Consent{Channel: notify.SMS, Address: address})
	if diff := cmp.Diff(map[string]string{}, d.barred()); diff != "" {
		t.Errorf("after the start (-want +got):\n%s", diff)
	}
	if got := d.tryClaim(claimOf(first)); len(got) != 1 {
		t.Error("who started again is not written to")
	}
}

func TestAnAccountsStopConcernsItsProjectsOnly(t *testing.T) {
	t.Parallel()
	d := open(t)
	address := notify.Target{Phone: "+15005550006"}.Hash(notify.SMS)
	d.accept(row(project("a")), row(project("b")))
	// c has not written yet, and is not to begin with it.
	d.consents(store.Consent{Channel: notify.SMS, Address: address, Stop: true, Projects: []string{"b", "c"}})
	if diff := cmp.Diff(map[string]string{"b sms": "stop main", "c sms": "stop main"}, d.barred()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	d.consents(store.Consent{Channel: notify.SMS, Address: address, Projects: []string{"b"}})
	if diff := cmp.Diff(map[string]string{"c sms": "stop main"}, d.barred()); diff != "" {
		t.Errorf("after a start for b (-want +got):\n%s", diff)
	}
}

func TestAComplaintWithoutAnAddressConcernsItsDelivery(t *testing.T) {
	t.Parallel()
	d := open(t)
	first := d.accept(row(project("a")), row(project("b")))[0]
	complaint := store.Consent{Channel: notify.SMS, Delivery: first.DeliveryID, Stop: true, Reason: "complaint"}
	foreign := complaint
	foreign.Projects = []string{"b"}
	elsewhere := complaint
	elsewhere.Channel = notify.Email
	d.consents(foreign, elsewhere, store.Consent{Channel: notify.SMS, Stop: true})
	if diff := cmp.Diff(map[string]string{}, d.barred()); diff != "" {
		t.Errorf("complaints that cannot be of this delivery (-want +got):\n%s", diff)
	}
	d.consents(complaint)
	if diff := cmp.Diff(map[string]string{"a sms": "complaint main"}, d.barred()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	d.consents(store.Consent{Channel: notify.SMS, Address: first.Address})
	if diff := cmp.Diff(map[string]string{"a sms": "complaint main"}, d.barred()); diff != "" {
		t.Errorf("a start lifts what is no stop (-want +got):\n%s", diff)
	}
}

func TestAStopIsForGoodAndKeepsWhatIsWorse(t *testing.T) {
	t.Parallel()
	d := open(t)
	first := d.accept(row(project("a")), row(project("b")))[0]
	d.exec(`insert into dispatcher.suppressions values ('a', 'sms', $1, 'recipient_unavailable', 'main', now(), now() + interval '1 hour'),
		('b', 'sms', $1, 'recipient_rejected', 'main', now(), null)`, first.Address[:])
	d.consents(store.Consent{Channel: notify.SMS, Address: first.Address, Stop: true})
	if diff := cmp.Diff(map[string]string{"a sms": "stop main", "b sms": "recipient_rejected main"}, d.barred()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	d.consents(store.Consent{Channel: notify.SMS, Address: first.Address})
	if diff := cmp.Diff(map[string]string{"b sms": "recipient_rejected main"}, d.barred()); diff != "" {
		t.Errorf("after a start (-want +got):\n%s", diff)
	}
}

func TestConsentsAreKeptAllOrNone(t *testing.T) {
	t.Parallel()
	d := open(t)
	first := d.accept(row())[0]
	stop := store.Consent{Account: "main", Channel: notify.SMS, Address: first.Address, Stop: true, Reason: "stop", At: now()}
	bad := stop
	bad.Reason = "\x00"
	if err := d.AddConsents(t.Context(), []store.Consent{stop, bad}); err == nil {
		t.Fatal("a reason that the database cannot hold was kept")
	}
	if got := d.barred(); len(got) != 0 {
		t.Errorf("half of it was kept: %v", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.AddConsents(ended, []store.Consent{stop}); err == nil {
		t.Error("nothing was written, and no error is told")
	}
}
