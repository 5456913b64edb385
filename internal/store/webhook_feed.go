package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// WebhookEvent is an event with the webhook that is to be told of it.
type WebhookEvent struct {
	LoggedEvent
	Reference string // the notification's
	Webhook   uuid.UUID
	URL       string
}

const feedStart = `
select c.position, (select min(after_event) from dispatcher.webhooks where disabled_at is null)
from dispatcher.webhook_cursor c for update of c skip locked`

// feedEnd is asked before the events are read: ids are in the order of commits, so
// what lies below it stays as it is.
const feedEnd = `select count(*), coalesce(max(id), 0) from (select id from dispatcher.events where id > $1 order by id limit $2) e`

const feedEvents = `
select ` + eventColumns + `, coalesce(n.reference, ''), h.id, h.url
from (select * from dispatcher.events where id > $1 and id <= $2) e
join dispatcher.webhooks h on h.project = e.project and h.disabled_at is null and h.after_event < e.id
  and (cardinality(h.events) = 0 or e.type = any(h.events))
left join dispatcher.notifications n on n.id = e.notification_id
order by e.id, h.id`

// FeedWebhooks turns at most limit events into calls of the webhooks that want to
// be told of them. What makeCalls returns and how far that reaches are written in
// one transaction, so that each event becomes one call of each webhook, whoever
// dies when. It does nothing while another process is at it. more says that there
// are more events to read at once.
func (s *Store) FeedWebhooks(ctx context.Context, limit int, makeCalls func([]WebhookEvent) ([]Acceptance, error)) (more bool, err error) {
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var position int64
		var oldest *int64
		err := tx.QueryRow(ctx, feedStart).Scan(&position, &oldest)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && oldest == nil {
			return nil // somebody else feeds them, or there are none
		}
		if err != nil {
			return fmt.Errorf("read cursor: %w", err)
		}
		start := max(position, *oldest)
		var count int
		var end int64
		if err := tx.QueryRow(ctx, feedEnd, start, limit).Scan(&count, &end); err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		if count == 0 {
			return nil
		}
		more = count == limit
		if err := feed(ctx, tx, s, start, end, makeCalls); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "update dispatcher.webhook_cursor set position = $1", end)
		return wrap("move cursor", err)
	})
	if err != nil {
		return false, fmt.Errorf("feed webhooks: %w", err)
	}
	return more, nil
}

func feed(ctx context.Context, tx pgx.Tx, s *Store, start, end int64, makeCalls func([]WebhookEvent) ([]Acceptance, error)) error {
	rows, err := tx.Query(ctx, feedEvents, start, end)
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (w WebhookEvent, err error) {
		w.LoggedEvent, err = scanEvent(row, &w.Reference, &w.Webhook, &w.URL)
		return w, err
	})
	if err != nil {
		return fmt.Errorf("read events: %w", err)
	}
	if len(events) == 0 {
		return nil
	}
	calls, err := makeCalls(events)
	if err != nil {
		return err
	}
	fresh := make([]int, len(calls))
	for i := range fresh {
		fresh[i] = i
	}
	return s.acceptFresh(ctx, tx, calls, fresh, true)
}

// References returns the references of notifications that have one.
func (s *Store) References(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error) {
	rows, err := s.pool.Query(ctx, "select id, reference from dispatcher.notifications where id = any($1) and reference is not null", ids)
	if err != nil {
		return nil, fmt.Errorf("read references: %w", err)
	}
	out := map[uuid.UUID]string{}
	var id uuid.UUID
	var reference string
	_, err = pgx.ForEachRow(rows, []any{&id, &reference}, func() error { out[id] = reference; return nil })
	return out, wrap("read references", err)
}

// positionSlack is how far an event's instant may be from its neighbours': it is
// taken before the flush that gives it its place.
const positionSlack = time.Minute

// PositionAt returns a position before every event of the given instant and
// later. Some after it may be a little older. Events have no index by time; this
// halves its way along the positions.
func (s *Store) PositionAt(ctx context.Context, at time.Time) (int64, error) {
	at = at.Add(-positionSlack)
	before, err := s.NewestEvent(ctx)
	if err != nil {
		return 0, err
	}
	low := int64(0) // every event up to it is older
	for low < before {
		middle := low + (before-low)/2
		var id int64
		var when time.Time
		err := s.pool.QueryRow(ctx, "select id, at from dispatcher.events where id > $1 order by id limit 1", middle).Scan(&id, &when)
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && !when.Before(at):
			before = middle
		case err != nil:
			return 0, fmt.Errorf("look for an instant in the events: %w", err)
		default:
			low = id
		}
	}
	return low, nil
}

// WebhookCalls reads the calls of a webhook with their attempts, newest first, at
// most limit and older than before, if that is not the zero id.
func (s *Store) WebhookCalls(ctx context.Context, project string, webhook, before uuid.UUID, limit int) ([]Record, error) {
	sql, args := listIDs(Filter{Project: HiddenProject(project), Reference: webhook.String()}, before, limit)
	ids, err := collect(ctx, s.pool, sql, args)
	if err != nil {
		return nil, fmt.Errorf("list a webhook's calls: %w", err)
	}
	out, err := readRecords(ctx, s.pool, ids, true)
	return out, wrap("list a webhook's calls", err)
}
