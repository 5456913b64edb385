package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// EventAcknowledged is the event of the first acknowledgement. Where that ends
// the notification, EventFinished follows with its status.
const (
	EventAcknowledged = "acknowledged"
	EventFinished     = "finished"
)

// AckResult is the definitive answer to an acknowledgement.
type AckResult string

// The answers.
const (
	// Acknowledged: noted, and what had not been sent never will be.
	Acknowledged AckResult = "acknowledged"
	// AcknowledgedBefore: an earlier acknowledgement had done all of it.
	AcknowledgedBefore AckResult = "already_acknowledged"
	// AcknowledgedFinal: noted; there was nothing left to stop.
	AcknowledgedFinal AckResult = "already_final"
)

// Acknowledgement is what an acknowledgement did.
type Acknowledgement struct {
	Result AckResult
	At     time.Time // of the first acknowledgement
	// Calling counts calls that had begun before and could not be stopped. When it
	// is 0 nothing reaches the person after this.
	Calling int
}

const readAcknowledged = `
select m.acknowledged_at from dispatcher.notifications n left join dispatcher.marks m on m.notification_id = n.id
where n.id = $1 and n.project = $2
for no key update of n`

const markAcknowledged = `
insert into dispatcher.marks as m (notification_id, acknowledged_at) values ($1, $2)
on conflict (notification_id) do update set acknowledged_at = coalesce(m.acknowledged_at, excluded.acknowledged_at)`

// Acknowledge notes that the person has seen a notification of a project, and
// stops what has not been sent. Like a cancel it is free of races: a worker that
// is about to call either claimed first and is counted in Calling, or finds that
// it may not. A step that waits to be acknowledged has then met its criterion.
func (s *Store) Acknowledge(ctx context.Context, project string, id uuid.UUID, now time.Time) (Acknowledgement, error) {
	var a Acknowledgement
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		a = Acknowledgement{Result: AcknowledgedFinal, At: now}
		var before *time.Time
		err := tx.QueryRow(ctx, readAcknowledged, id, project).Scan(&before)
		if err != nil {
			return notFound(err)
		}
		var events []Event
		if before == nil {
			if events, err = announceNow(ctx, tx, id, project, now); err != nil {
				return err
			}
			stopped, _, err := stopAll(ctx, tx, id, 0, stopAcknowledged, now)
			if err != nil {
				return err
			}
			if len(stopped) > 0 {
				a.Result = Acknowledged
			}
		} else {
			a.Result, a.At = AcknowledgedBefore, *before
		}
		err = tx.QueryRow(ctx, "select count(*) from dispatcher.deliveries where notification_id = $1 and claimed_by is not null", id).
			Scan(&a.Calling)
		if err != nil || before != nil {
			return err
		}
		b := &pgx.Batch{}
		b.Queue("delete from dispatcher.waits where notification_id = $1", id)
		b.Queue(markAcknowledged, id, now)
		events = append(events, Event{At: now, ID: DeliveryID{Notification: id}, Whole: true, Project: project, Type: EventAcknowledged})
		if a.Result == Acknowledged && a.Calling == 0 {
			records, err := readRecords(ctx, tx, []uuid.UUID{id}, false)
			if err != nil {
				return err
			}
			status, final := records[0].Overall()
			events = append(events, Event{
				At: now, ID: DeliveryID{Notification: id}, Whole: true, Project: project, Type: EventFinished, Because: string(status), Final: final,
			})
		}
		queueEvents(b, events)
		return send(ctx, tx, b)
	})
	if err != nil {
		return Acknowledgement{}, fmt.Errorf("acknowledge: %w", err)
	}
	return a, nil
}
