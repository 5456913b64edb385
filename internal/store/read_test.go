package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestGetSeesItsOwnProjectOnly(t *testing.T) {
	t.Parallel()
	d := open(t)
	a := row()
	d.accept(a)
	if got, err := d.Get(t.Context(), "default", a.Notification.ID); err != nil || got.Notification.ID != a.Notification.ID {
		t.Errorf("%+v, %v", got, err)
	}
	for project, id := range map[string]uuid.UUID{"other": a.Notification.ID, "": a.Notification.ID, "default": uuid.New()} {
		if got, err := d.Get(t.Context(), project, id); !errors.Is(err, store.ErrNotFound) || got.Notification.ID != uuid.Nil {
			t.Errorf("project %q: %+v, %v", project, got, err)
		}
	}
	if records, err := d.Records(t.Context(), []uuid.UUID{uuid.New()}); err != nil || len(records) != 0 {
		t.Errorf("records %+v, %v", records, err)
	}
	if records, err := d.Records(t.Context(), nil); err != nil || len(records) != 0 {
		t.Errorf("records %+v, %v", records, err)
	}
}

func TestARecordTellsTheWholeStoryInOrder(t *testing.T) {
	t.Parallel()
	d := open(t)
	deliveries := d.accept(row(devices(3), func(a *store.Acceptance) { a.Notification.Chain = a.Notification.Chain[:1] }))
	for _, i := range []int{2, 0, 2} {
		c := d.claim(d.delivery(deliveries[i].DeliveryID))
		r := outcome(c, notify.ProviderUnavailable, store.After{Status: notify.Waiting})
		r.Wait = waitOf(c.Delivery, notify.WaitBackoff, now())
		d.record(r)
	}
	got := d.get(deliveries[0].Notification)
	var targets, waits []int16
	var attempts [][2]int
	for _, delivery := range got.Deliveries {
		targets = append(targets, delivery.Target)
	}
	for _, w := range got.Waits {
		waits = append(waits, w.Target)
	}
	for _, a := range got.Attempts {
		attempts = append(attempts, [2]int{int(a.Target), int(a.N)})
	}
	if diff := cmp.Diff([]any{[]int16{0, 1, 2}, []int16{0, 2}, [][2]int{{0, 1}, {2, 1}, {2, 2}}}, []any{targets, waits, attempts}); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	if status, final := got.Overall(); final || !got.FinishedAt().IsZero() {
		t.Errorf("%s, finished at %v", status, got.FinishedAt())
	}
}

