package store_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// page reads a page and fails the test if that is refused.
func (d *db) page(f store.EventFilter) store.EventPage {
	d.t.Helper()
	page, err := d.Events(d.t.Context(), f)
	if err != nil {
		d.t.Fatal(err)
	}
	return page
}

func types(events []store.LoggedEvent) []string {
	out := []string{}
	for _, e := range events {
		out = append(out, e.Type)
	}
	return out
}

func TestEventsComeInPages(t *testing.T) {
	t.Parallel()
	d := open(t)
	var mine []uuid.UUID
	for range 3 {
		mine = append(mine, d.accept(row())[0].Notification)
		d.accept(row(project("other")), row(project("other")))
	}
	f := store.EventFilter{Project: "default", Limit: 2}
	first := d.page(f)
	f.After = first.Next
	second := d.page(f)
	f.After = second.Next
	third := d.page(f)
	if len(first.Events) != 2 || !first.More || len(second.Events) != 1 || second.More || len(third.Events) != 0 || third.More {
		t.Errorf("pages of %d, %d, %d events, more %v, %v, %v", len(first.Events), len(second.Events), len(third.Events), first.More, second.More, third.More)
	}
	got := []uuid.UUID{}
	for _, e := range append(first.Events, second.Events...) {
		got = append(got, e.ID.Notification)
	}
	if diff := cmp.Diff(mine, got); diff != "" {
		t.Error(diff)
	}
	newest, err := d.NewestEvent(t.Context())
	if err != nil || second.Next != newest || third.Next != newest {
		t.Errorf("the last pages reach to %d and %d, want %d, past the events of others; %v", second.Next, third.Next, newest, err)
	}
}

