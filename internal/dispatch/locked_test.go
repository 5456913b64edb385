package dispatch_test

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// locked is a database session that holds on to a row until it is told to leave.
func locked(t *testing.T, url, sql string, id uuid.UUID) (leave func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if tag, err := tx.Exec(t.Context(), sql, id); err != nil || tag.RowsAffected() == 0 {
		t.Fatalf("locked %d rows, %v", tag.RowsAffected(), err)
	}
	return func() {
		if err := tx.Rollback(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

const (
	lockDelivery     = "select from dispatcher.deliveries where notification_id = $1 for update"
	lockNotification = "select from dispatcher.notifications where id = $1 for update"
)

// goesOn fails the test unless what is accepted now is sent soon.
func (n *node) goesOn(t *testing.T) {
	t.Helper()
	begun := time.Now()
	if status, _ := n.final(t, n.accept(t, notification(both, step(notify.SMS)))); status != notify.Sent {
		t.Errorf("another one ended %s", status)
	}
	if took := time.Since(begun); took > soon {
		t.Errorf("another one took %v", took)
	}
}

func TestALockedRowHoldsUpNoOtherResult(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{lockDelivery, lockNotification} {
		url, door := pgURL(t), newDoor(t)
		sms := newScript(notify.SMS, ok)
		push := newScript(notify.Email, door.then(notify.Accepted))
		n := start(t, url, registry(account(sms), account(push)))
		id := n.accept(t, notification(both, step(notify.Email)))
		eventually(t, "it is called", func() bool { return len(push.sent()) == 1 })
		leave := locked(t, url, lock, id)
		door.open()
		for range 3 {
			n.goesOn(t)
		}
		leave()
		if status, r := n.final(t, id); status != notify.Sent || len(r.Attempts) != 1 || len(push.sent()) != 1 {
			t.Errorf("it ended %s after %d attempts and %d calls", status, len(r.Attempts), len(push.sent()))
		}
	}
}

func TestALockedDeliveryIsCalledWhenItIsFreeAndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	url := pgURL(t)
	sms, email := newScript(notify.SMS, ok), newScript(notify.Email, ok)
	n := start(t, url, registry(account(sms), account(email)), hold)
	id := n.accept(t, notification(both, step(notify.Email)))
	leave := locked(t, url, lockDelivery, id)
	n.Release()
	for range 3 {
		n.goesOn(t)
	}
	if got := len(email.sent()); got != 0 {
		t.Errorf("%d calls for a locked delivery", got)
	}
	leave()
	if status, r := n.final(t, id); status != notify.Sent || len(r.Attempts) != 1 {
		t.Errorf("it ended %s after %d attempts", status, len(r.Attempts))
	}
}

// counted counts what is logged.
type counted struct {
	slog.Handler
	n *atomic.Int64
}

func (c counted) Handle(ctx context.Context, r slog.Record) error {
	c.n.Add(1)
	return c.Handler.Handle(ctx, r)
}

func TestAResultThatWaitsForARowIsWrittenBeforeTheNodeStops(t *testing.T) {
	t.Parallel()
	url, door := pgURL(t), newDoor(t)
	email := newScript(notify.Email, door.then(notify.Accepted))
	var said atomic.Int64
	n := start(t, url, registry(account(email)), func(s *setup) { s.Logger = slog.New(counted{s.Logger.Handler(), &said}) })
	other := start(t, url, registry(account(email)), onlyAccept)
	id := n.accept(t, notification(both, step(notify.Email)))
	eventually(t, "it is called", func() bool { return len(email.sent()) == 1 })
	leave := locked(t, url, lockDelivery, id)
	door.open()
	eventually(t, "the recorder has met the lock", func() bool { return said.Load() > 0 })
	var stopping sync.WaitGroup
	stopping.Go(n.stop)
	eventually(t, "it fetches nothing more", func() bool {
		next, begun := other.accept(t, notification(both, step(notify.Email))), time.Now()
		for time.Since(begun) < time.Second {
			if other.count(t, "select count(*) from dispatcher.deliveries where notification_id = $1 and status <> 'queued'", next) > 0 {
				return false
			}
			tick(t)
		}
		return true
	})
	leave()
	stopping.Wait()
	r, err := other.store.Get(t.Context(), "default", id)
	if err != nil {
		t.Fatal(err)
	}
	if status, final := r.Overall(); status != notify.Sent || !final || len(r.Attempts) != 1 {
		t.Errorf("it is %s with %d attempts", status, len(r.Attempts))
	}
}

func TestALockedRowHoldsUpNoOtherTimer(t *testing.T) {
	t.Parallel()
	url := pgURL(t)
	sms, email := newScript(notify.SMS, ok), newScript(notify.Email, ok)
	email.info.MaxObservable = notify.Delivered
	n := start(t, url, registry(account(sms), account(email)))
	delivered := step(notify.Email)
	delivered.Success, delivered.Within = notify.UntilDelivered, notify.Duration(time.Hour)
	id := n.accept(t, notification(both, delivered, step(notify.SMS)))
	n.waiting(t, id, notify.WaitReceipt)
	leave := locked(t, url, lockNotification, id) // which the next step's delivery refers to
	n.exec(t, "update dispatcher.deliveries set ends_at = now() where notification_id = $1", id)
	n.pass(t)
	for range 3 {
		later := notification(both, step(notify.SMS))
		later.SendAt = later.CreatedAt.Add(100 * time.Millisecond)
		begun := time.Now()
		n.final(t, n.accept(t, later))
		if took := time.Since(begun); took > soon {
			t.Errorf("another wait took %v", took)
		}
	}
	leave()
	n.pass(t) // it comes again by itself, after a while
	if _, r := n.final(t, id); len(r.Attempts) != 2 {
		t.Errorf("it ended after %d attempts", len(r.Attempts))
	}
}
