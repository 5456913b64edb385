package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// deleteNotifications takes deliveries, attempts and events along: no key leads
// from them to their notification, since they must cost little to write, and to
// look for those left behind would mean to walk them all. How far they reached is noted, for
// readers of the events who come too late for them.
const deleteNotifications = `
with gone as (
  delete from dispatcher.notifications where id in (
    select n.id from dispatcher.notifications n
    where n.id < $1 and n.id > $4
      and not exists (select from dispatcher.deliveries d where d.notification_id = n.id
        and (not d.final or d.finished_at >= $2))
    order by n.id limit $3
    for update skip locked)
  returning id
), deliveries as (
  delete from dispatcher.deliveries d using gone where d.notification_id = gone.id
), attempts as (
  delete from dispatcher.attempts a using gone where a.notification_id = gone.id
), told as (
  delete from dispatcher.events e using gone where e.notification_id = gone.id returning e.project, e.id
), horizons as (
  insert into dispatcher.event_horizons as h (project, id)
  select project, max(id) from told group by project order by project
  on conflict (project) do update set id = greatest(h.id, excluded.id)
)
select id from gone`

// deleteWebhookEvents is the same for events about webhooks, which outlive them.
const deleteWebhookEvents = `
with told as (
  delete from dispatcher.events where id in (
    select e.id from dispatcher.webhooks h join dispatcher.events e on e.notification_id = h.id
    where e.at < $1 limit $2)
  returning project, id
), horizons as (
  insert into dispatcher.event_horizons as h (project, id)
  select project, max(id) from told group by project order by project
  on conflict (project) do update set id = greatest(h.id, excluded.id)
)
select from told`

const deleteBatches = `
delete from dispatcher.batches where (project, key) in (
  select project, key from dispatcher.batches where expires_at < $1 and lease_until < $1 order by expires_at limit $2
  for update skip locked)`

const deleteSuppressions = `
with gone as (
  delete from dispatcher.suppressions where (project, channel, address) in (
    select project, channel, address from dispatcher.suppressions where until < $1 limit $2 for update skip locked)
  returning *
)
insert into dispatcher.suppression_events (at, project, channel, address, action, reason, source, until)
select until, project, channel, address, 'expired', reason, source, until from gone`

const deleteSuppressionEvents = `
delete from dispatcher.suppression_events where id in (
  select id from dispatcher.suppression_events where at < $1 order by at limit $2 for update skip locked)`

// deleteConsents forgets what was said, when no provider repeats it any more. Stops
// that hold are remembered as such.
const deleteConsents = `
delete from dispatcher.consents where (account, channel, address, word) in (
  select account, channel, address, word from dispatcher.consents where heard_at < $1 order by heard_at limit $2
  for update skip locked)`

const deleteStrikes = `
delete from dispatcher.address_strikes where (project, channel, address) in (
  select project, channel, address from dispatcher.address_strikes where last_at < $1 order by last_at limit $2
  for update skip locked)`

const deleteKeys = `
delete from dispatcher.idempotency_keys where (project, route, key) in (
  select project, route, key from dispatcher.idempotency_keys where expires_at < $1 order by expires_at limit $2
  for update skip locked)`

// parkedFor is how long receipts of messages that nobody knows are kept.
const parkedFor = 7 * 24 * time.Hour

// deleteParked forgets receipts of messages that nobody knew for a week: whoever
// made the call would have recorded it long since.
const deleteParked = `
delete from dispatcher.receipts where id in (
  select id from dispatcher.receipts where applied_at is null and notification_id is null and received_at < $1
  order by look_at limit $2 for update skip locked)`

// Expire deletes what nobody needs any more: notifications that ended before the
// given instant with all that belongs to them, and idempotency keys, batches and
// suppressions past their time, receipts that were parked for a week, strikes that
// count no longer, and changes of the suppression list and words of people as old
// as notifications that go. It never touches a notification that has not ended. It
// works in transactions of at most batch rows each and returns how many went, also
// where an error or the end of ctx broke it off.
func (s *Store) Expire(ctx context.Context, endedBefore, now time.Time, batch int) (deleted int64, err error) {
	deleted, err = s.expireNotifications(ctx, endedBefore, batch)
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{deleteWebhookEvents, []any{endedBefore, batch}},
		{deleteKeys, []any{now, batch}},
		{deleteSuppressions, []any{now, batch}},
		{deleteSuppressionEvents, []any{endedBefore, batch}},
		{deleteConsents, []any{endedBefore, batch}},
		{deleteStrikes, []any{now.Add(-strikesKept), batch}},
		{deleteBatches, []any{now, batch}},
		{deleteParked, []any{now.Add(-parkedFor), batch}},
	} {
		for more := true; more && err == nil; {
			var tag pgconn.CommandTag
			tag, err = s.pool.Exec(ctx, step.sql, step.args...)
			deleted += tag.RowsAffected()
			more = tag.RowsAffected() == int64(batch)
		}
	}
	if err != nil {
		return deleted, fmt.Errorf("expire: %w", err)
	}
	return deleted, nil
}

// expireNotifications walks the notifications once: those that are old and have not
// ended, such as what is to be sent in a year, must not be read again for each
// batch.
func (s *Store) expireNotifications(ctx context.Context, endedBefore time.Time, batch int) (deleted int64, err error) {
	var last uuid.UUID
	for {
		rows, err := s.pool.Query(ctx, deleteNotifications, firstIDAt(endedBefore), endedBefore, batch, last)
		if err != nil {
			return deleted, err
		}
		gone, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return deleted, err
		}
		deleted += int64(len(gone))
		if len(gone) < batch {
			return deleted, nil
		}
		last = slices.MaxFunc(gone, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	}
}

// firstIDAt returns the smallest UUIDv7 of an instant.
func firstIDAt(t time.Time) uuid.UUID {
	var id uuid.UUID
	ms := uint64(max(t.UnixMilli(), 0))
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6], id[8] = 0x70, 0x80
	return id
}
