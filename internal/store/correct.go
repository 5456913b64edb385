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

// EventCorrected says that a delivery that had ended turned out otherwise.
const EventCorrected = "corrected"

// Correction is evidence about a delivery that has ended.
type Correction struct {
	DeliveryID
	// Status is what the evidence says: sent, delivered, read or failed. Only one of
	// a higher rank than the delivery's own changes it: a failed delivery is
	// corrected by delivered or read alone, and one that was canceled while it was
	// being called also by sent.
	Status notify.Status
	// Because says why it failed; empty otherwise.
	Because string
	// Supersedes stops what has not been sent of later steps, since this one has met
	// its criterion with that status.
	Supersedes bool
	// Receipts and Suppress are as in [Result], and written in any case.
	Receipts []uuid.UUID
	Suppress *Suppression
	// Strike, if not nil, counts against the address if the delivery is corrected.
	Strike *Strike
}

const correctDelivery = `
update dispatcher.deliveries set status = $4, because = case when stop is not null then because else $6 end
where notification_id = $1 and step = $2 and target = $3 and final
  and case when status = 'canceled' then $4 in ('sent', 'delivered', 'read')
    else array_position($5::text[], status) < array_position($5::text[], $4) end
returning project`

var correctionRanks = []string{"sent", "failed", "suppressed", "expired", "canceled", "delivered", "read"}

// Correct writes what late evidence says about a delivery that has ended. It
// restarts nothing. What had gone on in its place is stopped as by a cancel: calls
// under way finish and are shown.
func (s *Store) Correct(ctx context.Context, c Correction, now time.Time) (corrected bool, err error) {
	var changes listed
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		corrected = false
		b := &pgx.Batch{}
		queueApplied(b, c.Receipts)
		if c.Suppress != nil {
			queueSuppressions(b, []*Suppression{c.Suppress}, &changes)
		}
		if c.Supersedes {
			// As a cancel does, before any of its deliveries.
			if _, err := tx.Exec(ctx, "select from dispatcher.notifications where id = $1 for no key update", c.Notification); err != nil {
				return err
			}
		}
		var project string
		err := tx.QueryRow(ctx, correctDelivery, c.Notification, c.Step, c.Target, string(c.Status), correctionRanks, nullText(c.Because)).
			Scan(&project)
		if errors.Is(err, pgx.ErrNoRows) {
			return send(ctx, tx, b)
		}
		if err != nil {
			return err
		}
		corrected = true
		if c.Strike != nil {
			queueStrikes(b, []*Strike{c.Strike}, &changes)
		}
		events := []Event{{At: now, ID: c.DeliveryID, Project: project, Type: EventCorrected, Because: string(c.Status)}}
		if c.Supersedes {
			further, err := supersede(ctx, tx, b, c.DeliveryID, project, now)
			if err != nil {
				return err
			}
			events = append(events, further...)
		}
		queueEvents(b, events)
		return send(ctx, tx, b)
	})
	if err != nil {
		return false, fmt.Errorf("correct: %w", err)
	}
	s.tell(changes)
	return corrected, nil
}

const deleteLaterWaits = `
delete from dispatcher.waits w using dispatcher.deliveries d
where w.notification_id = $1 and w.step > $2 and d.notification_id = w.notification_id and d.step = w.step and d.target = w.target and d.final`

// supersede stops the steps after a delivery's and returns what that means for
// the story: the end, if nothing is under way any more.
func supersede(ctx context.Context, tx pgx.Tx, b *pgx.Batch, by DeliveryID, project string, now time.Time) ([]Event, error) {
	all, claimed, err := stopAll(ctx, tx, by.Notification, by.Step+1, stopSuperseded, now)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	b.Queue(deleteLaterWaits, by.Notification, by.Step)
	var events []Event
	for _, s := range all {
		if s.status == notify.Canceled {
			events = append(events, Event{
				At: now, ID: DeliveryID{by.Notification, s.step, s.target}, Project: project, Type: EventCanceled, Because: stopSuperseded,
			})
		}
	}
	if claimed > 0 {
		return events, nil
	}
	records, err := readRecords(ctx, tx, []uuid.UUID{by.Notification}, false)
	if err != nil {
		return nil, err
	}
	if status, final := records[0].Overall(); final {
		events = append(events, Event{
			At: now, ID: DeliveryID{Notification: by.Notification}, Whole: true, Project: project, Type: EventFinished, Because: string(status), Final: true,
		})
	}
	return events, nil
}
