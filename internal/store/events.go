package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Errors of a position in the events.
var (
	// ErrEventsGone says that events after the position have been deleted.
	ErrEventsGone = errors.New("events after this position are no longer kept")
	// ErrEventsAhead says that no event has come that far: the position is of
	// another database, or of this one before it was restored from a backup.
	ErrEventsAhead = errors.New("no event has this position yet")
)

// LoggedEvent is an event as it was stored.
type LoggedEvent struct {
	Event
	// Seq is the event's position. It grows in the order of commits and has holes.
	Seq int64
	// Channel is the delivery's; empty where the event is about the whole.
	Channel notify.Channel
}

// EventFilter asks for a page of a project's events.
type EventFilter struct {
	Project      string
	Notification uuid.UUID // the zero id for all of the project
	Types        []string  // nil for all
	Final        bool      // only those that end a notification
	After        int64     // positions greater than this one
	Limit        int       // 1 to 1000
}

// Matches reports whether an event is one of those that are asked for, its
// position aside.
func (f *EventFilter) Matches(e *LoggedEvent) bool {
	if e.Project != f.Project || f.Notification != uuid.Nil && e.ID.Notification != f.Notification || f.Final && !e.Final {
		return false
	}
	if f.Types == nil {
		return true
	}
	return slices.Contains(f.Types, e.Type)
}

// EventPage is a page of events, in the order of their positions.
type EventPage struct {
	Events []LoggedEvent
	// Next is the position that the page reaches to. It may be beyond the last
	// event: those between belong to others or do not match.
	Next int64
	// More says that the page ended before the events did.
	More bool
}

// scanEvents is how many events a page of a project looks at, most of which may
// be other projects'.
const scanEvents = 5000

const eventColumns = `e.id, e.at, e.until, e.notification_id, e.step, e.target, e.final, e.project, e.type, e.because,
  (select d.channel from dispatcher.deliveries d
    where d.notification_id = e.notification_id and d.step = e.step and d.target = e.target)`

// The last row of the window comes along, whosever it is, since it says how far
// the page reaches.
const projectEvents = `
with w as materialized (
  select *, project = $2 and ($3::text[] is null or type = any($3)) and (final or not $4) as wanted
  from (select * from dispatcher.events where id > $1 order by id limit $5) all_of_them
)
select ` + eventColumns + `, wanted, (select count(*) from w) = $5
from w e where wanted or id = (select max(id) from w)
order by e.id limit $6`

// A notification has few events, and an index that leads to them.
const notificationEvents = `
select ` + eventColumns + `, true, false
from dispatcher.events e
where e.notification_id = $7 and e.id > $1 and e.project = $2 and ($3::text[] is null or e.type = any($3)) and (e.final or not $4)
  and $5::int is not null
order by e.id limit $6`

const eventBounds = `
select coalesce((select id from dispatcher.event_horizons where project = $1), 0),
  greatest((select max(id) from dispatcher.events), (select max(id) from dispatcher.event_horizons), 0)`

// EventBounds returns the oldest position of a project after which nothing has
// been deleted, and the newest position of all.
func (s *Store) EventBounds(ctx context.Context, project string) (oldest, newest int64, err error) {
	if err := s.pool.QueryRow(ctx, eventBounds, project).Scan(&oldest, &newest); err != nil {
		return 0, 0, fmt.Errorf("read bounds of events: %w", err)
	}
	return oldest, newest, nil
}

// Events reads a page. A position that retention has overtaken is
// [ErrEventsGone], except for one notification, which keeps all its events as
// long as it is kept; one that is ahead of all events is [ErrEventsAhead].
func (s *Store) Events(ctx context.Context, f EventFilter) (EventPage, error) {
	limit := min(max(f.Limit, 1), 1000)
	sql, args := projectEvents, []any{f.After, f.Project, f.Types, f.Final, scanEvents, limit + 1}
	if f.Notification != uuid.Nil {
		sql, args = notificationEvents, append(args, f.Notification)
	}
	page := EventPage{Next: f.After}
	var oldest, newest int64
	b := &pgx.Batch{}
	b.Queue(sql, args...).Query(func(rows pgx.Rows) error { return page.read(rows, limit) })
	// After the page, never before: what is deleted between the two must show.
	b.Queue(eventBounds, f.Project).QueryRow(func(row pgx.Row) error { return row.Scan(&oldest, &newest) })
	if err := s.sendAlone(ctx, b); err != nil {
		return EventPage{}, fmt.Errorf("read events: %w", err)
	}
	switch {
	case f.After > newest:
		return EventPage{}, ErrEventsAhead
	case f.After < oldest && f.Notification == uuid.Nil:
		return EventPage{}, ErrEventsGone
	}
	return page, nil
}

// read takes the rows of a page until limit events have matched.
func (p *EventPage) read(rows pgx.Rows, limit int) error {
	for rows.Next() {
		var wanted bool
		e, err := scanEvent(rows, &wanted, &p.More)
		if err != nil {
			return err
		}
		if len(p.Events) == limit {
			p.More = true
			break
		}
		if p.Next = e.Seq; wanted {
			p.Events = append(p.Events, e)
		}
	}
	rows.Close()
	return rows.Err()
}

const tailEvents = `
select ` + eventColumns + ` from (select * from dispatcher.events where id > $1 order by id limit $2) e order by e.id`

// TailEvents reads the events of all projects after a position, at most limit.
func (s *Store) TailEvents(ctx context.Context, after int64, limit int) ([]LoggedEvent, error) {
	rows, err := s.pool.Query(ctx, tailEvents, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	events, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (LoggedEvent, error) { return scanEvent(row) })
	if err != nil {
		return nil, fmt.Errorf("read events: %w", err)
	}
	return events, nil
}

// NewestEvent returns the newest position of all, 0 before the first event.
func (s *Store) NewestEvent(ctx context.Context) (int64, error) {
	_, newest, err := s.EventBounds(ctx, "")
	return newest, err
}

// Has reports whether a project has a notification.
func (s *Store) Has(ctx context.Context, project string, id uuid.UUID) (bool, error) {
	var has bool
	err := s.pool.QueryRow(ctx, "select exists (select from dispatcher.notifications where id = $1 and project = $2)", id, project).Scan(&has)
	if err != nil {
		return false, fmt.Errorf("look for notification: %w", err)
	}
	return has, nil
}

func scanEvent(row pgx.CollectableRow, more ...any) (LoggedEvent, error) {
	var e LoggedEvent
	var at time.Time
	var step, target *int16
	var because, channel *string
	var until *time.Time
	fields := []any{&e.Seq, &at, &until, &e.ID.Notification, &step, &target, &e.Final, &e.Project, &e.Type, &because, &channel}
	if err := row.Scan(append(fields, more...)...); err != nil {
		return LoggedEvent{}, err
	}
	e.At, e.Because, e.Channel = at.UTC(), zero(because), notify.Channel(zero(channel))
	if until != nil {
		e.Until = until.UTC()
	}
	e.ID.Step, e.ID.Target, e.Whole = zero(step), zero(target), step == nil
	return e, nil
}
