package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
)

// deleteNotifications takes deliveries, attempts and events along: no key leads
// from them to their notification, since they must cost little to write, and to
// look for those left behind would mean to walk them all. How far they reached is noted, for
// readers of the events who come too late for them.
const deleteNotifications = `
with gone as (
  delete from dispatcher.notifications where id in (
    select n.id from dispatcher.notifications n
    where n.id < $1
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
select from gone`

// deleteWebhookEvents is the same for events about webhooks, which outlive them.
const deleteWebhookEvents = `
with told as (
  delete from dispatcher.events e using dispatcher.webhooks h
  where e.notification_id = h.id and e.at < $1 returning e.project, e.id
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

// Expire deletes, each at most batch rows at a time: notifications that ended
// before the given instant with all that belongs to them, and idempotency keys,
// batches and suppressions past their time, receipts that were parked for a week,
// strikes that count no longer, and changes of the suppression list and words of
// people as old as notifications that go. It never touches a notification that has not ended.
// deleted counts all of them; more says that there may be more to delete.
func (s *Store) Expire(ctx context.Context, endedBefore, now time.Time, batch int) (deleted int64, more bool, err error) {
	for _, step := range []struct {
		sql  string
		args []any
	}{
		{deleteNotifications, []any{firstIDAt(endedBefore), endedBefore, batch}},
		{deleteWebhookEvents, []any{endedBefore}},
		{deleteKeys, []any{now, batch}},
		{deleteSuppressions, []any{now, batch}},
		{deleteSuppressionEvents, []any{endedBefore, batch}},
		{deleteConsents, []any{endedBefore, batch}},
		{deleteStrikes, []any{now.Add(-strikesKept), batch}},
		{deleteBatches, []any{now, batch}},
		{deleteParked, []any{now.Add(-parkedFor), batch}},
	} {
		tag, err := s.pool.Exec(ctx, step.sql, step.args...)
		if err != nil {
			return deleted, false, fmt.Errorf("expire: %w", err)
		}
		deleted += tag.RowsAffected()
		more = more || tag.RowsAffected() == int64(batch)
	}
	return deleted, more, nil
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