func TestEventsTellWhatTheyAreAbout(t *testing.T) {
	t.Parallel()
	d := open(t)
	delivery := d.accept(row())[0]
	r := outcome(d.claim(delivery), notify.Accepted, sent)
	at := now()
	want := store.Event{At: at, ID: delivery.DeliveryID, Project: "default", Type: "sent", Because: "x", Final: true}
	r.Events = []store.Event{want}
	d.record(r)
	for _, f := range []store.EventFilter{
		{Project: "default", Final: true, Limit: 9},
		{Project: "default", Types: []string{"failed", "sent"}, Limit: 9},
		{Project: "default", Notification: delivery.Notification, Types: []string{"sent"}, Limit: 9},
		{Project: "default", Notification: delivery.Notification, Final: true, Limit: 9},
	} {
		page := d.page(f)
		if len(page.Events) != 1 {
			t.Fatalf("%d events of %+v, want 1", len(page.Events), f)
		}
		e := page.Events[0]
		if diff := cmp.Diff(want, e.Event); diff != "" || e.Channel != notify.SMS || !f.Matches(&e) {
			t.Errorf("channel %q\n%s", e.Channel, diff)
		}
	}
	all := d.page(store.EventFilter{Project: "default", Notification: delivery.Notification, Limit: 9}).Events
	if diff := cmp.Diff([]string{"accepted", "sent"}, types(all)); diff != "" {
		t.Error(diff)
	}
	if !all[0].Whole || all[0].Channel != "" || all[1].Whole {
		t.Errorf("whole: %v, %v, channel %q", all[0].Whole, all[1].Whole, all[0].Channel)
	}
	tail, err := d.TailEvents(t.Context(), all[0].Seq, 9)
	if diff := cmp.Diff(all[1:], tail); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestNobodySeesTheEventsOfAnotherProject(t *testing.T) {
	t.Parallel()
	d := open(t)
	id := d.accept(row(project("other")))[0].Notification
	for _, f := range []store.EventFilter{{Project: "default", Limit: 9}, {Project: "default", Notification: id, Limit: 9}} {
		if page := d.page(f); len(page.Events) != 0 || page.More {
			t.Errorf("%+v finds %d events", f, len(page.Events))
		}
	}
	for name, want := range map[string]bool{"other": true, "default": false} {
		if has, err := d.Has(t.Context(), name, id); err != nil || has != want {
			t.Errorf("%s has it: %v, %v", name, has, err)
		}
	}
}

// Retention deletes whole notifications, not the oldest events: one that has not
// ended keeps its events while younger ones go.
func TestPositionsBeforeDeletedEventsAreGone(t *testing.T) {
	t.Parallel()
	d := open(t)
	open := d.accept(row(aged(60 * day)))[0].Notification
	beforeAll := d.page(store.EventFilter{Project: "default", Limit: 1}).Next
	d.ended(40*day, 40*day)
	lastGone := d.page(store.EventFilter{Project: "default", Limit: 9}).Next
	d.accept(row(project("other")))
	if _, err := d.Expire(t.Context(), now().Add(-30*day), now(), 100); err != nil {
		t.Fatal(err)
	}
	for _, after := range []int64{0, beforeAll} {
		if _, err := d.Events(t.Context(), store.EventFilter{Project: "default", After: after, Limit: 9}); !errors.Is(err, store.ErrEventsGone) {
			t.Errorf("after %d: %v, want ErrEventsGone", after, err)
		}
	}
	oldest, newest, err := d.EventBounds(t.Context(), "default")
	if err != nil || oldest != lastGone || newest != lastGone+1 {
		t.Errorf("bounds %d to %d, want %d to %d; %v", oldest, newest, lastGone, lastGone+1, err)
	}
	if page := d.page(store.EventFilter{Project: "default", After: lastGone, Limit: 9}); len(page.Events) != 0 || page.Next != newest {
		t.Errorf("after what is gone: %d events, next %d", len(page.Events), page.Next)
	}
	if page := d.page(store.EventFilter{Project: "default", Notification: open, Limit: 9}); len(page.Events) != 1 {
		t.Errorf("a notification that is kept has %d events, want 1", len(page.Events))
	}
	if page := d.page(store.EventFilter{Project: "other", Limit: 9}); len(page.Events) != 1 {
		t.Errorf("another project, of which nothing was deleted, has %d events, want 1", len(page.Events))
	}
}

func TestThePositionOfTheLastEventOutlivesIt(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.ended(40*day, 40*day)
	last := d.page(store.EventFilter{Project: "default", Limit: 9}).Next
	if _, err := d.Expire(t.Context(), now().Add(-30*day), now(), 100); err != nil {
		t.Fatal(err)
	}
	if n := d.count("select count(*) from dispatcher.events"); n != 0 {
		t.Fatalf("%d events are left", n)
	}
	if page := d.page(store.EventFilter{Project: "default", After: last, Limit: 9}); page.Next != last {
		t.Errorf("next is %d, want %d", page.Next, last)
	}
	if _, err := d.Events(t.Context(), store.EventFilter{Project: "default", After: last + 1, Limit: 9}); !errors.Is(err, store.ErrEventsAhead) {
		t.Errorf("a position ahead: %v, want ErrEventsAhead", err)
	}
	// And it never falls.
	if _, err := d.Pool().Exec(t.Context(), "update dispatcher.event_horizons set id = 1000"); err != nil {
		t.Fatal(err)
	}
	d.ended(40*day, 40*day)
	if _, err := d.Expire(t.Context(), now().Add(-30*day), now(), 100); err != nil {
		t.Fatal(err)
	}
	if oldest, _, err := d.EventBounds(t.Context(), "default"); err != nil || oldest != 1000 {
		t.Errorf("oldest %d, %v", oldest, err)
	}
}

// A page of a project walks past the events of others for a while, not without
// an end, and goes on from there.
func TestAPagePassesTheEventsOfOthers(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.exec(`insert into dispatcher.events (at, notification_id, project, type)
		select now(), gen_random_uuid(), case when n = 7500 then 'default' else 'other' end, 'accepted' from generate_series(1, 7500) n`)
	f := store.EventFilter{Project: "default", Limit: 9}
	first := d.page(f)
	if len(first.Events) != 0 || !first.More || first.Next == 0 {
		t.Errorf("%d events, more %v, next %d", len(first.Events), first.More, first.Next)
	}
	f.After = first.Next
	if second := d.page(f); len(second.Events) != 1 || second.More {
		t.Errorf("%d events, more %v", len(second.Events), second.More)
	}
}
