package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// ScopesChannel is the NOTIFY channel on which a changed breaker or gate is
// announced. It is a hint: every process also looks each second.
const ScopesChannel = "dispatcher_scopes"

// evidenceAge is how long a process's evidence counts after it was last handed
// in: a process that is gone, or has had no calls for so long, has no say.
const evidenceAge = 15 * time.Second

// Scopes keeps the breakers and gates that all processes share. It implements
// [resilience.Shared] for one of them.
type Scopes struct {
	store *Store
	node  uuid.UUID
}

var _ resilience.Shared = (*Scopes)(nil)

// Scopes returns the shared breakers and gates as node writes them.
func (s *Store) Scopes(node uuid.UUID) *Scopes { return &Scopes{s, node} }

const breakerColumns = `scope, state, generation, reason, changed_at, open_count, open_until, probes, probing, lease_until,
  successes, neutral, forced_by, forced_why, forced_until, trips, code`

const writeBreaker = `
insert into dispatcher.breakers (` + breakerColumns + `, updated_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, clock_timestamp())
on conflict (scope) do update set
  state = excluded.state, generation = excluded.generation, reason = excluded.reason, changed_at = excluded.changed_at,
  open_count = excluded.open_count, open_until = excluded.open_until, probes = excluded.probes, probing = excluded.probing,
  lease_until = excluded.lease_until, successes = excluded.successes, neutral = excluded.neutral, forced_by = excluded.forced_by,
  forced_why = excluded.forced_why, forced_until = excluded.forced_until, trips = excluded.trips, code = excluded.code,
  updated_at = excluded.updated_at`

const writeBreakerEvent = `
insert into dispatcher.breaker_events (at, generation, scope, from_state, to_state, reason, node, by_whom, why, until, code)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`

// Update implements [resilience.Shared]. The lock is a transaction-level advisory
// one, since a scope in good health has no row to lock.
func (s *Scopes) Update(ctx context.Context, scope string, change resilience.Change) (resilience.ScopeRecord, time.Time, error) {
	return s.update(ctx, scope, change, func(*pgx.Batch) {})
}

// update is Update with more statements in its transaction.
func (s *Scopes) update(ctx context.Context, scope string, change resilience.Change, more func(*pgx.Batch)) (resilience.ScopeRecord, time.Time, error) {
	out := resilience.ScopeRecord{Scope: scope}
	var now time.Time
	err := s.store.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtextextended('breaker:' || $1, 0))", scope); err != nil {
			return err
		}
		if err := tx.QueryRow(ctx, "select clock_timestamp()").Scan(&now); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "select "+breakerColumns+" from dispatcher.breakers where scope = $1", scope)
		if err != nil {
			return err
		}
		before, err := pgx.CollectExactlyOneRow(rows, scanBreaker)
		if err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return err
		}
		after, t := change(before.BreakerRecord, now)
		if before.Generation == 0 && after.Generation > 0 {
			// A row may be forgotten and made anew; its generations must go on.
			base := uint64(now.UnixMilli())
			after.Generation += base
			t.Generation += base
		}
		out.BreakerRecord = after
		b := &pgx.Batch{}
		if !same(before.BreakerRecord, after) {
			s.keep(b, scope, after, t)
		}
		more(b)
		return send(ctx, tx, b)
	})
	if err != nil {
		return out, now, fmt.Errorf("update breaker: %w", err)
	}
	return out, now, nil
}