func TestListsAreFilteredAndPaged(t *testing.T) {
	t.Parallel()
	d := open(t)
	at := now()
	email := func(a *store.Acceptance) { a.Notification.Chain[0].Channel = notify.Email }
	to := func(number string) func(*store.Acceptance) {
		return func(a *store.Acceptance) { a.Notification.To.SMS = number }
	}
	ref := func(r string) func(*store.Acceptance) {
		return func(a *store.Acceptance) { a.Notification.Reference = r }
	}
	rows := []store.Acceptance{
		row(aged(5*day), ref("r")), row(aged(4*day), email), row(aged(3*day), to("+15005550001")), row(aged(2*day), ref("r"), email), row(aged(day)),
	}
	foreign := row(aged(6*day), project("other"), ref("r"))
	d.accept(append(rows, foreign)...)
	d.record(outcome(d.claim(d.delivery(rows[1].Starts[0].DeliveryID)), notify.Accepted, sent))
	d.record(after0(d.delivery(rows[2].Starts[0].DeliveryID), store.After{Status: notify.Failed, Final: true}))
	one := notify.Target{Phone: "+15005550001"}.Hash(notify.SMS)
	mail := notify.Target{Email: &notify.EmailAddress{Address: "a@example.com"}}.Hash(notify.Email)
	for _, c := range []struct {
		name   string
		filter store.Filter
		want   []int
	}{
		{"all, newest first", store.Filter{}, []int{4, 3, 2, 1, 0}},
		{"limit", store.Filter{Limit: 2}, []int{4, 3}},
		{"cursor", store.Filter{Limit: 2, Cursor: rows[3].Notification.ID}, []int{2, 1}},
		{"past the end", store.Filter{Cursor: rows[0].Notification.ID}, nil},
		{"reference", store.Filter{Reference: "r"}, []int{3, 0}},
		{"channel", store.Filter{Channel: notify.Email}, []int{3, 1}},
		{"channel and reference", store.Filter{Channel: notify.Email, Reference: "r"}, []int{3}},
		{"address", store.Filter{Addresses: [][16]byte{one}}, []int{2}},
		{"addresses", store.Filter{Addresses: [][16]byte{one, mail}}, []int{3, 2, 1}},
		{"after is inclusive", store.Filter{After: rows[3].Notification.CreatedAt}, []int{4, 3}},
		{"before is exclusive", store.Filter{Before: rows[1].Notification.CreatedAt}, []int{0}},
		{"between", store.Filter{After: at.Add(-4*day - time.Hour), Before: at.Add(-2*day - time.Hour)}, []int{2, 1}},
		{"status", store.Filter{Status: notify.Queued}, []int{4, 3, 0}},
		{"status sent", store.Filter{Status: notify.Sent}, []int{1}},
		{"status and limit", store.Filter{Status: notify.Queued, Limit: 2}, []int{4, 3}},
		{"status and cursor", store.Filter{Status: notify.Queued, Limit: 2, Cursor: rows[3].Notification.ID}, []int{0}},
		{"status of none", store.Filter{Status: notify.Read}, nil},
		{"everything at once", store.Filter{
			Status: notify.Failed, Channel: notify.SMS, Addresses: [][16]byte{one}, After: at.Add(-3*day - time.Hour), Before: at,
			Cursor: rows[4].Notification.ID,
		}, []int{2}},
	} {
		if c.filter.Project = "default"; c.filter.Limit == 0 {
			c.filter.Limit = 100
		}
		records, err := d.List(t.Context(), c.filter)
		if err != nil {
			t.Fatal(err)
		}
		var want, got []uuid.UUID
		for _, i := range c.want {
			want = append(want, rows[i].Notification.ID)
		}
		for _, r := range records {
			got = append(got, r.Notification.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	for project, want := range map[string]int{"other": 1, "third": 0, "": 0} {
		records, err := d.List(t.Context(), store.Filter{Project: project, Limit: 10})
		if err != nil || len(records) != want {
			t.Errorf("project %q sees %d notifications, %v", project, len(records), err)
		}
	}
}

func TestAListByStatusLooksPastWhatDoesNotMatch(t *testing.T) {
	t.Parallel()
	d := open(t)
	old := d.accept(row(aged(day)))[0]
	rows := make([]store.Acceptance, 1100)
	for i := range rows {
		rows[i] = row()
	}
	d.accept(rows...)
	d.exec("update dispatcher.deliveries set status = 'sent', final = true, finished_at = now() where notification_id <> $1", old.Notification)
	records, err := d.List(t.Context(), store.Filter{Project: "default", Status: notify.Queued, Limit: 5})
	if err != nil || len(records) != 1 || records[0].Notification.ID != old.Notification {
		t.Errorf("found %d, %v", len(records), err)
	}
}

func TestTheBacklogCountsWhatIsAhead(t *testing.T) {
	t.Parallel()
	d := open(t)
	due := now().Add(-time.Minute)
	d.accept(
		row(), row(), row(devices(3)), row(project("other")),
		row(waiting(notify.WaitBackoff, "", due)), row(waiting(notify.WaitBackoff, "", now().Add(time.Hour))),
		row(waiting(notify.WaitScheduled, "", now().Add(time.Hour))), row(project("other"), waiting(notify.WaitScheduled, "", now().Add(time.Hour))),
	)
	d.run(d.node, d.accept(row(priority(notify.Critical)))[0])
	done := d.accept(row(priority(notify.High)))[0]
	d.exec("update dispatcher.river_job set state = 'completed', finalized_at = now() where id = $1", done.JobID)
	type counts struct {
		Queued             int64
		Backoff, Scheduled int64
	}
	for project, want := range map[string]map[notify.Channel]counts{
		"":        {notify.SMS: {4, 2, 2}, notify.Push: {3, 0, 0}},
		"default": {notify.SMS: {3, 2, 1}, notify.Push: {3, 0, 0}},
		"other":   {notify.SMS: {1, 0, 1}},
		"none":    {},
	} {
		backlog, err := d.Backlog(t.Context(), project)
		if err != nil {
			t.Fatal(err)
		}
		if len(backlog) != len(notify.Channels()) {
			t.Errorf("project %q: %d channels", project, len(backlog))
		}
		got := map[notify.Channel]counts{}
		for _, b := range backlog {
			if c := (counts{b.Queued, b.Waiting[notify.WaitBackoff], b.Waiting[notify.WaitScheduled]}); c != (counts{}) {
				got[b.Channel] = c
			}
			if b.Channel == notify.SMS && project == "default" && !b.OldestDue.Equal(due) {
				t.Errorf("oldest due %v, want %v", b.OldestDue, due)
			}
			if b.Channel == notify.Email && !b.OldestDue.IsZero() {
				t.Errorf("email is due since %v", b.OldestDue)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("project %q (-want +got):\n%s", project, diff)
		}
	}
}

func TestPausesAreRead(t *testing.T) {
	t.Parallel()
	d := open(t)
	if got, err := d.Pauses(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	at := now()
	d.exec("insert into dispatcher.pauses (channel, by, reason, since) values ('sms', 'ana', 'storm', $1), ('email', 'ben', '', $1)", at)
	got, err := d.Pauses(t.Context())
	want := []store.Pause{{Channel: notify.Email, By: "ben", Since: at}, {Channel: notify.SMS, By: "ana", Reason: "storm", Since: at}}
	for i := range got {
		got[i].Since = got[i].Since.UTC()
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
}

func TestReadySaysWhetherTheDatabaseAnswers(t *testing.T) {
	t.Parallel()
	d := open(t)
	if err := d.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	away, err := store.Open(t.Context(), "postgres://u:secret@127.0.0.1:1/none", store.Options{Name: "x"})
	if err != nil {
		t.Fatal(err)
	}
	defer away.Close()
	if err := away.Ready(t.Context()); err == nil || store.Classify(err) != store.Transient {
		t.Errorf("a database that is away: %v", err)
	}
}
