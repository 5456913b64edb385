package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// pollLease is for how long whoever takes polls has them to itself.
const pollLease = 30 * time.Second

// Poll is a message whose provider is to be asked what became of it.
type Poll struct {
	DeliveryID
	Turn       int32
	Since, Due time.Time // of the wait for a receipt
	// Attempt is the call that sent it, Account the one it went through.
	Attempt   uuid.UUID
	Account   string
	MessageID string
}

const takePolls = `
with due as materialized (
  select notification_id, step, target, turn from dispatcher.waits
  where ask_at <= statement_timestamp() and reason = 'receipt'
  order by ask_at limit $1 for update skip locked
)
update dispatcher.waits w set ask_at = case when a.id is not null then clock_timestamp() + $2::interval end
from due left join lateral (
  select a.id, a.account, a.provider_message_id from dispatcher.attempts a
  where a.notification_id = due.notification_id and a.step = due.step and a.target = due.target and a.provider_message_id is not null
  order by a.turn desc limit 1) a on true
where w.notification_id = due.notification_id and w.step = due.step and w.target = due.target and w.turn = due.turn
returning w.notification_id, w.step, w.target, w.turn, w.since, w.due, a.id, a.account, a.provider_message_id`

// TakePolls takes at most limit messages whose provider is to be asked now. Those
// that the provider gave no id for are not asked about any more.
func (s *Store) TakePolls(ctx context.Context, limit int) ([]Poll, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	rows, err := s.pool.Query(ctx, takePolls, limit, pollLease)
	if err != nil {
		return nil, fmt.Errorf("take polls: %w", err)
	}
	var out []Poll
	var p Poll
	var attempt *uuid.UUID
	var account, message *string
	fields := []any{&p.Notification, &p.Step, &p.Target, &p.Turn, &p.Since, &p.Due, &attempt, &account, &message}
	_, err = pgx.ForEachRow(rows, fields, func() error {
		if attempt != nil {
			p.Attempt, p.Account, p.MessageID = *attempt, zero(account), zero(message)
			out = append(out, p)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("take polls: %w", err)
	}
	return out, nil
}

const setPoll = `
update dispatcher.waits set ask_at = $5 where notification_id = $1 and step = $2 and target = $3 and turn = $4 and reason = 'receipt'`

// Polled says when to ask next; zero for not any more. Of a delivery that has
// moved on nothing is changed.
func (s *Store) Polled(ctx context.Context, p Poll, next time.Time) error {
	if _, err := s.pool.Exec(ctx, setPoll, p.Notification, p.Step, p.Target, p.Turn, null(next)); err != nil {
		return fmt.Errorf("set poll: %w", err)
	}
	return nil
}
