package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// ScopeState is how a scope fares in the whole cluster. Its instants are the
// database's clock.
type ScopeState struct {
	Scope   string
	Breaker resilience.BreakerStatus
	// GateUntil is when the quiet that its provider asked for ends; zero where the
	// gate is open.
	GateUntil time.Time
	// Calls, Failures and Slow are of the last minute, as the processes that called
	// in the last 15 s reported them. Answers that speak neither for nor against a
	// provider's health are not counted.
	Calls, Failures, Slow int
}

const scopeStates = `
with troubled as (
  select scope, changed_at as at from dispatcher.breakers
  where state <> 'closed' or forced_by is not null and coalesce(forced_until > clock_timestamp(), true)
  union all
  select scope, updated_at from dispatcher.gates where not_before > clock_timestamp()
), narrower as (
  select scope, row_number() over (partition by split_part(scope, '/', 1) order by max(at) desc, scope) as place
  from troubled where position('/' in scope) > 0 and split_part(scope, '/', 1) = any($1) group by scope
), wanted as (
  select unnest($1::text[]) as scope union select unnest($2::text[]) union select scope from narrower where place <= $3
)
select clock_timestamp(), w.scope, g.not_before, coalesce(e.streak, 0), coalesce(e.calls, 0), coalesce(e.failures, 0), coalesce(e.slow, 0),
  b.state, coalesce(b.generation, 0), coalesce(b.reason, ''), b.changed_at, coalesce(b.open_count, 0), b.open_until, coalesce(b.probing, false),
  b.lease_until, b.forced_by, b.forced_why, b.forced_until, coalesce(b.trips, 0), coalesce(b.code, '')
from wanted w
left join dispatcher.breakers b on b.scope = w.scope
left join dispatcher.gates g on g.scope = w.scope and g.not_before > clock_timestamp()
left join lateral (
  select sum(streak) as streak, sum(calls) as calls, sum(failures) as failures, sum(slow) as slow
  from dispatcher.breaker_evidence
  where scope = w.scope and generation = coalesce(b.generation, 0) and updated_at > clock_timestamp() - $4::interval
) e on true
order by w.scope`

// ScopeStates returns the state of every scope named, in good health or not, and
// for each of the accounts also the narrower scopes that are in trouble, at most
// so many and those that changed last. They are by name.
func (s *Store) ScopeStates(ctx context.Context, accounts, scopes []string, narrower int) ([]ScopeState, error) {
	rows, err := s.pool.Query(ctx, scopeStates, accounts, scopes, narrower, evidenceAge)
	if err != nil {
		return nil, fmt.Errorf("read scopes: %w", err)
	}
	out, err := pgx.CollectRows(rows, scanScopeState)
	if err != nil {
		return nil, fmt.Errorf("read scopes: %w", err)
	}
	return out, nil
}

func scanScopeState(row pgx.CollectableRow) (ScopeState, error) {
	var out ScopeState
	var r resilience.BreakerRecord
	var now time.Time
	var gate, changed, open, lease, until *time.Time
	var state, by, why *string
	var generation int64
	var streak int
	err := row.Scan(&now, &out.Scope, &gate, &streak, &out.Calls, &out.Failures, &out.Slow, &state, &generation, &r.Reason,
		&changed, &r.OpenCount, &open, &r.Probing, &lease, &by, &why, &until, &r.Trips, &r.Code)
	r.State, r.Generation, r.ChangedAt = resilience.State(zero(state)), uint64(generation), zero(changed)
	r.OpenUntil, r.LeaseUntil = zero(open), zero(lease)
	if by != nil {
		r.Forced = &resilience.Override{Who: *by, Why: zero(why), Until: zero(until)}
	}
	out.GateUntil = zero(gate)
	out.Breaker = resilience.RestoreBreaker(resilience.BreakerConfig{}, r).Status(now)
	out.Breaker.Failures = streak
	return out, err
}

// OperatorAction is one thing that an operator did by hand.
type OperatorAction struct {
	ID     int64
	At     time.Time
	Action Action
	Target string // a breaker's scope or a channel
	By     string
	Why    string
	Until  time.Time // zero where there is no end
}

// OperatorActions returns what operators did last, newest first.
func (s *Store) OperatorActions(ctx context.Context, limit int) ([]OperatorAction, error) {
	rows, err := s.pool.Query(ctx, `select id, at, action, target, by_whom, why, until
		from dispatcher.operator_actions order by id desc limit $1`, limit)
	if err != nil {
		return nil, fmt.Errorf("read operator actions: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (OperatorAction, error) {
		var a OperatorAction
		var until *time.Time
		err := row.Scan(&a.ID, &a.At, &a.Action, &a.Target, &a.By, &a.Why, &until)
		a.Until = zero(until)
		return a, err
	})
	if err != nil {
		return nil, fmt.Errorf("read operator actions: %w", err)
	}
	return out, nil
}
