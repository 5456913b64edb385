package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// RouteClass is a class of routes that share a limit.
type RouteClass string

// The classes, named as the columns of api_keys and the configuration name them.
const (
	ClassWrite RouteClass = "write" // what a key with scope send does
	ClassRead  RouteClass = "read"
	ClassAdmin RouteClass = "admin"
)

// RouteClasses returns all classes.
func RouteClasses() []RouteClass { return []RouteClass{ClassWrite, ClassRead, ClassAdmin} }

// KeyLimits are a key's own limits. A class without one has the configured
// limit. A KeyLimits is not changed once a key has it.
type KeyLimits map[RouteClass]resilience.Limit

const limitColumns = `write_per_second, write_burst, read_per_second, read_burst, admin_per_second, admin_burst`

// limitsRow is limitColumns of one key.
type limitsRow struct {
	perSecond [3]*float64
	burst     [3]*int
}

// targets are what limitColumns are scanned into.
func (r *limitsRow) targets() []any {
	var out []any
	for i := range r.perSecond {
		out = append(out, &r.perSecond[i], &r.burst[i])
	}
	return out
}

func (r *limitsRow) limits() KeyLimits {
	var limits KeyLimits
	for i, class := range RouteClasses() {
		if r.perSecond[i] == nil || r.burst[i] == nil {
			continue
		}
		if limits == nil {
			limits = KeyLimits{}
		}
		limits[class] = resilience.Limit{PerSecond: *r.perSecond[i], Burst: *r.burst[i]}
	}
	return limits
}

// args are a key's limits in the order of limitColumns.
func (l KeyLimits) args() []any {
	var out []any
	for _, class := range RouteClasses() {
		limit, ok := l[class]
		if ok {
			out = append(out, limit.PerSecond, limit.Burst)
		} else {
			out = append(out, nil, nil)
		}
	}
	return out
}

const limitKeySQL = `
update dispatcher.api_keys set
  write_per_second = case when $3 then $6 else write_per_second end, write_burst = case when $3 then $7 else write_burst end,
  read_per_second  = case when $4 then $8 else read_per_second end,  read_burst  = case when $4 then $9 else read_burst end,
  admin_per_second = case when $5 then $10 else admin_per_second end, admin_burst = case when $5 then $11 else admin_burst end
where id = $1 and ($2 = '' or project = $2)
returning ` + keyColumns

// LimitKey gives a key limits of its own, within a second on every node. Classes
// that change does not name stay as they are; nil takes the configured limit
// back. An empty project means any. It returns [ErrNotFound].
func (s *Store) LimitKey(ctx context.Context, project string, id uuid.UUID, change map[RouteClass]*resilience.Limit) (APIKey, error) {
	args := []any{id, project}
	limits := KeyLimits{}
	for _, class := range RouteClasses() {
		limit, named := change[class]
		args = append(args, named)
		if limit == nil {
			continue
		}
		if err := limit.Check(); err != nil {
			return APIKey{}, fmt.Errorf("limit key: %w", err)
		}
		limits[class] = *limit
	}
	key, err := oneKey(ctx, s.pool, limitKeySQL, append(args, limits.args()...)...)
	if err != nil {
		return APIKey{}, fmt.Errorf("limit key: %w", notFound(err))
	}
	return key, nil
}

// refusalsKept is for how long refusals can be seen.
const refusalsKept = 24 * time.Hour

// Refusals are requests that were refused because a key's limit was spent. A row
// of a batch counts as one.
type Refusals struct {
	Key   uuid.UUID
	Class RouteClass
	Count int64
}

// Rows are taken in the order of the key, so that two nodes never wait for each
// other in a circle.
const addRefusals = `
insert into dispatcher.rate_refusals as r (key_id, class, minute, last_at, count)
select key_id, class, date_trunc('minute', statement_timestamp()), statement_timestamp(), sum(count)
from unnest($1::uuid[], $2::text[], $3::int8[]) as a (key_id, class, count)
group by key_id, class
order by key_id, class
on conflict (key_id, minute, class) do update set count = r.count + excluded.count, last_at = greatest(r.last_at, excluded.last_at)`

// AddRefusals counts refusals in the current minute of the database's clock.
func (s *Store) AddRefusals(ctx context.Context, refusals []Refusals) error {
	keys, classes, counts := make([]uuid.UUID, len(refusals)), make([]string, len(refusals)), make([]int64, len(refusals))
	for i, r := range refusals {
		keys[i], classes[i], counts[i] = r.Key, string(r.Class), r.Count
	}
	if _, err := s.pool.Exec(ctx, addRefusals, keys, classes, counts); err != nil {
		return fmt.Errorf("count refusals: %w", err)
	}
	return nil
}

const pruneRefusals = `
delete from dispatcher.rate_refusals where (key_id, minute, class) in (
  select key_id, minute, class from dispatcher.rate_refusals where minute < clock_timestamp() - $2::interval
  order by minute limit $1 for update skip locked)`

// PruneRefusals forgets up to limit rows of refusals that are older than a day,
// and returns how many.
func (s *Store) PruneRefusals(ctx context.Context, limit int) (int, error) {
	tag, err := s.pool.Exec(ctx, pruneRefusals, limit, refusalsKept)
	if err != nil {
		return 0, fmt.Errorf("prune refusals: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// LiveNodes returns how many nodes have a heartbeat that is not older than
// 5 s.
func (s *Store) LiveNodes(ctx context.Context) (int, error) {
	var n int
	err := s.pool.QueryRow(ctx, `select count(*) from dispatcher.nodes where beat_at > clock_timestamp() - $1::interval`, deadAfter).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count nodes: %w", err)
	}
	return n, nil
}

// listKeys reads refusals of the last hour and of all that is kept.
const listKeys = `
select ` + keyColumns + `, r.last_at, coalesce(r.count, 0)
from dispatcher.api_keys k left join lateral (
  select max(last_at) as last_at, coalesce(sum(count) filter (where minute > clock_timestamp() - interval '1 hour'), 0)::int8 as count
  from dispatcher.rate_refusals where key_id = k.id) r on true
where $1 = '' or project = $1
order by id desc`

func scanListedKey(row pgx.CollectableRow) (APIKey, error) {
	var last *time.Time
	var count int64
	k, err := scanKeyAnd(row, &last, &count)
	k.LastRefusedAt, k.RefusedLastHour = zero(last), count
	return k, err
}
