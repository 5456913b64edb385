package dispatch_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// asked is a script that can be asked about its messages.
type asked struct {
	*script
	show func(m *channels.Message, began, ended time.Time) channels.Sighting

	mu         sync.Mutex
	looks      int
	open, most int // under way, and the most there have been
}

func newAsked(answer func(int, *channels.Message) channels.Result, show func(*channels.Message, time.Time, time.Time) channels.Sighting) *asked {
	return &asked{script: newScript(notify.SMS, answer), show: show}
}

func (*asked) LookupScopes(notify.Target) []string { return []string{"reading"} }

func (a *asked) LookUp(_ context.Context, m *channels.Message, began, ended time.Time) channels.Sighting {
	a.mu.Lock()
	a.looks++
	a.open++
	a.most = max(a.most, a.open)
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.open--
	}()
	return a.show(m, began, ended)
}

func (a *asked) looked() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.looks
}

// shows answers a look-up with messages of those ids.
func shows(complete bool, ids ...string) func(*channels.Message, time.Time, time.Time) channels.Sighting {
	return func(*channels.Message, time.Time, time.Time) channels.Sighting {
		s := channels.Sighting{Complete: complete, Call: channels.Result{Outcome: notify.Accepted}}
		for _, id := range ids {
			s.Messages = append(s.Messages, channels.Ok(id))
		}
		return s
	}
}

// age makes the attempts of a node's deliveries older, as if time had passed.
func (n *node) age(t *testing.T, by time.Duration) {
	t.Helper()
	n.exec(t, "update dispatcher.attempts set started_at = started_at - $1::interval", by)
	n.pass(t)
}

