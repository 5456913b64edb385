package store

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// takeTokens is GCRA with partial grants for many keys. The clock is read once
// for each row, and after its lock was had, since a stale reading would make the
// wait for the lock count twice; subqueries without joins keep the planner from
// reading it more often, or once for all. Rows are taken in the order of their
// keys, so that two nodes never wait for each other in a circle.
const takeTokens = `
insert into dispatcher.rate_limits as r (key, period_us, burst, wanted, least, granted, tat)
select key, period_us, burst, wanted, least, granted, clock_timestamp() + ceil(granted * period_us) * interval '1 microsecond'
from (select a.*, case when least(wanted, burst) < least then 0 else least(wanted, burst) end as granted
  from unnest($1::text[], $2::float8[], $3::int4[], $4::int4[], $5::int4[]) as a (key, period_us, burst, wanted, least)) a
order by key collate "C"
on conflict (key) do update set (period_us, burst, wanted, least, granted, tat) = (
  select excluded.period_us, excluded.burst, excluded.wanted, excluded.least, granted,
    full_at + ceil(granted * excluded.period_us) * interval '1 microsecond'
  from (select full_at, case when least(excluded.wanted, left_over) < excluded.least then 0 else least(excluded.wanted, left_over) end as granted
    from (select full_at, floor(excluded.burst - extract(epoch from full_at - now)::float8 * 1000000 / excluded.period_us)::int4 as left_over
      from (select now, least(greatest(r.tat, now), now + excluded.burst * excluded.period_us * interval '1 microsecond') as full_at
        from (select clock_timestamp() as now offset 0) c offset 0) b offset 0) g offset 0) t)
returning key, granted, extract(epoch from tat - clock_timestamp())::float8`

// TakeTokens takes tokens of many keys that all nodes share, by the database's
// clock. It implements [resilience.TokenSource]: grants come in the order of the
// asks, whose keys must differ.
func (s *Store) TakeTokens(ctx context.Context, asks []resilience.Ask) ([]resilience.Grant, error) {
	n := len(asks)
	keys, periods := make([]string, n), make([]float64, n)
	bursts, wanted, least := make([]int32, n), make([]int32, n), make([]int32, n)
	place := make(map[string]int, n)
	for i, a := range asks {
		keys[i], periods[i] = limitKey(a.Key), float64(a.Limit.Interval())/float64(time.Microsecond)
		bursts[i], wanted[i], least[i] = bounded(a.Limit.Burst), bounded(a.Want), bounded(a.Least)
		place[keys[i]] = i
	}
	rows, err := s.pool.Query(ctx, takeTokens, keys, periods, bursts, wanted, least)
	if err != nil {
		return nil, fmt.Errorf("take tokens: %w", err)
	}
	grants := make([]resilience.Grant, n)
	var key string
	var debt float64
	var granted, answered int
	_, err = pgx.ForEachRow(rows, []any{&key, &granted, &debt}, func() error {
		i, asked := place[key]
		if !asked {
			return errors.New("the database answered for another key")
		}
		grants[i] = resilience.Grant{Tokens: granted, Debt: max(0, time.Duration(debt*float64(time.Second)))}
		answered++
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("take tokens: %w", err)
	}
	if answered != n {
		return nil, fmt.Errorf("take tokens: %d answers to %d asks", answered, n)
	}
	return grants, nil
}

// pruneLimits spares rows that somebody is at: a key that is full is as good as
// none, but to wait for one here could close a circle with takeTokens.
const pruneLimits = `
delete from dispatcher.rate_limits where key in (
  select key from dispatcher.rate_limits where tat < clock_timestamp() limit $1 for update skip locked)`

// PruneRateLimits forgets up to limit keys that are full, and returns how many.
func (s *Store) PruneRateLimits(ctx context.Context, limit int) (int, error) {
	tag, err := s.pool.Exec(ctx, pruneLimits, limit)
	if err != nil {
		return 0, fmt.Errorf("prune rate limits: %w", err)
	}
	return int(tag.RowsAffected()), nil
}

// limitKey returns what a key is stored as: itself, or its hash where the
// database would refuse it, for one bad key must not fail the others' asks.
func limitKey(key string) string {
	if len(key) <= 200 && utf8.ValidString(key) && !strings.ContainsRune(key, 0) {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func bounded(n int) int32 {
	return int32(min(max(n, 1), resilience.MaxBurst))
}
