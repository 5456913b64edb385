package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// census sums up everything that a record writes.
func (d *db) census() string {
	d.t.Helper()
	return one[string](d, `select concat_ws(' ', (select string_agg(concat_ws(':', step, target, turn, status, attempts, because), ',' order by 1, step, target) from dispatcher.deliveries),
		'attempts', (select count(*) from dispatcher.attempts), 'waits', (select count(*) from dispatcher.waits),
		'jobs', (select count(*) from dispatcher.river_job), 'events', (select count(*) from dispatcher.events),
		'suppressions', (select count(*) from dispatcher.suppressions))`)
}

func event(d store.Delivery, kind string) store.Event {
	return store.Event{At: now(), ID: d.DeliveryID, Project: d.Project, Type: kind}
}

func TestARecordMovesTheDeliveryOnAndKeepsItsAttempt(t *testing.T) {
	t.Parallel()
	d := open(t)
	c := d.claim(d.accept(row())[0])
	r := outcome(c, notify.Accepted, store.After{Status: notify.Sent, Final: true, Because: "why", Attempts: 1, Throttles: 2, Crashes: 3, Repeats: 4})
	r.Attempt.HTTPStatus, r.Attempt.ProviderCode, r.Attempt.ProviderMessageID, r.Attempt.Detail = 201, "ok", "SM1", "queued"
	r.Attempt.Duration, r.Attempt.RetryAfter, r.Attempt.PossibleDuplicate = 1234*time.Microsecond, 1500*time.Millisecond, true
	r.Events = []store.Event{event(c.Delivery, "sent")}
	if fates := d.record(r); fates[0] != store.Written {
		t.Fatalf("fate %d", fates[0])
	}
	want := c.Delivery
	want.Turn, want.Status, want.Final, want.Because, want.FinishedAt = 1, notify.Sent, true, "why", r.After.FinishedAt
	want.Attempts, want.Throttles, want.Crashes, want.Repeats = 1, 2, 3, 4
	want.JobID, want.ClaimedBy, want.ClaimedAt = 0, uuid.Nil, time.Time{}
	got := d.get(c.Delivery.Notification)
	if diff := cmp.Diff(want, got.Deliveries[0]); diff != "" {
		t.Errorf("delivery (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]store.Attempt{*r.Attempt}, got.Attempts); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	if !got.FinishedAt().Equal(r.After.FinishedAt) {
		t.Errorf("finished at %v", got.FinishedAt())
	}
	var types []string
	types = append(types, d.events()...)
	if diff := cmp.Diff([]string{"accepted", "sent"}, types); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// events reads the types of all events, in order.
func (d *db) events() []string {
	d.t.Helper()
	return strings.Split(one[string](d, "select coalesce(string_agg(type, ',' order by id), '') from dispatcher.events"), ",")
}

func TestARecordMayBeRepeatedWhenItsCommitWasNotConfirmed(t *testing.T) {
	t.Parallel()
	d := open(t)
	a := row(func(a *store.Acceptance) {
		a.Notification.Chain = append(a.Notification.Chain, notify.Step{Channel: notify.Email})
	})
	failing := d.claim(d.accept(a)[0])
	retrying := d.claim(d.accept(row())[0])
	results := []store.Result{
		outcome(failing, notify.RecipientRejected, store.After{Status: notify.Failed, Final: true, Attempts: 1}),
		outcome(retrying, notify.ProviderUnavailable, store.After{Status: notify.Waiting, Attempts: 1}),
	}
	results[0].Next, results[0].Events = starts(&a.Notification, 1), []store.Event{event(failing.Delivery, "failed")}
	results[0].Suppress = &store.Suppression{Project: "default", Channel: notify.SMS, Address: failing.Address, At: now()}
	results[1].Wait = waitOf(retrying.Delivery, notify.WaitBackoff, now().Add(time.Minute))
	d.record(results...)
	want := d.census()
	for range 2 {
		if diff := cmp.Diff([]store.Fate{store.Written, store.Written}, d.record(results...)); diff != "" {
			t.Errorf("fates of the repetition (-want +got):\n%s", diff)
		}
	}
	if got := d.census(); got != want {
		t.Errorf("after the repetition: %s\nbefore: %s", got, want)
	}
	next := d.delivery(store.DeliveryID{Notification: a.Notification.ID, Step: 1})
	if next.Status != notify.Queued || next.JobID == 0 || next.JobID == failing.JobID {
		t.Errorf("next step %+v", next)
	}
}

func TestAResultThatComesLateIsKeptAsEvidenceOnly(t *testing.T) {
	t.Parallel()
	d := open(t)
	a := row()
	c := d.claim(d.accept(a)[0])
	if _, err := d.Cancel(t.Context(), "default", a.Notification.ID, now()); err != nil {
		t.Fatal(err)
	}
	r := outcome(c, notify.ProviderUnavailable, store.After{Status: notify.Waiting, Attempts: 1})
	r.Wait, r.Events = waitOf(c.Delivery, notify.WaitBackoff, now()), []store.Event{event(c.Delivery, "waiting")}
	r.Suppress = &store.Suppression{Project: "default", Channel: notify.SMS, Address: c.Address, At: now()}
	before := d.delivery(c.DeliveryID)
	if fates := d.record(r); fates[0] != store.Late {
		t.Fatalf("fate %d", fates[0])
	}
	got := d.get(a.Notification.ID)
	if diff := cmp.Diff(before, got.Deliveries[0]); diff != "" {
		t.Errorf("the delivery was changed:\n%s", diff)
	}
	if len(got.Attempts) != 1 || got.Attempts[0].ID != c.ClaimID || len(got.Waits) != 0 {
		t.Errorf("attempts %+v, waits %+v", got.Attempts, got.Waits)
	}
	if diff := cmp.Diff([]string{"accepted", "canceled"}, d.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if n := d.count("select count(*) from dispatcher.suppressions"); n != 0 {
		t.Error("the address was suppressed")
	}
	// Decided again, it has no attempt of its own any more.
	again := after0(got.Deliveries[0], store.After{Status: notify.Canceled, Final: true})
	if fates := d.record(again); fates[0] != store.Written {
		t.Errorf("fate of the second decision %d", fates[0])
	}
	if fates := d.record(again); fates[0] != store.Late {
		t.Errorf("fate of a repetition without an attempt %d", fates[0])
	}
}

func TestAGuessIsCorrectedByKnowledgeAndNotTheOtherWayRound(t *testing.T) {
	t.Parallel()
	unknown := store.After{Status: notify.Uncertain, Attempts: 1}
	for _, c := range []struct {
		name          string
		first, second notify.Outcome
		want          notify.Outcome
		fromSecond    bool
	}{
		{"the worker lives after all", notify.Unknown, notify.Accepted, notify.Accepted, true},
		{"the reaper comes late", notify.Accepted, notify.Unknown, notify.Accepted, false},
		{"two guesses", notify.Unknown, notify.Unknown, notify.Unknown, false},
		{"two answers", notify.Accepted, notify.Throttled, notify.Accepted, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := open(t)
			claimed := d.claim(d.accept(row())[0])
			first := outcome(claimed, c.first, unknown)
			first.Wait = waitOf(claimed.Delivery, notify.WaitReconcile, now().Add(time.Minute))
			second := outcome(claimed, c.second, unknown)
			second.Attempt.ID = uuid.New()
			second.Wait = first.Wait
			if got := d.record(first)[0]; got != store.Written {
				t.Fatalf("fate of the first %d", got)
			}
			if got := d.record(second)[0]; got != store.Late {
				t.Errorf("fate of the second %d", got)
			}
			attempts := d.get(claimed.Delivery.Notification).Attempts
			want := first.Attempt.ID
			if c.fromSecond {
				want = second.Attempt.ID
			}
			if len(attempts) != 1 || attempts[0].Outcome != c.want || attempts[0].ID != want {
				t.Errorf("attempts %+v", attempts)
			}
			if got := d.record(first)[0]; got == store.Written && c.fromSecond {
				t.Error("the corrected guess was taken for the record that stands")
			}
		})
	}
}

func TestWaitsFollowTheirDelivery(t *testing.T) {
	t.Parallel()
	d := open(t)
	delivery := d.accept(row(waiting(notify.WaitScheduled, "", now())))[0]
	due := now().Add(time.Minute)
	r := after0(delivery, store.After{Status: notify.Waiting})
	r.Wait, r.Waited = waitOf(delivery, notify.WaitThrottled, due), true
	r.Wait.Scope = "main/sender"
	d.record(r)
	got := d.get(delivery.Notification)
	if diff := cmp.Diff([]store.Wait{*r.Wait}, got.Waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	stale := after0(delivery, store.After{Status: notify.Failed, Final: true})
	stale.Waited = true
	if fate := d.record(stale)[0]; fate != store.Late || len(d.get(delivery.Notification).Waits) != 1 {
		t.Errorf("a stale result has fate %d and leaves %d waits", fate, len(d.get(delivery.Notification).Waits))
	}
	end := after0(got.Deliveries[0], store.After{Status: notify.Failed, Final: true})
	end.Waited = true
	d.record(end)
	if waits := d.get(delivery.Notification).Waits; len(waits) != 0 {
		t.Errorf("an ended delivery waits: %+v", waits)
	}
}

func TestABadResultIsABadRowAndNothingOfItsFlushIsKept(t *testing.T) {
	t.Parallel()
	d := open(t)
	good := d.claim(d.accept(row())[0])
	for name, spoil := range map[string]func(*store.Result){
		"detail with NUL":          func(r *store.Result) { r.Attempt.Detail = "\x00" },
		"long detail":              func(r *store.Result) { r.Attempt.Detail = strings.Repeat("x", 257) },
		"no outcome":               func(r *store.Result) { r.Attempt.Outcome = "" },
		"event of invalid UTF-8":   func(r *store.Result) { r.Events = []store.Event{{At: now(), Type: "\xff"}} },
		"wait for no known reason": func(r *store.Result) { r.Wait = waitOf(store.Delivery{DeliveryID: r.DeliveryID}, "x", now()) },
		"final without an instant": func(r *store.Result) { r.After.FinishedAt = time.Time{} },
	} {
		bad := d.claim(d.accept(row())[0])
		before := d.census()
		results := []store.Result{outcome(bad, notify.Accepted, sent), outcome(good, notify.Accepted, sent)}
		results[1].Events = []store.Event{event(good.Delivery, "sent")}
		spoil(&results[0])
		_, err := d.Record(t.Context(), results, nil)
		if err == nil || store.Classify(err) != store.BadRow {
			t.Errorf("%s: class of %v is %d", name, err, store.Classify(err))
		}
		if got := d.census(); got != before {
			t.Errorf("%s: written %s\nbefore %s", name, got, before)
		}
	}
	if fate := d.record(outcome(good, notify.Accepted, sent))[0]; fate != store.Written {
		t.Errorf("fate of the good one %d", fate)
	}
}

func TestSiblingsJoinWhatTheFlushLeft(t *testing.T) {
	t.Parallel()
	d := open(t)
	a := row(devices(3))
	deliveries := d.accept(a)
	var results []store.Result
	for _, delivery := range deliveries[:2] {
		r := outcome(d.claim(delivery), notify.RecipientRejected, store.After{Status: notify.Failed, Final: true})
		r.Join = true
		results = append(results, r)
	}
	other := d.claim(d.accept(row())[0])
	results = append(results, outcome(other, notify.Accepted, sent))
	calls := 0
	_, err := d.Record(t.Context(), results, func(r store.Record, touched []store.DeliveryID) store.Joined {
		calls++
		if r.Notification.ID != a.Notification.ID || !slices.Equal(touched, []store.DeliveryID{deliveries[0].DeliveryID, deliveries[1].DeliveryID}) {
			t.Errorf("asked about %v, touched %v", r.Notification.ID, touched)
		}
		if got := fmt.Sprintf("%s %s %s", r.Deliveries[0].Status, r.Deliveries[1].Status, r.Deliveries[2].Status); got != "failed failed queued" {
			t.Errorf("shown %s", got)
		}
		return store.Joined{Events: []store.Event{event(deliveries[0], "joined")}}
	})
	if err != nil || calls != 1 {
		t.Errorf("asked %d times, %v", calls, err)
	}
	if diff := cmp.Diff([]string{"accepted", "accepted", "joined"}, d.events()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}
