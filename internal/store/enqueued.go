package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const anyEnqueued = "select exists (select from dispatcher.enqueued)"

// What is to be canceled already is announced by the cancel, and moves no more.
const takeEnqueued = `
select e.notification_id from dispatcher.enqueued e
where not exists (select from dispatcher.cancel_requests r where r.notification_id = e.notification_id)
order by 1 limit $1 for update of e skip locked`

// takeFreeEnqueued is takeEnqueued without the deliveries that somebody else has
// locked. Its limit is one of deliveries.
const takeFreeEnqueued = `
select e.notification_id from dispatcher.enqueued e join dispatcher.deliveries d using (notification_id)
where not exists (select from dispatcher.cancel_requests r where r.notification_id = e.notification_id)
order by 1 limit $1 for update of e skip locked for no key update of d skip locked`

// A step's time runs from the instant it becomes due. A transaction that stayed
// open after it enqueued, or a service that was down, must not use it up, so it
// begins here where that was more than a moment ago.
const startEnqueued = `
update dispatcher.deliveries d
set scopes = string_to_array(k.scopes, ' '),
  started_at = case when k.late then c.now else d.started_at end,
  ends_at = case when k.late then least(d.expires_at, c.now + (d.ends_at - d.started_at)) else d.ends_at end
from (select clock_timestamp() as now) c, lateral (
  select id, step, target, scopes, started < c.now - interval '1 second' as late
  from unnest($1::uuid[], $2::int2[], $3::int2[], $4::text[], $5::timestamptz[]) as k (id, step, target, scopes, started)) k
where d.notification_id = k.id and d.step = k.step and d.target = k.target`

const deleteEnqueued = "delete from dispatcher.enqueued where notification_id = any($1)"

// Announce takes at most limit notifications that dispatcher.enqueue wrote in
// their callers' transactions, and does what that could not: it writes the
// accepted event, gives each delivery the scopes that the configuration makes of
// its target, and lets the waker move them. It returns their priorities. Rows
// that another node holds are skipped.
func (s *Store) Announce(ctx context.Context, limit int, now time.Time, scopes func(*notify.Notification, *Delivery) []string) ([]notify.Priority, error) {
	// Mostly there is nothing to do, and that should cost one round trip.
	var some bool
	if err := s.pool.QueryRow(ctx, anyEnqueued).Scan(&some); err != nil || !some {
		return nil, wrapAnnounce(err)
	}
	var out []notify.Priority
	err := s.yielding(func(wary bool) error {
		return s.inFlush(ctx, freshPlan, func(ctx context.Context, tx pgx.Tx) (err error) {
			out, err = announce(ctx, tx, limit, wary, now, scopes)
			return err
		})
	})
	if err != nil {
		return nil, wrapAnnounce(err)
	}
	return out, nil
}

func announce(ctx context.Context, tx pgx.Tx, limit int, wary bool, now time.Time, scopes func(*notify.Notification, *Delivery) []string) ([]notify.Priority, error) {
	records, err := takeRecords(ctx, tx, limit, wary)
	if err != nil || len(records) == 0 {
		return nil, err
	}
	b, events := &pgx.Batch{}, make([]Event, len(records))
	out, ids := make([]notify.Priority, len(records)), make([]uuid.UUID, len(records))
	for i := range records {
		n := &records[i].Notification
		out[i], ids[i], events[i] = n.Priority, n.ID, acceptedEvent(n.ID, n.Project, now)
	}
	queueEnqueuedStarts(b, records, scopes)
	b.Queue(deleteEnqueued, ids)
	queueEvents(b, events)
	return out, send(ctx, tx, b)
}

// takeRecords locks and reads what is to be announced: with wary set, only
// notifications all of whose deliveries nobody else has locked.
func takeRecords(ctx context.Context, tx pgx.Tx, limit int, wary bool) ([]Record, error) {
	sql := takeEnqueued
	if wary {
		sql = takeFreeEnqueued
		limit += notify.MaxSteps * notify.MaxDevices // so that no notification is too large for it
	}
	rows, err := tx.Query(ctx, sql, limit)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, err
	}
	free := map[uuid.UUID]int{}
	for _, id := range ids {
		free[id]++
	}
	records, err := readRecords(ctx, tx, slices.Collect(maps.Keys(free)), false)
	if wary {
		records = slices.DeleteFunc(records, func(r Record) bool { return len(r.Deliveries) > free[r.Notification.ID] })
	}
	return records, err
}

func wrapAnnounce(err error) error {
	if err != nil {
		return fmt.Errorf("announce what was enqueued: %w", err)
	}
	return nil
}

func acceptedEvent(id uuid.UUID, project string, at time.Time) Event {
	return Event{At: at, ID: DeliveryID{Notification: id}, Whole: true, Project: project, Type: EventAccepted}
}

func queueEnqueuedStarts(b *pgx.Batch, records []Record, scopes func(*notify.Notification, *Delivery) []string) {
	var (
		k       keys
		joined  []*string
		started []time.Time
	)
	for i := range records {
		r := &records[i]
		for j := range r.Deliveries {
			d := &r.Deliveries[j]
			var own []string
			if r.Invalid == nil {
				own = scopes(&r.Notification, d)
			}
			k.add(d.DeliveryID, d.Turn)
			joined, started = append(joined, nullText(strings.Join(own, " "))), append(started, d.StartedAt)
		}
	}
	b.Queue(startEnqueued, k.ids, k.step, k.target, joined, started)
}

// announceNow removes the mark of one notification that nobody has announced yet,
// for whoever has an event to write about it first, and returns the event that
// must stand before theirs.
func announceNow(ctx context.Context, tx pgx.Tx, id uuid.UUID, project string, now time.Time) ([]Event, error) {
	tag, err := tx.Exec(ctx, deleteEnqueued, []uuid.UUID{id})
	if err != nil || tag.RowsAffected() == 0 {
		return nil, err
	}
	return []Event{acceptedEvent(id, project, now)}, nil
}
