package store_test

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func (d *db) wake(limit int) store.Woken {
	d.t.Helper()
	woken, err := d.Wake(d.t.Context(), limit, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return woken
}

var past = -time.Minute

func TestWakeMovesWhatIsDue(t *testing.T) {
	t.Parallel()
	d := open(t)
	due := row(waiting(notify.WaitBackoff, "main", now().Add(past)))
	due.Starts[0].Scopes = []string{"host/1"}
	later := row(waiting(notify.WaitBackoff, "main", now().Add(time.Hour)))
	deliveries := d.accept(due, later)
	if woken := d.wake(10); woken.Moved != 1 || len(woken.Timers) != 0 {
		t.Errorf("woken %+v", woken)
	}
	got := d.get(due.Notification.ID)
	want := deliveries[0]
	want.Status, want.Because, want.JobID = notify.Queued, "backoff", got.Deliveries[0].JobID
	if diff := cmp.Diff(want, got.Deliveries[0]); diff != "" || len(got.Waits) != 0 {
		t.Errorf("delivery (-want +got), with waits %v:\n%s", got.Waits, diff)
	}
	envelopes := d.envelopes()
	if len(envelopes) != 1 || len(envelopes[0].Items) != 1 {
		t.Fatalf("envelopes %+v", envelopes)
	}
	item := store.Item{ID: due.Notification.ID, Ends: due.Notification.ExpiresAt.UnixMilli(), Scopes: []string{"host/1"}}
	if diff := cmp.Diff(item, envelopes[0].Items[0]); diff != "" {
		t.Errorf("item (-want +got):\n%s", diff)
	}
	if woken := d.wake(10); woken.Moved != 0 {
		t.Errorf("woken again: %+v", woken)
	}
	d.claim(got.Deliveries[0])
}

func TestWakeTakesTheUrgentFirstAndThenTheOldest(t *testing.T) {
	t.Parallel()
	d := open(t)
	var rows []store.Acceptance
	for _, p := range []notify.Priority{notify.Low, notify.Normal, notify.Critical, notify.High} {
		for age := range 3 {
			a := row(priority(p), waiting(notify.WaitBackoff, "", now().Add(past-time.Duration(age)*time.Second)))
			a.Notification.Reference = p.String() + strconv.Itoa(age)
			rows = append(rows, a)
		}
	}
	d.accept(rows...)
	var order []string
	for range 3 {
		if woken := d.wake(4); woken.Moved != 4 {
			t.Fatalf("woken %+v", woken)
		}
		var batch []string
		for _, e := range d.envelopes() {
			for _, item := range e.Items {
				if r := d.get(item.ID).Notification.Reference; !slices.Contains(order, r) {
					batch = append(batch, r)
				}
			}
		}
		order = append(order, batch...)
	}
	want := []string{
		"critical2", "critical1", "critical0", "high2", "high1", "high0",
		"normal2", "normal1", "normal0", "low2", "low1", "low0",
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// heldBy makes the notification wait until a scope has room, or until its step's
// time is over.
func heldBy(scope string, ends time.Time) func(*store.Acceptance) {
	return func(a *store.Acceptance) {
		waiting(notify.WaitBreakerOpen, scope, ends)(a)
		for i := range a.Starts {
			a.Starts[i].EndsAt = ends
			a.Starts[i].Wait.Held, a.Starts[i].Wait.Until = true, now().Add(time.Minute)
		}
	}
}

func TestWhatAScopeHoldsMovesWithItsRoomOrWhenItsTimeIsOver(t *testing.T) {
	t.Parallel()
	d := open(t)
	ends := now().Add(30 * time.Minute)
	d.accept(row(heldBy("main", ends)), row(heldBy("main", ends)), row(project("other"), heldBy("main", ends)),
		row(priority(notify.High), heldBy("other/host:x", ends)))
	overdue := row(heldBy("main", now().Add(past)))
	d.accept(overdue)
	if woken := d.wake(10); woken.Moved != 1 || d.get(overdue.Notification.ID).Deliveries[0].Status != notify.Queued {
		t.Errorf("without room %+v moved, want the overdue one alone", woken)
	}
	holds, err := d.Holds(t.Context(), store.Hold{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	want := []store.Hold{
		{Scope: "main", Priority: notify.Normal, Project: "default", Channel: notify.SMS, Reason: notify.WaitBreakerOpen},
		{Scope: "main", Priority: notify.Normal, Project: "other", Channel: notify.SMS, Reason: notify.WaitBreakerOpen},
		{Scope: "other/host:x", Priority: notify.High, Project: "default", Channel: notify.SMS, Reason: notify.WaitBreakerOpen},
	}
	if diff := cmp.Diff(want, holds, cmpopts.IgnoreFields(store.Hold{}, "Since", "Age")); diff != "" {
		t.Errorf("holds (-want +got):\n%s", diff)
	}
	if rest, err := d.Holds(t.Context(), holds[0], 1); err != nil || len(rest) != 1 || rest[0].Project != "other" {
		t.Errorf("after the first comes %+v, %v", rest, err)
	}
	counts, err := d.CountRooms(t.Context(), []store.Room{{Hold: want[2], N: 5}, {Hold: want[0], N: 1}, {Hold: want[0], N: 5}})
	if diff := cmp.Diff([]int{1, 1, 2}, counts); diff != "" || err != nil {
		t.Errorf("counts (-want +got):\n%s, %v", diff, err)
	}
	woken, err := d.WakeHeld(t.Context(), []store.Room{{Hold: want[0], N: 1}, {Hold: want[2], N: 5}})
	if err != nil || woken.Moved != 2 {
		t.Errorf("moved %+v, %v; want one of main and one of the host", woken, err)
	}
	if left := d.count("select count(*) from dispatcher.waits where held"); left != 2 {
		t.Errorf("%d still held, want 2", left)
	}
}

func TestTheOldestOfAGroupMovesFirst(t *testing.T) {
	t.Parallel()
	d := open(t)
	var ids []uuid.UUID
	for age := range 3 {
		a := row(heldBy("main", now().Add(time.Hour)))
		a.Starts[0].Wait.Since = now().Add(-time.Duration(age) * time.Minute)
		d.accept(a)
		ids = append(ids, a.Notification.ID)
	}
	holds, err := d.Holds(t.Context(), store.Hold{}, 10)
	if err != nil {
		t.Fatal(err)
	}
	for _, oldest := range []int{2, 1, 0} {
		if _, err := d.WakeHeld(t.Context(), []store.Room{{Hold: holds[0], N: 1}}); err != nil {
			t.Fatal(err)
		}
		if got := d.get(ids[oldest]).Deliveries[0].Status; got != notify.Queued {
			t.Errorf("number %d is %s", oldest, got)
		}
	}
}

func TestWhatWasHeldSaysSinceWhen(t *testing.T) {
	t.Parallel()
	d := open(t)
	since := now().Add(-time.Hour).Truncate(time.Millisecond)
	held := row(heldBy("main", now().Add(time.Hour)))
	paced := row(waiting(notify.WaitCapacity, "", now().Add(past)))
	retry := row(waiting(notify.WaitBackoff, "", now().Add(past)))
	for _, a := range []store.Acceptance{held, paced, retry} {
		a.Starts[0].Wait.Since = since
	}
	d.accept(held, paced, retry)
	d.wake(10)
	if _, err := d.WakeHeld(t.Context(), []store.Room{{Hold: store.Hold{Scope: "main", Priority: notify.Normal, Project: "default"}, N: 1}}); err != nil {
		t.Fatal(err)
	}
	got := map[uuid.UUID]time.Time{}
	for _, e := range d.envelopes() {
		for _, item := range e.Items {
			got[item.ID] = item.HeldSince()
		}
	}
	if !got[held.Notification.ID].Equal(since) || !got[paced.Notification.ID].Equal(since) || !got[retry.Notification.ID].IsZero() {
		t.Errorf("held since %v and %v, and a retry %v; want %v and never", got[held.Notification.ID], got[paced.Notification.ID], got[retry.Notification.ID], since)
	}
}

func TestWhatIsDueCanBeKeptBack(t *testing.T) {
	t.Parallel()
	d := open(t)
	ends, at := now().Add(30*time.Minute), now()
	scheduled, free := row(waiting(notify.WaitScheduled, "", now().Add(past))), row(project("free"), waiting(notify.WaitScheduled, "", now().Add(past)))
	paced := row(waiting(notify.WaitCapacity, "", now().Add(past)))
	paced.Starts[0].Wait.Since = at.Add(-time.Hour)
	overdue := row(heldBy("main", now().Add(past)))
	d.accept(scheduled, free, paced, overdue)
	var asked []string
	woken, err := d.Wake(t.Context(), 10, func(of *store.Delivery) *store.Wait {
		asked = append(asked, of.Because)
		if of.Project == "free" {
			return nil
		}
		return &store.Wait{Reason: notify.WaitCapacity, Scope: "queue:sms", Held: true, Since: at, Until: at, Due: ends}
	})
	if err != nil || woken.Moved != 2 || woken.Kept != 2 || len(woken.Timers) != 0 {
		t.Errorf("woken %+v, %v", woken, err)
	}
	slices.Sort(asked)
	if diff := cmp.Diff([]string{"capacity", "scheduled", "scheduled"}, asked); diff != "" {
		t.Errorf("asked about (-want +got):\n%s", diff)
	}
	want := store.Wait{
		DeliveryID: store.DeliveryID{Notification: scheduled.Notification.ID}, Project: "default", Channel: notify.SMS, Priority: notify.Normal,
		Reason: notify.WaitCapacity, Scope: "queue:sms", Held: true, Since: at, Until: at, Due: ends,
	}
	if diff := cmp.Diff([]store.Wait{want}, d.get(scheduled.Notification.ID).Waits); diff != "" {
		t.Errorf("wait (-want +got):\n%s", diff)
	}
	if w := d.get(paced.Notification.ID).Waits[0]; !w.Held || !w.Since.Equal(at.Add(-time.Hour)) {
		t.Errorf("what had waited for room before waits on as %+v", w)
	}
	for _, a := range []store.Acceptance{free, overdue} {
		if r := d.get(a.Notification.ID); r.Deliveries[0].Status != notify.Queued || len(r.Waits) != 0 {
			t.Errorf("%+v with %+v, want it queued", r.Deliveries[0], r.Waits)
		}
	}
	if woken := d.wake(10); woken.Moved != 0 {
		t.Errorf("woken again: %+v", woken)
	}
}

func TestATimerIsGivenToOneNodeAndComesAgain(t *testing.T) {
	t.Parallel()
	d := open(t)
	a := row(waiting(notify.WaitReconcile, "main", now().Add(past)))
	delivery := d.accept(a)[0]
	woken := d.wake(10)
	if woken.Moved != 0 || len(woken.Timers) != 1 {
		t.Fatalf("woken %+v", woken)
	}
	want := store.Wait{
		DeliveryID: delivery.DeliveryID, Project: "default", Channel: notify.SMS, Priority: notify.Normal, Reason: notify.WaitReconcile,
		Scope: "main", Due: a.Starts[0].Wait.Due, Until: a.Starts[0].Wait.Due, Since: a.Starts[0].Wait.Since,
	}
	if diff := cmp.Diff(want, woken.Timers[0]); diff != "" {
		t.Errorf("timer (-want +got):\n%s", diff)
	}
	if again := openAt(t, d.url).wake(10); len(again.Timers) != 0 {
		t.Errorf("another node got the timer too: %+v", again)
	}
	if left := time.Until(d.get(a.Notification.ID).Waits[0].Due); left < 5*time.Second || left > 11*time.Second {
		t.Errorf("the timer comes again in %v", left)
	}
	d.exec("update dispatcher.waits set due = now() - interval '1 second'")
	if again := d.wake(10); len(again.Timers) != 1 {
		t.Errorf("the timer did not come again: %+v", again)
	}
	if n := d.count(countJobs); n != 0 {
		t.Errorf("a timer made %d jobs", n)
	}
}

func TestTwoWakersMoveNothingTwice(t *testing.T) {
	t.Parallel()
	a := open(t)
	nodes := []*db{a, openAt(t, a.url)}
	const waits = 400
	rows := make([]store.Acceptance, waits)
	for i := range rows {
		rows[i] = row(priority(notify.Priority(1+i%4)), waiting(notify.WaitBackoff, "", now().Add(past)))
	}
	a.accept(rows...)
	moved := make([]int, len(nodes))
	var wg sync.WaitGroup
	for i, n := range nodes {
		wg.Go(func() {
			for n.count("select count(*) from dispatcher.waits") > 0 {
				woken, err := n.Wake(t.Context(), 50, nil)
				if err != nil {
					t.Error(err)
					return
				}
				moved[i] += woken.Moved
			}
		})
	}
	wg.Wait()
	if moved[0]+moved[1] != waits {
		t.Errorf("%v moved, want %d together", moved, waits)
	}
	seen := map[uuid.UUID]int{}
	for _, e := range a.envelopes() {
		for _, item := range e.Items {
			seen[item.ID]++
		}
	}
	for id, n := range seen {
		if n != 1 {
			t.Errorf("%v is in %d envelopes", id, n)
		}
	}
	if len(seen) != waits {
		t.Errorf("%d deliveries are in the queue, want %d", len(seen), waits)
	}
}

func TestWakeSkipsWhatSomebodyElseHolds(t *testing.T) {
	t.Parallel()
	d := open(t)
	held := row(waiting(notify.WaitBackoff, "", now().Add(past)))
	free := row(waiting(notify.WaitBackoff, "", now().Add(past)))
	d.accept(held, free)
	tx, err := d.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context()) //nolint:errcheck // only ends the lock
	if _, err := tx.Exec(t.Context(), "select from dispatcher.deliveries where notification_id = $1 for update", held.Notification.ID); err != nil {
		t.Fatal(err)
	}
	if woken := d.wake(10); woken.Moved != 1 {
		t.Errorf("woken %+v", woken)
	}
	if got := d.get(held.Notification.ID).Deliveries[0].Status; got != notify.Waiting {
		t.Errorf("the held delivery is %s", got)
	}
}
