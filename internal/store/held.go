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

// Held is what one scope has held longest.
type Held struct {
	Scope   string
	Channel notify.Channel
	Reason  notify.WaitReason
	Since   time.Time // database clock
	Age     time.Duration
}

// oldestHeld hops along waits_by_hold like heldGroups. The first row of a group
// is its oldest one, so that no other row of it is read.
const oldestHeld = `
with recursive g as (
  (select scope, priority, project, channel, reason, since from dispatcher.waits where held
   order by scope, priority, project, since limit 1)
  union all
  select n.* from g cross join lateral (
    select w.scope, w.priority, w.project, w.channel, w.reason, w.since from dispatcher.waits w
    where w.held and (w.scope, w.priority, w.project) > (g.scope, g.priority, g.project)
    order by w.scope, w.priority, w.project, w.since limit 1) n
)
select distinct on (scope) scope, channel, reason, since, extract(epoch from clock_timestamp() - since)
from (select * from g limit $1) l
where since < clock_timestamp() - $2::interval
order by scope, since`

// OldestHeld returns the scopes that have held a delivery for longer than so
// long, by name. It looks at as many groups of scope, priority and project as the
// limit.
func (s *Store) OldestHeld(ctx context.Context, longer time.Duration, limit int) ([]Held, error) {
	rows, err := s.pool.Query(ctx, oldestHeld, limit, longer)
	if err != nil {
		return nil, fmt.Errorf("read oldest held waits: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Held, error) {
		var h Held
		var age float64
		err := row.Scan(&h.Scope, &h.Channel, &h.Reason, &h.Since, &age)
		h.Age = time.Duration(age * float64(time.Second))
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("read oldest held waits: %w", err)
	}
	return out, nil
}

// CountHeld returns how many deliveries a scope holds, counting no further than
// most.
func (s *Store) CountHeld(ctx context.Context, scope string, most int) (int, error) {
	var n int
	err := s.pool.QueryRow(ctx, `select count(*) from (select from dispatcher.waits where held and scope = $1 limit $2) w`, scope, most).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count held waits: %w", err)
	}
	return n, nil
}

// EldestNode returns the node that has worked longest, [ErrNotFound] where none
// does. It is good for picking one to say what all of them see; nothing else may
// depend on there being one only.
func (s *Store) EldestNode(ctx context.Context) (uuid.UUID, error) {
	var id uuid.UUID
	err := s.pool.QueryRow(ctx, "select id from dispatcher.nodes order by started_at, id limit 1").Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return id, ErrNotFound
	}
	if err != nil {
		return id, fmt.Errorf("read nodes: %w", err)
	}
	return id, nil
}
