package store_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestAcceptWritesWhatANotificationNeeds(t *testing.T) {
	t.Parallel()
	d := open(t)
	a := row(devices(3), func(a *store.Acceptance) {
		n := &a.Notification
		n.Reference, n.Metadata, n.Trace, n.Priority = "ref", []byte(`{"team":"core"}`), "00-trace", notify.High
		n.Content.Body = "quote \" and nul \x00 and é"
	})
	a.Starts[1].Scopes, a.Starts[1].Pinned, a.Starts[1].Provider = []string{"sender/1", "token/2"}, "fcm-b", "fcm"
	deliveries := d.accept(a)
	got := d.get(a.Notification.ID)
	content, err := d.Content(t.Context(), a.Notification.ID)
	if err != nil {
		t.Fatal(err)
	}
	got.Notification.Content = content // which records come without
	if diff := cmp.Diff(a.Notification, got.Notification); diff != "" {
		t.Errorf("notification (-written +read):\n%s", diff)
	}
	if len(deliveries) != 3 {
		t.Fatalf("%d deliveries, want 3", len(deliveries))
	}
	for i, delivery := range deliveries {
		want := a.Starts[i].Delivery
		want.Status, want.JobID = notify.Queued, deliveries[0].JobID
		if diff := cmp.Diff(want, delivery); diff != "" {
			t.Errorf("delivery %d (-written +read):\n%s", i, diff)
		}
	}
	if deliveries[0].JobID == 0 {
		t.Error("deliveries name no job")
	}
	if n := d.count("select count(*) from dispatcher.events where notification_id = $1 and type = 'accepted' and step is null and project = 'default'",
		a.Notification.ID); n != 1 {
		t.Errorf("%d accepted events, want 1", n)
	}
	envelopes := d.envelopes()
	if len(envelopes) != 1 || len(envelopes[0].Items) != 3 {
		t.Fatalf("envelopes %+v", envelopes)
	}
	want := store.Item{
		ID: a.Notification.ID, Target: 1, Ends: a.Notification.ExpiresAt.UnixMilli(), Pinned: "fcm-b", Needs: "fcm",
		Scopes: []string{"sender/1", "token/2"},
	}
	if diff := cmp.Diff(want, envelopes[0].Items[1]); diff != "" {
		t.Errorf("item (-want +got):\n%s", diff)
	}
}

// envelopes reads the jobs in the queue, in order.
func (d *db) envelopes() []store.Envelope {
	d.t.Helper()
	var out []store.Envelope
	rows, err := d.Pool().Query(d.t.Context(), "select args, priority, queue from dispatcher.river_job order by id")
	if err != nil {
		d.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var args []byte
		var queue string
		var e store.Envelope
		var priority int16
		if err := errors.Join(rows.Scan(&args, &priority, &queue), json.Unmarshal(args, &e)); err != nil {
			d.t.Fatal(err)
		}
		if e.Priority = notify.Priority(priority); queue != string(e.Channel) {
			d.t.Errorf("a job of channel %s is in queue %s", e.Channel, queue)
		}
		out = append(out, e)
	}
	if err := rows.Err(); err != nil {
		d.t.Fatal(err)
	}
	return out
}

func TestEnvelopesHoldDeliveriesOfOneProjectChannelAndPriority(t *testing.T) {
	t.Parallel()
	d := open(t)
	email := func(a *store.Acceptance) { a.Notification.Chain[0].Channel = notify.Email }
	var rows []store.Acceptance
	for range 30 {
		rows = append(rows, row(), row(project("other")), row(priority(notify.Critical)), row(email))
	}
	d.accept(rows...)
	type kind struct {
		project  string
		channel  notify.Channel
		priority notify.Priority
	}
	sizes := map[kind][]int{}
	seen := map[uuid.UUID]bool{}
	for _, e := range d.envelopes() {
		k := kind{e.Project, e.Channel, e.Priority}
		sizes[k] = append(sizes[k], len(e.Items))
		for _, item := range e.Items {
			seen[item.ID] = true
			n := d.get(item.ID)
			if n.Notification.Project != e.Project || n.Notification.Priority != e.Priority || n.Deliveries[0].Channel != e.Channel {
				t.Errorf("%v is in an envelope of %v", item.ID, k)
			}
		}
	}
	want := map[kind][]int{
		{"default", notify.SMS, notify.Normal}: {25, 5}, {"other", notify.SMS, notify.Normal}: {25, 5},
		{"default", notify.SMS, notify.Critical}: {25, 5}, {"default", notify.Email, notify.Normal}: {25, 5},
	}
	if diff := cmp.Diff(want, sizes); diff != "" {
		t.Errorf("envelopes (-want +got):\n%s", diff)
	}
	if len(seen) != len(rows) {
		t.Errorf("%d of %d notifications are in envelopes", len(seen), len(rows))
	}
}

