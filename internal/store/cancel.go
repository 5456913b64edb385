package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// EventCanceled is the event of a cancel that stopped something.
const EventCanceled = "canceled"

// What stops deliveries.
const (
	stopCanceled     = "canceled"
	stopAcknowledged = "acknowledged"
	stopSuperseded   = "superseded"
)

// A delivery that nobody has claimed ends here; one that was accepted keeps that
// status and only stops waiting. One that is being called is told to stop
// afterwards: its worker's record is late by a turn and is decided again. Both
// in one statement, or a delivery could pass between the two.
const stopDeliveries = `
update dispatcher.deliveries
set turn = turn + 1, stop = $3, final = claimed_by is null,
  finished_at = case when claimed_by is null then $2::timestamptz end,
  because = case when claimed_by is null then $3 else because end,
  job_id = case when claimed_by is null then null else job_id end,
  status = case when claimed_by is not null or status in ('sent', 'delivered', 'read') then status else 'canceled' end
where notification_id = $1 and step >= $4 and not final and (claimed_by is null or stop is null)
returning step, target, status, claimed_by is not null`

const stillMoving = `
select exists (select from dispatcher.deliveries
  where notification_id = $1 and step >= $2 and not final and (claimed_by is null or stop is null))`

const markCanceled = `
insert into dispatcher.marks as m (notification_id, canceled_at) values ($1, $2)
on conflict (notification_id) do update set canceled_at = coalesce(m.canceled_at, excluded.canceled_at)`

// Cancel stops a notification of a project and says definitively what that
// meant: see [CancelResult]. A worker that is about to call either claimed first,
// and the answer is [TooLate], or finds that it may not.
func (s *Store) Cancel(ctx context.Context, project string, id uuid.UUID, now time.Time) (CancelResult, error) {
	var result CancelResult
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		result, err = cancel(ctx, tx, project, id, now)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("cancel: %w", err)
	}
	return result, nil
}

// cancel is [Store.Cancel] in a transaction that must end with it.
func cancel(ctx context.Context, tx pgx.Tx, project string, id uuid.UUID, now time.Time) (CancelResult, error) {
	tag, err := tx.Exec(ctx, lockNotification, id, project)
	if err != nil {
		return "", err
	}
	if tag.RowsAffected() == 0 {
		return "", ErrNotFound
	}
	events, err := announceNow(ctx, tx, id, project, now)
	if err != nil {
		return "", err
	}
	stopped, claimed, err := stopAll(ctx, tx, id, 0, stopCanceled, now)
	if err != nil || len(stopped) == 0 {
		return AlreadyFinal, err
	}
	var calls int64
	err = tx.QueryRow(ctx, "select sum(calls) from dispatcher.deliveries where notification_id = $1", id).Scan(&calls)
	if err != nil {
		return "", err
	}
	result := Canceled
	if calls > 0 {
		result = TooLate
	}
	b := &pgx.Batch{}
	b.Queue("delete from dispatcher.waits where notification_id = $1", id)
	b.Queue(markCanceled, id, now)
	queueEvents(b, append(events, Event{
		At: now, ID: DeliveryID{Notification: id}, Whole: true, Project: project, Type: EventCanceled, Because: string(result),
		Final: claimed == 0,
	}))
	return result, send(ctx, tx, b)
}

// notFound turns the absence of a row into [ErrNotFound].
func notFound(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

// stopped is a delivery that was stopped, in the state that it is in since.
type stopped struct {
	step, target int16
	status       notify.Status
	calling      bool
}

// stopAll stops every delivery of a notification from a step on, and counts those of
// them that are being called. A record that it waited for may have started the
// next step or a retry, which only a later snapshot shows, so it looks until
// nothing is left.
func stopAll(ctx context.Context, tx pgx.Tx, id uuid.UUID, from int16, stop string, now time.Time) (all []stopped, claimed int, err error) {
	for moving := true; moving; {
		rows, err := tx.Query(ctx, stopDeliveries, id, now, stop, from)
		if err != nil {
			return nil, 0, err
		}
		var s stopped
		_, err = pgx.ForEachRow(rows, []any{&s.step, &s.target, &s.status, &s.calling}, func() error {
			all = append(all, s)
			if s.calling {
				claimed++
			}
			return nil
		})
		if err != nil {
			return nil, 0, err
		}
		if err := tx.QueryRow(ctx, stillMoving, id, from).Scan(&moving); err != nil {
			return nil, 0, err
		}
	}
	return all, claimed, nil
}