// keep adds the statements that write a breaker and its change to b.
func (s *Scopes) keep(b *pgx.Batch, scope string, r resilience.BreakerRecord, t resilience.Transition) {
	state := r.State
	if state == "" {
		state = resilience.Closed
	}
	var by, why *string
	var until *time.Time
	if r.Forced != nil {
		by, why, until = &r.Forced.Who, &r.Forced.Why, null(r.Forced.Until)
	}
	b.Queue(writeBreaker, scope, string(state), int64(r.Generation), string(r.Reason), r.ChangedAt, r.OpenCount, null(r.OpenUntil),
		int64(r.Probes), r.Probing, null(r.LeaseUntil), r.Successes, r.Neutral, by, why, until, r.Trips, nullText(r.Code))
	if t.Changed() {
		by, why := (*string)(nil), (*string)(nil)
		if t.By != nil {
			by, why = &t.By.Who, &t.By.Why
		}
		b.Queue(writeBreakerEvent, t.At, int64(t.Generation), scope, string(t.From), string(t.To), string(t.Reason), s.node.String(), by, why, null(t.Until),
			nullText(t.Code))
		if t.To == resilience.Closed {
			b.Queue(releaseWaits, scope, releaseRate, releaseMost, releaseLimit)
		}
	}
	b.Queue("select pg_notify($1, '')", ScopesChannel)
}

// releaseRate is how many deliveries a second that wait for their account's repair
// come back once its breaker is closed, and releaseMost the longest that takes.
// What the breaker held needs no release: it moves as the scope has room.
const (
	releaseRate = 200.0
	releaseMost = 60 * time.Second
	// releaseLimit keeps the verdict that closes a breaker quick; the others come
	// at their own time, within minutes.
	releaseLimit = 2000
)

const releaseWaits = `
update dispatcher.waits w
set due = least(w.due, greatest(clock_timestamp() + least((r.n - 1) / $2::float8 * interval '1 second', $3::interval), w.since)),
  until = least(w.until, greatest(clock_timestamp() + least((r.n - 1) / $2::float8 * interval '1 second', $3::interval), w.since))
from (select l.*, row_number() over (order by l.priority, l.due) as n
  from (select notification_id, step, target, priority, due from dispatcher.waits
    where reason = 'account_rejected'
      and (scope = $1 or starts_with(scope, '` + anyPrefix + `') and $1 = any(string_to_array(substr(scope, length('` + anyPrefix + `') + 1), ' ')))
    order by priority, due limit $4 for update skip locked) l) r
where w.notification_id = r.notification_id and w.step = r.step and w.target = r.target`

func same(a, b resilience.BreakerRecord) bool {
	if (a.Forced == nil) != (b.Forced == nil) || a.Forced != nil && *a.Forced != *b.Forced {
		return false
	}
	a.Forced, b.Forced = nil, nil
	if a.State == "" {
		a.State = resilience.Closed
	}
	return a == b
}

func scanBreaker(row pgx.CollectableRow) (resilience.ScopeRecord, error) {
	var r resilience.ScopeRecord
	var open, lease, until *time.Time
	var by, why, code *string
	var generation, probes int64
	err := row.Scan(&r.Scope, &r.State, &generation, &r.Reason, &r.ChangedAt, &r.OpenCount, &open, &probes, &r.Probing, &lease,
		&r.Successes, &r.Neutral, &by, &why, &until, &r.Trips, &code)
	r.Code = zero(code)
	r.Generation, r.Probes = uint64(generation), uint64(probes)
	r.OpenUntil, r.LeaseUntil = zero(open), zero(lease)
	if by != nil {
		r.Forced = &resilience.Override{Who: *by, Why: zero(why), Until: zero(until)}
	}
	return r, err
}

const writeEvidence = `
with mine as (
  insert into dispatcher.breaker_evidence (scope, node, generation, streak, calls, failures, slow, updated_at)
  select scope, $2, generation, streak, calls, failures, slow, clock_timestamp()
  from unnest($1::text[], $3::int8[], $4::int4[], $5::int4[], $6::int4[], $7::int4[])
    as t (scope, generation, streak, calls, failures, slow)
  on conflict (scope, node) do update set generation = excluded.generation, streak = excluded.streak, calls = excluded.calls,
    failures = excluded.failures, slow = excluded.slow, updated_at = excluded.updated_at
  returning scope, generation, streak, calls, failures, slow
)
select scope, generation, streak, calls, failures, slow from mine
union all
select e.scope, e.generation, e.streak, e.calls, e.failures, e.slow
from dispatcher.breaker_evidence e
where e.scope = any($1) and e.node <> $2 and e.updated_at > clock_timestamp() - $8::interval`

