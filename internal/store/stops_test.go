package store_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func (d *db) lift(project string, a store.Address) {
	d.t.Helper()
	if err := d.Lift(d.t.Context(), project, a, "ana", "why", now()); err != nil {
		d.t.Fatal(err)
	}
}

// word tells what is said apart from what was said before.
func word(n byte) [16]byte { return [16]byte{n} }

func (d *db) wantBarred(when string, want map[string]string) {
	d.t.Helper()
	if diff := cmp.Diff(want, d.barred()); diff != "" {
		d.t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

func TestAStopOutlivesTheLiftingOfAnotherEntry(t *testing.T) {
	t.Parallel()
	d := open(t)
	first := d.accept(row(project("a")), row(project("b")))[0]
	a := store.Address{Channel: first.Channel, Hash: first.Address}
	d.suppress(entry(a, "recipient_rejected", now(), time.Time{}))
	d.consents(store.Consent{Channel: notify.SMS, Address: a.Hash, Stop: true, Account: "first", SaidAt: now().Add(-time.Minute)},
		store.Consent{Channel: notify.SMS, Address: a.Hash, Stop: true, Account: "second"})
	d.wantBarred("after the stops", map[string]string{"a sms": "recipient_rejected main", "b sms": "stop first"})
	d.lift("a", a)
	d.wantBarred("without the other entry", map[string]string{"a sms": "stop second", "b sms": "stop first"})
	if got := d.tryClaim(claimOf(first)); len(got) != 0 {
		t.Error("who stopped is written to")
	}
	want := []string{"added sms recipient_rejected main", "lifted sms recipient_rejected main: ana, why", "added sms stop second"}
	if diff := cmp.Diff(want, d.told("a")); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
	d.consents(store.Consent{Channel: notify.SMS, Address: a.Hash, Account: "second"})
	d.wantBarred("after a start to the one", map[string]string{"a sms": "stop first", "b sms": "stop first"})
	// An operator may lift a stop itself, for their project.
	d.lift("a", a)
	d.wantBarred("after the operator overruled it", map[string]string{"b sms": "stop first"})
	d.suppress(entry(a, "manual", now(), time.Time{}))
	d.lift("a", a)
	d.wantBarred("an overruled stop is back", map[string]string{"b sms": "stop first"})
	d.consents(store.Consent{Channel: notify.SMS, Address: a.Hash, Account: "first"})
	d.wantBarred("after a start to the other", map[string]string{})
}

func TestAStartTakesBackAStopBehindAnotherEntry(t *testing.T) {
	t.Parallel()
	d := open(t)
	first := d.accept(row(project("a")))[0]
	a := store.Address{Channel: first.Channel, Hash: first.Address}
	d.suppress(entry(a, "recipient_rejected", now(), time.Time{}))
	d.consents(store.Consent{Channel: notify.SMS, Address: a.Hash, Stop: true}, store.Consent{Channel: notify.SMS, Address: a.Hash},
		store.Consent{Channel: notify.SMS, Delivery: first.DeliveryID, Stop: true, Reason: "complaint"})
	d.lift("a", a)
	d.wantBarred("a complaint is not taken back", map[string]string{"a sms": "complaint main"})
}

func TestAStartLiftsNothingThatWasAddedOverTheStop(t *testing.T) {
	t.Parallel()
	d := open(t)
	first := d.accept(row(project("a")))[0]
	a := store.Address{Channel: first.Channel, Hash: first.Address}
	d.consents(store.Consent{Channel: notify.SMS, Address: a.Hash, Stop: true, Account: "first"})
	d.suppress(entry(a, "manual", now(), now().Add(time.Hour)))
	d.wantBarred("what ends does not take the place of a stop", map[string]string{"a sms": "stop first"})
	d.suppress(entry(a, "manual", now(), time.Time{}))
	d.consents(store.Consent{Channel: notify.SMS, Address: a.Hash, Stop: true, Account: "second"})
	d.wantBarred("after an entry for good and another stop", map[string]string{"a sms": "manual main"})
	d.consents(store.Consent{Channel: notify.SMS, Address: a.Hash, Account: "first"}, store.Consent{Channel: notify.SMS, Address: a.Hash, Account: "second"})
	d.wantBarred("after the starts", map[string]string{"a sms": "manual main"})
	want := []string{"added sms stop first", "extended sms manual main"}
	if diff := cmp.Diff(want, d.told("a")); diff != "" {
		t.Errorf("history (-want +got):\n%s", diff)
	}
}

// A stop that is being kept while another entry is lifted must be seen.
func TestAStopThatComesDuringALiftIsNotLost(t *testing.T) {
	t.Parallel()
	d := open(t)
	first := d.accept(row(project("a")))[0]
	a := store.Address{Channel: first.Channel, Hash: first.Address}
	d.suppress(entry(a, "recipient_rejected", now(), time.Time{}))
	tx, err := d.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context()) //nolint:errcheck // committed below
	// What a stop does, so far: it has found an entry that is for good.
	for _, sql := range []string{
		"select from dispatcher.suppressions where address = $1 for update",
		"insert into dispatcher.stops values (now(), 'a', 'sms', $1, 'main', 'stop')",
	} {
		if _, err := tx.Exec(t.Context(), sql, a.Hash[:]); err != nil {
			t.Fatal(err)
		}
	}
	lifted := make(chan error, 1)
	go func() { lifted <- d.Lift(t.Context(), "a", a, "ana", "why", now()) }()
	for !one[bool](d, `select exists (select from pg_stat_activity
		where datname = current_database() and wait_event_type = 'Lock' and query like '%dispatcher.suppressions%')`) {
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-lifted; err != nil {
		t.Fatal(err)
	}
	d.wantBarred("after both", map[string]string{"a sms": "stop main"})
}

func TestOfStopsAndStartsTheLatestHoldsWheneverItComes(t *testing.T) {
	t.Parallel()
	d := open(t)
	address := d.accept(row(project("a")))[0].Address
	noon := now().Add(-time.Hour)
	said := func(stop bool, after time.Duration) store.Consent {
		return store.Consent{Channel: notify.SMS, Address: address, Stop: stop, Reason: map[bool]string{true: "stop", false: "start"}[stop], SaidAt: noon.Add(after)}
	}
	d.consents(said(false, 2*time.Minute))
	d.consents(said(true, time.Minute))
	d.wantBarred("a stop that is older than the start", map[string]string{})
	other := said(true, time.Minute)
	other.Account = "other"
	d.consents(other)
	d.wantBarred("a stop to another account", map[string]string{"a sms": "stop other"})
	elsewhere := said(true, time.Minute)
	elsewhere.Channel = notify.WhatsApp
	d.consents(elsewhere, said(true, 3*time.Minute))
	d.lift("a", store.Address{Channel: notify.SMS, Hash: address})
	d.wantBarred("a later stop", map[string]string{"a sms": "stop main"})
	d.consents(said(false, 2*time.Minute+30*time.Second))
	d.wantBarred("a start that is older than the stop", map[string]string{"a sms": "stop main"})
	complaint := said(true, 0)
	complaint.Reason = "complaint"
	d.consents(said(false, 4*time.Minute), complaint)
	d.wantBarred("a complaint, whenever it was made", map[string]string{"a sms": "complaint main"})
}

func TestWhatWasHeardBeforeIsNotHeardAgain(t *testing.T) {
	t.Parallel()
	d := open(t)
	address := d.accept(row(project("a")))[0].Address
	stop := store.Consent{Channel: notify.SMS, Address: address, Stop: true, Word: word(1)}
	start := store.Consent{Channel: notify.SMS, Address: address, Reason: "start", Word: word(2)}
	d.consents(stop)
	d.consents(stop, start)
	d.wantBarred("after the start", map[string]string{})
	d.consents(stop) // which its provider repeats, and tells no time of
	d.wantBarred("after an old stop once more", map[string]string{})
	stop.Word = word(3)
	d.consents(stop, start)
	d.wantBarred("after a new stop, and an old start once more", map[string]string{"a sms": "stop main"})
	d.lift("a", store.Address{Channel: notify.SMS, Hash: address})
	d.consents(stop)
	d.wantBarred("after a stop once more that an operator overruled", map[string]string{})
}

func TestWordsOfPeopleAreForgottenWithNotificationsAndStopsAreNot(t *testing.T) {
	t.Parallel()
	d := open(t)
	address := d.accept(row(project("a")))[0].Address
	d.consents(store.Consent{Channel: notify.SMS, Address: address, Stop: true})
	if _, err := d.Expire(t.Context(), now().Add(time.Minute), now(), 100); err != nil {
		t.Fatal(err)
	}
	if n := one[int](d, "select count(*) from dispatcher.consents"); n != 0 {
		t.Errorf("%d words are kept", n)
	}
	a := store.Address{Channel: notify.SMS, Hash: address}
	d.wantBarred("after retention", map[string]string{"a sms": "stop main"})
	d.suppress(entry(a, "manual", now(), time.Time{}))
	d.lift("a", a)
	d.wantBarred("after another entry was lifted", map[string]string{"a sms": "stop main"})
	if n := one[int](d, "select count(*) from dispatcher.stops"); n != 1 {
		t.Errorf("%d stops are remembered", n)
	}
}
