package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// timerLease is for how long a node has a timer to itself before another may
// decide it too, which turn would make harmless.
const timerLease = 10 * time.Second

// Shut names what must not be woken now. A delivery whose step's time is over is
// woken all the same, since it needs no call to move on.
type Shut struct {
	Scopes   []string         // waits held by these scopes
	Channels []notify.Channel // waits of these channels
}

// dueWaits takes due rows, urgent ones first. Each priority is a walk of its own
// along waits_by_due, so that waits that are not due cost nothing.
const dueWaits = `
select w.notification_id, w.step, w.target, w.turn, w.project, w.channel, w.priority, w.reason, w.scope, w.since, w.due,
  w.ends_at, w.pinned, w.provider, w.scopes
from unnest(array[1, 2, 3, 4]::int2[]) with ordinality as p (priority, place)
cross join lateral (
  select w.*, d.ends_at, d.pinned, d.provider, d.scopes
  from dispatcher.waits w
  join dispatcher.deliveries d using (notification_id, step, target)
  where w.priority = p.priority and w.due <= clock_timestamp()
    and (d.ends_at <= clock_timestamp() or w.reason in ('receipt', 'reconcile')
      or w.scope <> all ($1::text[]) and w.channel <> all ($2::text[]))
  order by w.due
  limit $3
  for update of w, d skip locked
) w
order by p.place, w.due
limit $3`

const leaseTimers = `
update dispatcher.waits w set due = clock_timestamp() + $5
from unnest($1::uuid[], $2::int2[], $3::int2[], $4::int4[]) as k (id, step, target, turn)
where w.notification_id = k.id and w.step = k.step and w.target = k.target and w.turn = k.turn`

const queueDeliveries = `
update dispatcher.deliveries d set status = 'queued', job_id = k.job_id, because = k.because
from unnest($1::uuid[], $2::int2[], $3::int2[], $4::int4[], $5::int8[], $6::text[]) as k (id, step, target, turn, job_id, because)
where d.notification_id = k.id and d.step = k.step and d.target = k.target and d.turn = k.turn
  and not d.final and d.claimed_by is null`

// Woken is what a [Store.Wake] did.
type Woken struct {
	Moved int // waits that became jobs
	// Timers are waits for knowledge (receipt, reconcile) that are over: what
	// that means is a decision. They stay, and come again after a while.
	Timers []Wait
}

// Wake moves at most limit due waits into the queue, except those that are shut.
// Rows that somebody else holds are skipped.
func (s *Store) Wake(ctx context.Context, shut Shut, limit int) (Woken, error) {
	var out Woken
	channels := make([]string, len(shut.Channels))
	for i, c := range shut.Channels {
		channels[i] = string(c)
	}
	if shut.Scopes == nil {
		shut.Scopes = []string{}
	}
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, dueWaits, shut.Scopes, channels, limit)
		if err != nil {
			return fmt.Errorf("read due waits: %w", err)
		}
		due, err := pgx.CollectRows(rows, scanDueWait)
		if err != nil {
			return fmt.Errorf("read due waits: %w", err)
		}
		var moving []dueWait
		for _, w := range due {
			if w.Reason == notify.WaitReceipt || w.Reason == notify.WaitReconcile {
				out.Timers = append(out.Timers, w.Wait)
			} else {
				moving = append(moving, w)
			}
		}
		out.Moved = len(moving)
		return s.wake(ctx, tx, moving, out.Timers)
	})
	if err != nil {
		return Woken{}, fmt.Errorf("wake: %w", err)
	}
	return out, nil
}

func (s *Store) wake(ctx context.Context, tx pgx.Tx, moving []dueWait, timers []Wait) error {
	p, b := newPack(), &pgx.Batch{}
	deliveries := make([]Delivery, len(moving))
	for i, w := range moving {
		deliveries[i] = Delivery{
			DeliveryID: w.DeliveryID, Turn: w.Turn, Project: w.Project, Channel: w.Channel, Priority: w.Priority,
			EndsAt: w.endsAt, Pinned: w.pinned, Provider: w.provider, Scopes: w.scopes, Because: string(w.Reason),
		}
		p.add(&deliveries[i])
	}
	if err := p.insert(ctx, tx, s.queue); err != nil {
		return err
	}
	if len(deliveries) > 0 {
		k := queueQueued(b, deliveries)
		b.Queue(deleteWaits, k.ids, k.step, k.target, k.turn)
	}
	if len(timers) > 0 {
		var k keys
		for _, t := range timers {
			k.add(t.DeliveryID, t.Turn)
		}
		b.Queue(leaseTimers, k.ids, k.step, k.target, k.turn, timerLease)
	}
	return send(ctx, tx, b)
}

// queueQueued adds the statement that marks deliveries as queued to b.
func queueQueued(b *pgx.Batch, deliveries []Delivery) keys {
	var k keys
	var jobs []int64
	var because []*string
	for i := range deliveries {
		d := &deliveries[i]
		k.add(d.DeliveryID, d.Turn)
		jobs, because = append(jobs, d.JobID), append(because, nullText(d.Because))
	}
	b.Queue(queueDeliveries, k.ids, k.step, k.target, k.turn, jobs, because)
	return k
}

type dueWait struct {
	Wait
	endsAt   time.Time
	pinned   string
	provider string
	scopes   []string
}

func scanDueWait(row pgx.CollectableRow) (dueWait, error) {
	var w dueWait
	var pinned, provider *string
	err := row.Scan(&w.Notification, &w.Step, &w.Target, &w.Turn, &w.Project, &w.Channel, &w.Priority, &w.Reason, &w.Scope, &w.Since,
		&w.Due, &w.endsAt, &pinned, &provider, &w.scopes)
	w.pinned, w.provider = zero(pinned), zero(provider)
	return w, err
}