func TestAScheduledNotificationWaitsWithoutAJob(t *testing.T) {
	t.Parallel()
	d := open(t)
	due := now().Add(time.Hour)
	a := row(waiting(notify.WaitScheduled, "", due))
	delivery := d.accept(a)[0]
	if delivery.Status != notify.Waiting || delivery.JobID != 0 {
		t.Errorf("delivery is %s with job %d", delivery.Status, delivery.JobID)
	}
	want := []store.Wait{{
		DeliveryID: delivery.DeliveryID, Project: "default", Channel: notify.SMS, Priority: notify.Normal,
		Reason: notify.WaitScheduled, Since: a.Notification.CreatedAt, Until: due, Due: due,
	}}
	if diff := cmp.Diff(want, d.get(delivery.Notification).Waits); diff != "" {
		t.Errorf("waits (-want +got):\n%s", diff)
	}
	if n := d.count(countJobs); n != 0 {
		t.Errorf("%d jobs, want none", n)
	}
}

func TestOneKeyGivesOneNotificationToEverybodyWhoAsksAtOnce(t *testing.T) {
	t.Parallel()
	first := open(t)
	nodes := []*db{first, openAt(t, first.url), openAt(t, first.url)}
	const callers = 200
	answers := make([]store.Accepted, callers)
	begin := make(chan struct{})
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			<-begin
			out, errs, err := nodes[i%len(nodes)].Accept(t.Context(), []store.Acceptance{row(), row(key("k", 1))}, now(), time.Hour)
			if err = errors.Join(append(errs, err)...); err != nil {
				t.Error(err)
				return
			}
			answers[i] = out[1]
		})
	}
	close(begin)
	wg.Wait()
	if t.Failed() {
		return
	}
	fresh := 0
	for _, a := range answers {
		if !a.Replayed {
			fresh++
		}
		if a.ID != answers[0].ID || !bytes.Equal(a.Answer, []byte(a.ID.String())) {
			t.Fatalf("answers differ: %+v and %+v", a, answers[0])
		}
	}
	if fresh != 1 {
		t.Errorf("%d callers were told that theirs is new, want 1", fresh)
	}
	for what, sql := range map[string]string{
		"notifications": "select count(*) from dispatcher.notifications",
		"deliveries":    "select count(*) from dispatcher.deliveries",
		"items":         "select sum(jsonb_array_length(args -> 'i')) from dispatcher.river_job",
		"events":        "select count(*) from dispatcher.events",
	} {
		if n := first.count(sql); n != callers+1 {
			t.Errorf("%d %s, want %d", n, what, callers+1)
		}
	}
}

