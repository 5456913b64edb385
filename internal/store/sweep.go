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

// lost finds deliveries that nothing will move: queued without a job that can
// still run, claimed by a node that is not registered or by a job that is over
// for longer than any call takes, or waiting without a wait. It walks the primary key, since an index on what changes would cost
// every delivery; the grace keeps it off rows in mid-move.
const lost = `
select ` + deliveryColumnsOfD + `
from dispatcher.deliveries d
where d.notification_id > $1 and d.notification_id <= $2 and not d.final
  and case d.status
    when 'queued' then not exists (select from dispatcher.river_job j
      where j.id = d.job_id and j.state in ('available', 'pending', 'retryable', 'running', 'scheduled'))
    when 'sending' then d.claimed_at < clock_timestamp() - interval '5 seconds'
        and not exists (select from dispatcher.nodes n where n.id = d.claimed_by)
      or d.claimed_at < clock_timestamp() - interval '10 minutes'
        and not exists (select from dispatcher.river_job j where j.id = d.job_id and j.state = 'running')
    else not exists (select from dispatcher.waits w
      where w.notification_id = d.notification_id and w.step = d.step and w.target = d.target and w.turn = d.turn)
  end
order by d.notification_id
limit 500
for update of d skip locked`

const sliceEnd = `
select notification_id from (select distinct notification_id from dispatcher.deliveries
  where notification_id > $1 order by 1 limit $2) s order by 1 desc limit 1`

// Swept is what one slice of a sweep did.
type Swept struct {
	Requeued int        // put back into the queue
	Rewaited int        // given a wait again
	Orphans  []Delivery // claimed by a node or a job that is gone: to be settled as unknown
	// Next is where the following slice begins; zero when the walk is at its end.
	Next uuid.UUID
}

// Sweep looks at up to size notifications after the given id and puts right what
// has neither a job nor a wait.
func (s *Store) Sweep(ctx context.Context, after uuid.UUID, size int, now time.Time) (Swept, error) {
	var out Swept
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var end uuid.UUID
		switch err := tx.QueryRow(ctx, sliceEnd, after, size).Scan(&end); {
		case errors.Is(err, pgx.ErrNoRows):
			return nil
		case err != nil:
			return err
		}
		rows, err := tx.Query(ctx, lost, after, end)
		if err != nil {
			return err
		}
		found, err := pgx.CollectRows(rows, scanDelivery)
		if err != nil {
			return err
		}
		out.Next = end
		if len(found) == 500 {
			out.Next = found[len(found)-2].Notification // the last one's other deliveries may be beyond the limit
		}
		var queued []Delivery
		var waits []Wait
		for _, d := range found {
			switch d.Status {
			case notify.Sending:
				out.Orphans = append(out.Orphans, d)
			case notify.Sent, notify.Delivered, notify.Read, notify.Uncertain:
				reason := notify.WaitReceipt
				if d.Status == notify.Uncertain {
					reason = notify.WaitReconcile
				}
				waits = append(waits, Wait{
					DeliveryID: d.DeliveryID, Turn: d.Turn, Project: d.Project, Channel: d.Channel, Priority: d.Priority,
					Reason: reason, Since: now, Due: d.EndsAt,
				})
			default:
				queued = append(queued, d)
			}
		}
		out.Requeued, out.Rewaited = len(queued), len(waits)
		b := &pgx.Batch{}
		queueWaits(b, waits)
		if err := send(ctx, tx, b); err != nil {
			return err
		}
		return s.requeueAlone(ctx, tx, queued)
	})
	if err != nil {
		return Swept{}, fmt.Errorf("sweep: %w", err)
	}
	return out, nil
}
