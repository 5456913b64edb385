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

// A delivery that nobody has claimed ends here. One that was accepted keeps that
// status and only stops waiting.
const cancelIdle = `
update dispatcher.deliveries
set turn = turn + 1, final = true, finished_at = $2, because = 'canceled', job_id = null, stop = 'canceled',
  status = case when status in ('sent', 'delivered', 'read') then status else 'canceled' end
where notification_id = $1 and not final and claimed_by is null`

// One that is being called is told to stop afterwards: its worker's record is
// late by a turn and is decided again.
const cancelClaimed = `
update dispatcher.deliveries set turn = turn + 1, stop = 'canceled'
where notification_id = $1 and not final and claimed_by is not null and stop is null`

const markCanceled = `
insert into dispatcher.marks as m (notification_id, canceled_at) values ($1, $2)
on conflict (notification_id) do update set canceled_at = coalesce(m.canceled_at, excluded.canceled_at)`

// Cancel stops a notification of a project and says definitively what that
// meant: see [CancelResult]. A worker that is about to call either claimed first,
// and the answer is [TooLate], or finds that it may not.
func (s *Store) Cancel(ctx context.Context, project string, id uuid.UUID, now time.Time) (CancelResult, error) {
	result := AlreadyFinal
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "select from dispatcher.notifications where id = $1 and project = $2 for no key update", id, project)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return ErrNotFound
		}
		idle, err := tx.Exec(ctx, cancelIdle, id, now)
		if err != nil {
			return err
		}
		claimed, err := tx.Exec(ctx, cancelClaimed, id)
		if err != nil {
			return err
		}
		if idle.RowsAffected()+claimed.RowsAffected() == 0 {
			return nil
		}
		var calls int64
		err = tx.QueryRow(ctx, "select sum(calls) from dispatcher.deliveries where notification_id = $1", id).Scan(&calls)
		if err != nil {
			return err
		}
		if result = Canceled; calls > 0 {
			result = TooLate
		}
		b := &pgx.Batch{}
		b.Queue("delete from dispatcher.waits where notification_id = $1", id)
		b.Queue(markCanceled, id, now)
		queueEvents(b, []Event{{
			At: now, ID: DeliveryID{Notification: id}, Whole: true, Project: project, Type: EventCanceled, Because: string(result),
			Final: claimed.RowsAffected() == 0,
		}})
		return send(ctx, tx, b)
	})
	if err != nil {
		return "", fmt.Errorf("cancel: %w", err)
	}
	return result, nil
}

// EventCorrected says that a delivery that had ended turned out better.
const EventCorrected = "corrected"

// Correct raises the status of a delivery that has ended, when evidence of a
// higher rank comes late. A canceled delivery whose call turns out accepted
// shows that; a failed one is only corrected by delivered or read.
func (s *Store) Correct(ctx context.Context, id DeliveryID, status notify.Status, now time.Time) error {
	err := s.inTx(ctx, func(tx pgx.Tx) error {
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