func TestAKeyAnswersItsOwnBodyRouteAndProjectUntilItsTime(t *testing.T) {
	t.Parallel()
	d := open(t)
	at := now()
	accept := func(a store.Acceptance, at time.Time) (store.Accepted, error) {
		out, errs, err := d.Accept(t.Context(), []store.Acceptance{a}, at, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return out[0], errs[0]
	}
	first, err := accept(row(key("k", 1)), at)
	if err != nil || first.Replayed {
		t.Fatalf("%+v, %v", first, err)
	}
	for _, c := range []struct {
		name     string
		adapt    func(*store.Acceptance)
		at       time.Time
		replayed bool
		mismatch bool
	}{
		{"the same", key("k", 1), at.Add(59 * time.Minute), true, false},
		{"another body", key("k", 2), at, false, true},
		{"another key", key("K", 2), at, false, false},
		{"another project", func(a *store.Acceptance) { key("k", 2)(a); project("other")(a) }, at, false, false},
		{"another route", func(a *store.Acceptance) { key("k", 2)(a); a.Route = "batch" }, at, false, false},
		{"past its time", key("k", 2), at.Add(time.Hour), false, false},
		{"the new body from then on", key("k", 2), at.Add(time.Hour), true, false},
		{"the old one no more", key("k", 1), at.Add(time.Hour), false, true},
	} {
		a := row(c.adapt)
		got, err := accept(a, c.at)
		switch {
		case c.mismatch:
			if !errors.Is(err, store.ErrIdempotencyMismatch) {
				t.Errorf("%s: %+v, %v", c.name, got, err)
			}
		case err != nil, got.Replayed != c.replayed, !c.replayed && got.ID != a.Notification.ID:
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
		written := d.count("select count(*) from dispatcher.notifications where id = $1", a.Notification.ID)
		if want := !c.replayed && !c.mismatch; (written == 1) != want {
			t.Errorf("%s: %d notifications were written", c.name, written)
		}
	}
}

func TestAKeyThatComesTwiceInOneFlushIsAnsweredByTheFirst(t *testing.T) {
	t.Parallel()
	d := open(t)
	rows := []store.Acceptance{row(key("k", 1)), row(key("k", 1)), row(key("k", 2)), row(), row(key("other", 2))}
	out, errs, err := d.Accept(t.Context(), rows, now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	first := rows[0].Notification.ID
	want := []store.Accepted{
		{ID: first, Answer: rows[0].Answer},
		{ID: first, Replayed: true, Answer: rows[0].Answer},
		{},
		{ID: rows[3].Notification.ID},
		{ID: rows[4].Notification.ID, Answer: rows[4].Answer},
	}
	for i := range rows {
		if i == 2 {
			if !errors.Is(errs[i], store.ErrIdempotencyMismatch) {
				t.Errorf("another body of the same flush: %v", errs[i])
			}
			continue
		}
		if diff := cmp.Diff(want[i], out[i]); diff != "" || errs[i] != nil {
			t.Errorf("row %d: %v\n%s", i, errs[i], diff)
		}
	}
	if n := d.count("select count(*) from dispatcher.notifications"); n != 3 {
		t.Errorf("%d notifications, want 3", n)
	}
}

func TestAcceptMayBeRepeatedWhenItsCommitWasNotConfirmed(t *testing.T) {
	t.Parallel()
	d := open(t)
	rows := []store.Acceptance{row(), row(key("k", 1)), row(waiting(notify.WaitScheduled, "", now().Add(time.Hour))), row(key("k", 1))}
	census := func() string {
		return one[string](d, `select concat_ws(' ', (select count(*) from dispatcher.notifications), (select count(*) from dispatcher.deliveries),
			(select count(*) from dispatcher.waits), (select sum(jsonb_array_length(args -> 'i')) from dispatcher.river_job),
			(select count(*) from dispatcher.events), (select count(*) from dispatcher.idempotency_keys))`)
	}
	first, _, err := d.Accept(t.Context(), rows, now(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	want := census()
	if want != "3 3 1 2 3 1" {
		t.Fatalf("written: %s", want)
	}
	// The answer was lost, and meanwhile a worker claimed one.
	d.claim(d.delivery(store.DeliveryID{Notification: rows[0].Notification.ID}))
	again, errs, err := d.Accept(t.Context(), rows, now(), time.Hour)
	if err != nil || errors.Join(errs...) != nil {
		t.Fatal(err, errs)
	}
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("answers (-first +again):\n%s", diff)
	}
	if got := census(); got != want {
		t.Errorf("after the repetition: %s, want %s", got, want)
	}
	if got := d.delivery(store.DeliveryID{Notification: rows[0].Notification.ID}).Status; got != notify.Sending {
		t.Errorf("the claimed delivery is %s", got)
	}
	if _, errs, err = d.Accept(t.Context(), append(rows, row()), now(), time.Hour); err != nil || errors.Join(errs...) != nil {
		t.Fatal(err, errs)
	}
	if got, want := census(), "4 4 1 3 4 1"; got != want {
		t.Errorf("after the repetition beside a new row: %s, want %s", got, want)
	}
}

func TestARowThatCannotBeStoredIsABadRowAndNothingOfTheFlushIsKept(t *testing.T) {
	t.Parallel()
	d := open(t)
	for name, spoil := range map[string]func(*store.Acceptance){
		"reference with NUL":  func(a *store.Acceptance) { a.Notification.Reference = "a\x00b" },
		"invalid UTF-8":       func(a *store.Acceptance) { a.Notification.Reference = "a\xff" },
		"body without a form": func(a *store.Acceptance) { a.Notification.Content.Body = "a\xff" },
		"long reference":      func(a *store.Acceptance) { a.Notification.Reference = strings.Repeat("x", 256) },
		"long key":            key(strings.Repeat("x", 256), 1),
		"no priority":         priority(0),
		"project":             project("No Such"),
		"expired":             func(a *store.Acceptance) { a.Notification.ExpiresAt = a.Notification.SendAt },
		"sent before made":    func(a *store.Acceptance) { a.Notification.SendAt = a.Notification.CreatedAt.Add(-time.Second) },
	} {
		_, _, err := d.Accept(t.Context(), []store.Acceptance{row(), row(spoil), row()}, now(), time.Hour)
		if err == nil || store.Classify(err) != store.BadRow {
			t.Errorf("%s: class of %v is %d", name, err, store.Classify(err))
		}
	}
	if n := d.count("select count(*) from dispatcher.notifications") + d.count(countJobs) + d.count("select count(*) from dispatcher.events"); n != 0 {
		t.Errorf("%d rows were kept", n)
	}
}

func TestAcceptStoresManyAtOnce(t *testing.T) {
	t.Parallel()
	d := open(t)
	rows := make([]store.Acceptance, 500)
	for i := range rows {
		rows[i] = row(key(strconv.Itoa(i), 1))
	}
	out, errs, err := d.Accept(t.Context(), rows, now(), time.Hour)
	if err = errors.Join(append(errs, err)...); err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if out[i].ID != rows[i].Notification.ID || out[i].Replayed {
			t.Fatalf("row %d got %+v", i, out[i])
		}
	}
	if n := d.count(countJobs); n != 20 {
		t.Errorf("%d jobs, want 20", n)
	}
}
