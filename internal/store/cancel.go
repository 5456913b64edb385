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
where notification_id = $1 and not final and (claimed_by is null or stop is null)
returning claimed_by is not null`

const stillMoving = `
select exists (select from dispatcher.deliveries
  where notification_id = $1 and not final and (claimed_by is null or stop is null))`

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
	tag, err := tx.Exec(ctx, "select from dispatcher.notifications where id = $1 and project = $2 for no key update", id, project)
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
	stopped, claimed, err := stopAll(ctx, tx, id, stopCanceled, now)
	if err != nil || stopped == 0 {
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

// stopAll stops every delivery of a notification and counts them, and those of
// them that are being called. A record that it waited for may have started the
// next step or a retry, which only a later snapshot shows, so it looks until
// nothing is left.
func stopAll(ctx context.Context, tx pgx.Tx, id uuid.UUID, stop string, now time.Time) (stopped, claimed int, err error) {
	for moving := true; moving; {
		rows, err := tx.Query(ctx, stopDeliveries, id, now, stop)
		if err != nil {
			return 0, 0, err
		}
		calling, err := pgx.CollectRows(rows, pgx.RowTo[bool])
		if err != nil {
			return 0, 0, err
		}
		stopped += len(calling)
		for _, c := range calling {
			if c {
				claimed++
			}
		}
		if err := tx.QueryRow(ctx, stillMoving, id).Scan(&moving); err != nil {
			return 0, 0, err
		}
	}
	return stopped, claimed, nil
}

// EventCorrected says that a delivery that had ended turned out better.
const EventCorrected = "corrected"

// Correct raises the status of a delivery that has ended, when evidence of a
// higher rank comes late. A canceled delivery whose call turns out accepted
// shows that; a failed one is only corrected by delivered or read.
func (s *Store) Correct(ctx context.Context, id DeliveryID, status notify.Status, now time.Time) error {
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var project string
		err := tx.QueryRow(ctx, `
			update dispatcher.deliveries set status = $4
			where notification_id = $1 and step = $2 and target = $3 and final
			  and case when status = 'canceled' then $4 in ('sent', 'delivered', 'read')
			    else array_position($5::text[], status) < array_position($5::text[], $4) end
			returning project`, id.Notification, id.Step, id.Target, string(status),
			[]string{"sent", "failed", "suppressed", "expired", "canceled", "delivered", "read"}).Scan(&project)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		b := &pgx.Batch{}
		queueEvents(b, []Event{{At: now, ID: id, Project: project, Type: EventCorrected, Because: string(status)}})
		return send(ctx, tx, b)
	})
	if err != nil {
		return fmt.Errorf("correct: %w", err)
	}
	return nil
}