func TestAMessageThatTheProviderShowsIsNotSentAgain(t *testing.T) {
	t.Parallel()
	sms, email := newAsked(first(notify.Unknown), shows(false, "SM1")), newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	id := n.accept(t, notification(both, step(notify.SMS), step(notify.Email)))
	w := n.waiting(t, id, notify.WaitReconcile).Waits[0]
	if ahead := w.Due.Sub(w.Since); ahead != 10*time.Second || sms.looked() != 0 {
		t.Errorf("asks after %v, and %d times at once", ahead, sms.looked())
	}
	n.pass(t)
	status, r := n.final(t, id)
	if status != notify.Sent || len(sms.sent()) != 1 || len(email.sent()) != 0 {
		t.Errorf("status %s after %d sms and %d email calls", status, len(sms.sent()), len(email.sent()))
	}
	if a := r.Attempts[0]; a.Outcome != notify.Accepted || a.ProviderMessageID != "SM1" || r.Deliveries[0].Attempts != 1 {
		t.Errorf("attempt %+v, %d of the step's used", a, r.Deliveries[0].Attempts)
	}
	if got, want := story(n.events(t, id)), "accepted unknown:unknown sent."; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

func TestAMessageThatTheProviderHasNotIsSentAgainWithoutDoubt(t *testing.T) {
	t.Parallel()
	sms, email := newAsked(first(notify.Unknown), shows(true)), newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	id := n.accept(t, notification(both, step(notify.SMS), step(notify.Email)))
	n.waiting(t, id, notify.WaitReconcile)
	n.pass(t)
	status, r := n.final(t, id)
	if status != notify.Sent || len(sms.sent()) != 2 || len(email.sent()) != 0 {
		t.Fatalf("status %s after %d sms and %d email calls", status, len(sms.sent()), len(email.sent()))
	}
	if a := r.Attempts; a[0].Outcome != notify.ProviderUnavailable || a[1].Outcome != notify.Accepted || a[1].PossibleDuplicate {
		t.Errorf("attempts %+v", a)
	}
	if got, want := story(n.events(t, id)), "accepted unknown:unknown waiting:backoff sent."; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

func TestAMessageThatFailedAfterItWasTakenFallsBack(t *testing.T) {
	t.Parallel()
	failed := channels.Result{Outcome: notify.RecipientRejected, Code: "30006", MessageID: "SM1", Suppress: true}
	sms := newAsked(first(notify.Unknown), func(*channels.Message, time.Time, time.Time) channels.Sighting {
		return channels.Sighting{Messages: []channels.Result{failed}, Call: channels.Result{Outcome: notify.Accepted}}
	})
	email := newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	id := n.accept(t, notification(both, step(notify.SMS), step(notify.Email)))
	n.waiting(t, id, notify.WaitReconcile)
	n.pass(t)
	status, r := n.final(t, id)
	if status != notify.Sent || len(sms.sent()) != 1 || len(email.sent()) != 1 {
		t.Errorf("status %s after %d sms and %d email calls", status, len(sms.sent()), len(email.sent()))
	}
	if d, a := r.Deliveries[0], r.Attempts[0]; d.Because != "recipient_rejected" || d.Attempts != 1 || a.ProviderCode != "30006" {
		t.Errorf("sms ended because %s after %d attempts, with code %s", d.Because, d.Attempts, a.ProviderCode)
	}
	if n.count(t, "select count(*) from dispatcher.suppressions") != 1 {
		t.Error("the dead number is not on the suppression list")
	}
}

func TestWhatNobodyCanTellIsAskedAgainAndThenDecidedByPolicy(t *testing.T) {
	t.Parallel()
	sms, email := newAsked(first(notify.Unknown), shows(false)), newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	id := n.accept(t, notification(both, step(notify.SMS), step(notify.Email)))
	turn := n.waiting(t, id, notify.WaitReconcile).Waits[0].Turn
	for i, age := range []time.Duration{10 * time.Second, 25 * time.Second} {
		n.age(t, age)
		r := n.until(t, id, "waiting again", func(r record) bool { return len(r.Waits) == 1 && r.Waits[0].Turn == turn+int32(i)+1 })
		if d := r.Deliveries[0]; d.Status != notify.Uncertain || sms.looked() != i+1 {
			t.Fatalf("status %s after %d look-ups", d.Status, sms.looked())
		}
	}
	n.age(t, 85*time.Second)
	_, r := n.final(t, id)
	if len(sms.sent()) != 1 || len(email.sent()) != 1 || r.Deliveries[0].Because != "unknown" || sms.looked() != 3 {
		t.Errorf("%d sms and %d email calls because %s, %d look-ups", len(sms.sent()), len(email.sent()), r.Deliveries[0].Because, sms.looked())
	}
	if got, want := story(n.events(t, id)), "accepted unknown:unknown failed:unknown sent."; got != want {
		t.Errorf("events %s, want %s", got, want)
	}
}

func TestOneMessageAnswersForOneOfTwoThatSayTheSame(t *testing.T) {
	t.Parallel()
	sms := newAsked(first(notify.Unknown), shows(true, "SM1"))
	n := single(t, account(sms))
	ids := []uuid.UUID{n.accept(t, notification(both, step(notify.SMS))), n.accept(t, notification(both, step(notify.SMS)))}
	for _, id := range ids {
		n.waiting(t, id, notify.WaitReconcile)
	}
	n.pass(t)
	own := 0
	for _, id := range ids {
		status, r := n.final(t, id)
		if status != notify.Sent {
			t.Errorf("status %s", status)
		}
		if r.Attempts[0].ProviderMessageID == "SM1" {
			own++
		}
	}
	if own != 1 || len(sms.sent()) != 3 {
		t.Errorf("the message answers for %d, and %d calls were made", own, len(sms.sent()))
	}
}

func TestALookUpIsNotMadeThroughAnOpenBreaker(t *testing.T) {
	t.Parallel()
	sms := newAsked(first(notify.Unknown), shows(false, "SM1"))
	n := single(t, account(sms))
	id := n.accept(t, notification(both, step(notify.SMS)))
	turn := n.waiting(t, id, notify.WaitReconcile).Waits[0].Turn
	n.operate(t, "sms-main", store.ActionOpen, time.Time{})
	n.pass(t)
	n.until(t, id, "waiting again", func(r record) bool { return len(r.Waits) == 1 && r.Waits[0].Turn > turn })
	if sms.looked() != 0 {
		t.Errorf("%d look-ups through an open breaker", sms.looked())
	}
}

func TestLookUpsThatFailOpenNoBreaker(t *testing.T) {
	t.Parallel()
	sms := newAsked(first(notify.Unknown), func(*channels.Message, time.Time, time.Time) channels.Sighting {
		return channels.Sighting{Call: channels.Result{Outcome: notify.AccountRejected}}
	})
	a := account(sms)
	a.Breaker = resilience.BreakerConfig{Failures: 2}
	n := single(t, a)
	id := n.accept(t, notification(both, step(notify.SMS)))
	turn := n.waiting(t, id, notify.WaitReconcile).Waits[0].Turn
	for i := range int32(3) {
		n.pass(t)
		n.until(t, id, "waiting again", func(r record) bool { return len(r.Waits) == 1 && r.Waits[0].Turn > turn+i })
	}
	if sms.looked() != 3 {
		t.Errorf("%d look-ups, want 3: one that fails keeps the next from being made", sms.looked())
	}
	n.waiting(t, n.accept(t, notification(both, step(notify.SMS))), notify.WaitReconcile)
	if len(sms.sent()) != 2 {
		t.Errorf("%d calls, want one for each", len(sms.sent()))
	}
}

func TestACallWhoseWorkerDiedIsLookedUp(t *testing.T) {
	t.Parallel()
	sms := newAsked(func(int, *channels.Message) channels.Result { panic("of the adapter") }, shows(false, "SM1"))
	n := single(t, account(sms))
	id := n.accept(t, notification(both, step(notify.SMS)))
	n.waiting(t, id, notify.WaitReconcile)
	n.pass(t)
	if status, _ := n.final(t, id); status != notify.Sent || len(sms.sent()) != 1 {
		t.Errorf("status %s after %d calls", status, len(sms.sent()))
	}
}

func TestALookUpThatPanicsOrHangsHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	shut := newDoor(t)
	sms := newAsked(first(notify.Unknown), func(m *channels.Message, _, _ time.Time) channels.Sighting {
		if m.Content.Title == "panic" {
			panic("of the adapter")
		}
		<-shut.c
		return channels.Sighting{}
	})
	n := single(t, account(sms), account(newScript(notify.Email, ok)))
	panics := notification(both, step(notify.SMS))
	panics.Content.Title = "panic"
	id := n.accept(t, panics)
	turn := n.waiting(t, id, notify.WaitReconcile).Waits[0].Turn
	hangs := n.accept(t, notification(both, step(notify.SMS)))
	n.waiting(t, hangs, notify.WaitReconcile)
	n.pass(t)
	n.until(t, id, "waiting again", func(r record) bool { return len(r.Waits) == 1 && r.Waits[0].Turn > turn })
	later := notification(both, step(notify.Email))
	later.SendAt = time.Now().Add(50 * time.Millisecond)
	if status, _ := n.final(t, n.accept(t, later)); status != notify.Sent {
		t.Errorf("status %s of one that the waker has to wake", status)
	}
	shut.open()
}

func TestNoMoreThanSixteenLookUpsAreUnderWay(t *testing.T) {
	t.Parallel()
	const many = 24
	shut := newDoor(t)
	sms := newAsked(first(notify.Unknown), func(m *channels.Message, _, _ time.Time) channels.Sighting {
		<-shut.c
		return channels.Sighting{Messages: []channels.Result{channels.Ok(m.Key.String())}, Call: channels.Result{Outcome: notify.Accepted}}
	})
	n := single(t, account(sms))
	for _, id := range n.acceptAll(t, alike(many, both, step(notify.SMS))...) {
		n.waiting(t, id, notify.WaitReconcile)
	}
	n.pass(t)
	eventually(t, "as many look-ups as may be", func() bool { return sms.looked() >= 16 })
	shut.open()
	eventually(t, "the others in their turn", func() bool {
		n.pass(t)
		return n.count(t, "select count(*) from dispatcher.deliveries where final") == many
	})
	sms.mu.Lock()
	defer sms.mu.Unlock()
	if sms.most != 16 {
		t.Errorf("%d look-ups under way at once", sms.most)
	}
	if calls := len(sms.sent()); calls != many {
		t.Errorf("%d calls for %d notifications", calls, many)
	}
}