// Report implements [resilience.Shared].
func (s *Scopes) Report(ctx context.Context, tallies []resilience.ScopeTally) (map[string]resilience.Sum, error) {
	// In one order everywhere, so that two processes do not lock crosswise.
	tallies = slices.SortedFunc(slices.Values(tallies), func(a, b resilience.ScopeTally) int { return strings.Compare(a.Scope, b.Scope) })
	var scopes []string
	var generation []int64
	var streak, calls, failures, slow []int32
	under := map[string]uint64{}
	for _, t := range tallies {
		scopes, generation = append(scopes, t.Scope), append(generation, int64(t.Generation))
		streak, calls = append(streak, int32(t.Streak)), append(calls, int32(t.Calls))
		failures, slow = append(failures, int32(t.Failures)), append(slow, int32(t.Slow))
		under[t.Scope] = t.Generation
	}
	rows, err := s.store.pool.Query(ctx, writeEvidence, scopes, s.node, generation, streak, calls, failures, slow, evidenceAge)
	if err != nil {
		return nil, fmt.Errorf("report evidence: %w", err)
	}
	sums := map[string]resilience.Sum{}
	var scope string
	var g int64
	var t resilience.Tally
	_, err = pgx.ForEachRow(rows, []any{&scope, &g, &t.Streak, &t.Calls, &t.Failures, &t.Slow}, func() error {
		if uint64(g) == under[scope] {
			sum := sums[scope]
			sum.Add(t)
			sums[scope] = sum
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("report evidence: %w", err)
	}
	return sums, nil
}

const writeGates = `
insert into dispatcher.gates as g (scope, not_before, updated_at)
select scope, clock_timestamp() + ms * interval '1 millisecond', clock_timestamp()
from unnest($1::text[], $2::int8[]) as t (scope, ms) order by scope
on conflict (scope) do update set not_before = excluded.not_before, updated_at = excluded.updated_at
where excluded.not_before > g.not_before`

// Throttle implements [resilience.Shared].
func (s *Scopes) Throttle(ctx context.Context, gates map[string]time.Duration) error {
	var scopes []string
	var ms []int64
	for scope, d := range gates {
		scopes, ms = append(scopes, scope), append(ms, max((d+time.Millisecond-1).Milliseconds(), 0)) // rounded up: never before the instant
	}
	b := &pgx.Batch{}
	b.Queue(writeGates, scopes, ms)
	b.Queue("select pg_notify($1, '')", ScopesChannel)
	if err := s.store.sendAlone(ctx, b); err != nil {
		return fmt.Errorf("shut gates: %w", err)
	}
	return nil
}

// Changed implements [resilience.Shared].
func (s *Scopes) Changed(ctx context.Context, since time.Time) (resilience.Changes, error) {
	var c resilience.Changes
	b := &pgx.Batch{}
	b.Queue("select clock_timestamp()")
	b.Queue("select "+breakerColumns+" from dispatcher.breakers where updated_at > $1 order by updated_at", since)
	b.Queue("select scope, not_before from dispatcher.gates where updated_at > $1 and not_before > clock_timestamp()", since)
	results := s.store.pool.SendBatch(ctx, b)
	defer results.Close() //nolint:errcheck // every result is read, or the read gives the error
	if err := results.QueryRow().Scan(&c.Now); err != nil {
		return c, fmt.Errorf("read scopes: %w", err)
	}
	rows, err := results.Query()
	if err != nil {
		return c, fmt.Errorf("read breakers: %w", err)
	}
	if c.Breakers, err = pgx.CollectRows(rows, scanBreaker); err != nil {
		return c, fmt.Errorf("read breakers: %w", err)
	}
	if rows, err = results.Query(); err != nil {
		return c, fmt.Errorf("read gates: %w", err)
	}
	if c.Gates, err = pgx.CollectRows(rows, pgx.RowToStructByPos[resilience.ScopeGate]); err != nil {
		return c, fmt.Errorf("read gates: %w", err)
	}
	return c, nil
}
