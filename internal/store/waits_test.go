package store_test

import (
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func (d *db) wake(shut store.Shut, limit int) store.Woken {
	d.t.Helper()
	woken, err := d.Wake(d.t.Context(), shut, limit)
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
	if woken := d.wake(store.Shut{}, 10); woken.Moved != 1 || len(woken.Timers) != 0 {
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
	if woken := d.wake(store.Shut{}, 10); woken.Moved != 0 {
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
		if woken := d.wake(store.Shut{}, 4); woken.Moved != 4 {
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

func TestWakeLeavesWhatIsShutUnlessItsTimeIsOver(t *testing.T) {
	t.Parallel()
	d := open(t)
	overdue := func(a *store.Acceptance) {
		for i := range a.Starts {
			a.Starts[i].EndsAt = now().Add(past)
		}
	}
	email := func(a *store.Acceptance) { a.Notification.Chain[0].Channel = notify.Email }
	due := now().Add(past)
	cases := []struct {
		name string
		row  store.Acceptance
		want bool
	}{
		{"held by a shut scope", row(waiting(notify.WaitBreakerOpen, "shut", due)), false},
		{"held by a shut scope and overdue", row(waiting(notify.WaitBreakerOpen, "shut", due), overdue), true},
		{"held by an open scope", row(waiting(notify.WaitBreakerOpen, "open", due)), true},
		{"of a paused channel", row(email, waiting(notify.WaitPaused, "", due)), false},
		{"of a paused channel and overdue", row(email, waiting(notify.WaitPaused, "", due), overdue), true},
		{"overdue and not due", row(waiting(notify.WaitBreakerOpen, "open", now().Add(time.Hour)), overdue), false},
	}
	for _, c := range cases {
		d.accept(c.row)
	}
	timer := row(email, waiting(notify.WaitReceipt, "shut", due))
	d.accept(timer)
	woken := d.wake(store.Shut{Scopes: []string{"x", "shut"}, Channels: []notify.Channel{notify.Email}}, 100)
	for _, c := range cases {
		if got := d.get(c.row.Notification.ID).Deliveries[0].Status == notify.Queued; got != c.want {
			t.Errorf("%s: woken is %v, want %v", c.name, got, c.want)
		}
	}
	if len(woken.Timers) != 1 || woken.Timers[0].Notification != timer.Notification.ID {
		t.Errorf("timers %+v", woken.Timers)
	}
}

func TestATimerIsGivenToOneNodeAndComesAgain(t *testing.T) {
	t.Parallel()
	d := open(t)
	a := row(waiting(notify.WaitReconcile, "main", now().Add(past)))
	delivery := d.accept(a)[0]
	woken := d.wake(store.Shut{}, 10)
	if woken.Moved != 0 || len(woken.Timers) != 1 {
		t.Fatalf("woken %+v", woken)
	}
	want := store.Wait{
		DeliveryID: delivery.DeliveryID, Project: "default", Channel: notify.SMS, Priority: notify.Normal, Reason: notify.WaitReconcile,
		Scope: "main", Due: a.Starts[0].Wait.Due, Since: a.Starts[0].Wait.Since,
	}
	if diff := cmp.Diff(want, woken.Timers[0]); diff != "" {
		t.Errorf("timer (-want +got):\n%s", diff)
	}
	if again := openAt(t, d.url).wake(store.Shut{}, 10); len(again.Timers) != 0 {
		t.Errorf("another node got the timer too: %+v", again)
	}
	if left := time.Until(d.get(a.Notification.ID).Waits[0].Due); left < 5*time.Second || left > 11*time.Second {
		t.Errorf("the timer comes again in %v", left)
	}
	d.exec("update dispatcher.waits set due = now() - interval '1 second'")
	if again := d.wake(store.Shut{}, 10); len(again.Timers) != 1 {
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
	const waits = 1000
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
				woken, err := n.Wake(t.Context(), store.Shut{}, 50)
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
	if woken := d.wake(store.Shut{}, 10); woken.Moved != 1 {
		t.Errorf("woken %+v", woken)
	}
	if got := d.get(held.Notification.ID).Deliveries[0].Status; got != notify.Waiting {
		t.Errorf("the held delivery is %s", got)
	}
}
