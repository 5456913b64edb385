package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// Action is what an operator does by hand.
type Action string

// The actions. The first three are about a breaker's scope, the others about a
// channel.
const (
	ActionOpen   Action = "open"   // no call passes
	ActionClose  Action = "close"  // every call passes
	ActionReset  Action = "reset"  // forget what failed, and open the gate
	ActionPause  Action = "pause"  // the channel's deliveries wait
	ActionResume Action = "resume" // they go on
)

const recordAction = `
insert into dispatcher.operator_actions (at, action, target, by_whom, why, until)
values (clock_timestamp(), $1, $2, $3, $4, $5)`

// openWaits lets go of what a provider asked to hold until a later instant, which
// stands on each row. So many at once: who holds many would else keep the first of
// them waiting for the last.
const openWaits = `
update dispatcher.waits w set until = $2
from (select notification_id, step, target from dispatcher.waits
  where held and scope = $1 and reason = 'throttled' and until > $2 limit $3 for update skip locked) t
where w.notification_id = t.notification_id and w.step = t.step and w.target = t.target`

// openLimit is how many waits it lets go of at once. Fewer are the last: where the
// provider has asked to hold anew, more come for as long as anything arrives.
const openLimit = 2000

// Operate puts an operator's decision about a breaker into effect for every
// process and records it. A zero by.Until holds until it is taken back.
//
// After a reset it lets go of what the scope's gate held. Where that is broken
// off, what is left moves at the instant that its provider named, or with the
// next reset.
func (s *Store) Operate(ctx context.Context, scope string, action Action, by resilience.Override) error {
	var at time.Time
	_, _, err := s.Scopes(uuid.Nil).update(ctx, scope, func(r resilience.BreakerRecord, now time.Time) (resilience.BreakerRecord, resilience.Transition) {
		at = now
		b := resilience.RestoreBreaker(resilience.BreakerConfig{}, r)
		var t resilience.Transition
		switch action {
		case ActionOpen:
			t = b.ForceOpen(by, now)
		case ActionClose:
			t = b.ForceClosed(by, now)
		case ActionReset:
			t = b.Reset(by, now)
		case ActionPause, ActionResume:
		}
		return b.Record(), t
	}, func(b *pgx.Batch) {
		if action == ActionReset {
			b.Queue("delete from dispatcher.gates where scope = $1", scope)
		}
		b.Queue(recordAction, string(action), scope, by.Who, by.Why, null(by.Until))
	})
	for more := action == ActionReset; more && err == nil; {
		var tag pgconn.CommandTag
		tag, err = s.pool.Exec(ctx, openWaits, scope, at, openLimit)
		more = tag.RowsAffected() == openLimit
	}
	if err != nil {
		return fmt.Errorf("operate breaker: %w", err)
	}
	return nil
}

// PauseChannel lets no call of a channel start until it is resumed. Its
// deliveries wait and are shown. Pausing again replaces who and why.
func (s *Store) PauseChannel(ctx context.Context, c notify.Channel, by, why string) error {
	return s.operateChannel(ctx, ActionPause, c, by, why, func(b *pgx.Batch) {
		b.Queue(`insert into dispatcher.pauses (channel, by, reason, since) values ($1, $2, $3, clock_timestamp())
			on conflict (channel) do update set by = excluded.by, reason = excluded.reason`, string(c), by, why)
	})
}

// ResumeChannel ends a pause. Resuming a channel that is not paused is no error.
func (s *Store) ResumeChannel(ctx context.Context, c notify.Channel, by, why string) error {
	return s.operateChannel(ctx, ActionResume, c, by, why, func(b *pgx.Batch) {
		b.Queue("delete from dispatcher.pauses where channel = $1", string(c))
	})
}

func (s *Store) operateChannel(ctx context.Context, a Action, c notify.Channel, by, why string, do func(*pgx.Batch)) error {
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		b := &pgx.Batch{}
		do(b)
		b.Queue(recordAction, string(a), string(c), by, why, nil)
		b.Queue("select pg_notify($1, '')", ScopesChannel)
		return send(ctx, tx, b)
	})
	if err != nil {
		return fmt.Errorf("%s channel: %w", a, err)
	}
	return nil
}

// BreakerEvent is one change of a breaker.
type BreakerEvent struct {
	ID         int64
	At         time.Time
	Scope      string
	From, To   string
	Reason     string
	Code       string // the provider's, where one answer opened it
	Generation int64
	Node       string
	By, Why    string    // of an operator's decision, else empty
	Until      time.Time // zero where there is no end
}

// BreakerEvents returns the latest changes of a scope's breaker, newest first;
// of all scopes when it is empty.
func (s *Store) BreakerEvents(ctx context.Context, scope string, limit int) ([]BreakerEvent, error) {
	rows, err := s.pool.Query(ctx, `select id, at, scope, from_state, to_state, reason, generation, node, by_whom, why, until, code
		from dispatcher.breaker_events where $1 = '' or scope = $1 order by id desc limit $2`, scope, limit)
	if err != nil {
		return nil, fmt.Errorf("read breaker events: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (BreakerEvent, error) {
		var e BreakerEvent
		var by, why, code *string
		var until *time.Time
		err := row.Scan(&e.ID, &e.At, &e.Scope, &e.From, &e.To, &e.Reason, &e.Generation, &e.Node, &by, &why, &until, &code)
		e.By, e.Why, e.Until, e.Code = zero(by), zero(why), zero(until), zero(code)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("read breaker events: %w", err)
	}
	return out, nil
}

const forgetScopes = `
with e as (delete from dispatcher.breaker_evidence where updated_at < clock_timestamp() - interval '10 minutes'),
  g as (delete from dispatcher.gates where not_before < clock_timestamp() - interval '10 minutes'),
  h as (delete from dispatcher.breaker_events where at < $1)
delete from dispatcher.breakers
where state = 'closed' and changed_at < clock_timestamp() - interval '1 hour'
  and (forced_by is null or forced_until < clock_timestamp() - interval '1 hour')`

// ForgetScopes deletes what no process needs any more: breakers that have been
// closed for an hour and are not forced any more, gates long open, old evidence,
// and the history of breakers from before the given instant.
func (s *Store) ForgetScopes(ctx context.Context, before time.Time) error {
	if _, err := s.pool.Exec(ctx, forgetScopes, before); err != nil {
		return fmt.Errorf("forget scopes: %w", err)
	}
	return nil
}
