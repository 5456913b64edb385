package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const lastAttempt = `
select notification_id, step, target, turn, id, n, node, account, started_at, duration_us, outcome, http_status, retry_after_ms,
  provider_code, provider_message_id, detail, possible_duplicate
from dispatcher.attempts where notification_id = $1 and step = $2 and target = $3
order by turn desc limit 1`

// LastAttempt reads the last attempt of a delivery, or [ErrNotFound].
func (s *Store) LastAttempt(ctx context.Context, id DeliveryID) (Attempt, error) {
	rows, err := s.pool.Query(ctx, lastAttempt, id.Notification, id.Step, id.Target)
	if err != nil {
		return Attempt{}, fmt.Errorf("read last attempt: %w", err)
	}
	a, err := pgx.CollectExactlyOneRow(rows, scanAttempt)
	if errors.Is(err, pgx.ErrNoRows) {
		return Attempt{}, ErrNotFound
	}
	if err != nil {
		return Attempt{}, fmt.Errorf("read last attempt: %w", err)
	}
	return a, nil
}

// Settlement says what became of [Store.SettleAttempt].
type Settlement int

// The settlements.
const (
	// Settled: the attempt has its outcome.
	Settled Settlement = iota
	// Taken: the message is another attempt's to the same address.
	Taken
	// Contested: the message may be that of another call to the same address, which
	// is still under way.
	Contested
	// Moved: the attempt is not unknown any more; somebody else has settled it.
	Moved
)

// Messages to one address are settled one after the other, so that no two
// attempts are settled by the same one.
const lockAddress = `
select pg_advisory_xact_lock(hashtextextended(encode(address, 'hex'), 0)) from dispatcher.deliveries
where notification_id = $1 and step = $2 and target = $3`

const messageOwners = `
with d as (
  select d.* from dispatcher.deliveries own join dispatcher.deliveries d on d.address = own.address
  where own.notification_id = $1 and own.step = $2 and own.target = $3
)
select
  exists (select from d join dispatcher.attempts a on a.notification_id = d.notification_id and a.step = d.step and a.target = d.target
    where a.provider_message_id = $4 and a.account = $5 and a.id <> $6),
  exists (select from d where d.claimed_by is not null and d.account = $5)`

const settleAttempt = `
update dispatcher.attempts set outcome = $5, provider_code = $6, provider_message_id = $7, detail = $8
where notification_id = $1 and step = $2 and target = $3 and turn = $4 and outcome = 'unknown'`

// SettleAttempt writes what an attempt with unknown outcome is known to have come
// to: the Outcome, ProviderCode, ProviderMessageID and Detail of a. But for
// [Settled] nothing is written.
func (s *Store) SettleAttempt(ctx context.Context, a Attempt) (Settlement, error) {
	fate := Settled
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		if a.ProviderMessageID != "" {
			if fate, err = owner(ctx, tx, a); err != nil || fate != Settled {
				return err
			}
		}
		tag, err := tx.Exec(ctx, settleAttempt, a.Notification, a.Step, a.Target, a.Turn, string(a.Outcome),
			nullText(a.ProviderCode), nullText(a.ProviderMessageID), nullText(a.Detail))
		if err == nil && tag.RowsAffected() == 0 {
			fate = Moved
		}
		return err
	})
	if err != nil {
		return Moved, fmt.Errorf("settle attempt: %w", err)
	}
	return fate, nil
}

// owner finds out whether a message can be the attempt's own.
func owner(ctx context.Context, tx pgx.Tx, a Attempt) (Settlement, error) {
	if _, err := tx.Exec(ctx, lockAddress, a.Notification, a.Step, a.Target); err != nil {
		return Moved, err
	}
	var taken, flying bool
	err := tx.QueryRow(ctx, messageOwners, a.Notification, a.Step, a.Target, a.ProviderMessageID, a.Account, a.ID).Scan(&taken, &flying)
	switch {
	case err != nil:
		return Moved, err
	case taken:
		return Taken, nil
	case flying:
		return Contested, nil
	}
	return Settled, nil
}
