package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// receiptLease is for how long whoever takes receipts has them to itself. A node
// that dies leaves them to the others after that; to apply one twice does nothing.
const receiptLease = 10 * time.Second

// Pauses between looks whose message it is that a receipt tells of. They grow with
// its age by half of it, so that one which comes moments before its call is
// recorded is applied moments after, and one of a message that somebody else sent
// costs some forty looks in all.
const (
	parkedFloor = 250 * time.Millisecond
	parkedCap   = 6 * time.Hour
)

// takeReceipts walks receipts_by_look, which holds unapplied ones only, and finds
// out whose message each tells of, where that is not known.
const takeReceipts = `
with due as materialized (
  select id, account, message_id, attempt from dispatcher.receipts
  where applied_at is null and look_at <= statement_timestamp()
  order by look_at limit $1 for update skip locked
), known as (
  select due.id, a.*
  from due left join lateral (
    select a.notification_id, a.step, a.target, a.id as attempt from dispatcher.attempts a
    where due.attempt is null and a.provider_message_id = due.message_id and a.account = due.account
    order by a.started_at desc limit 1) a on true
)
update dispatcher.receipts r set
  notification_id = coalesce(r.notification_id, k.notification_id), step = coalesce(r.step, k.step), target = coalesce(r.target, k.target),
  attempt = case when r.notification_id is null or r.notification_id = k.notification_id and r.step = k.step and r.target = k.target
    then coalesce(r.attempt, k.attempt) else r.attempt end,
  look_at = clock_timestamp() + case when coalesce(r.notification_id, k.notification_id) is not null then $2::interval
    else greatest($3::interval, least($4::interval, (clock_timestamp() - r.received_at) / 2)) end
from known k where r.id = k.id
returning ` + receiptColumnsOfR

const receiptColumnsOfR = `r.id, r.notification_id, r.step, r.target, r.attempt, r.account, r.message_id, r.status, r.outcome, r.code, r.detail,
  r.at, r.received_at, r.applied_at, r.suppress, r.suppress_for_s`

const readReceipts = `select ` + receiptColumnsOfR + `
from dispatcher.receipts r where r.notification_id = any($1) order by r.received_at, r.id`

func scanReceipt(row pgx.CollectableRow) (Receipt, error) {
	var r Receipt
	var notification, attempt *uuid.UUID
	var step, target *int16
	var message, detail, outcome *string
	var at, applied *time.Time
	var seconds *int64
	err := row.Scan(&r.ID, &notification, &step, &target, &attempt, &r.Account, &message, &r.Status, &outcome, &r.Code, &detail,
		&at, &r.ReceivedAt, &applied, &r.Suppress, &seconds)
	r.Notification, r.Step, r.Target, r.Attempt = zero(notification), zero(step), zero(target), zero(attempt)
	r.MessageID, r.Detail, r.Outcome = zero(message), zero(detail), notify.Outcome(zero(outcome))
	r.At, r.AppliedAt, r.SuppressFor = zero(at), zero(applied), time.Duration(zero(seconds))*time.Second
	return r, err
}

// DueReceipts are receipts that somebody has for a while to apply them.
type DueReceipts struct {
	Receipts []Receipt // of deliveries that are known
	// Parked counts those that were looked at and are of messages which nobody
	// knows. They are looked at again, ever more seldom.
	Parked int
}

// TakeReceipts takes at most limit receipts that are to be applied. Those that
// are not applied within ten seconds can be taken again.
func (s *Store) TakeReceipts(ctx context.Context, limit int) (DueReceipts, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	var out DueReceipts
	rows, err := s.pool.Query(ctx, takeReceipts, limit, receiptLease, parkedFloor, parkedCap)
	if err != nil {
		return DueReceipts{}, fmt.Errorf("take receipts: %w", err)
	}
	all, err := pgx.CollectRows(rows, scanReceipt)
	if err != nil {
		return DueReceipts{}, fmt.Errorf("take receipts: %w", err)
	}
	for _, r := range all {
		if r.Notification == uuid.Nil {
			out.Parked++
		} else {
			out.Receipts = append(out.Receipts, r)
		}
	}
	return out, nil
}

const markApplied = "update dispatcher.receipts set applied_at = clock_timestamp() where id = any($1) and applied_at is null"

// queueApplied adds the statement that marks receipts as applied to b.
func queueApplied(b *pgx.Batch, ids []uuid.UUID) {
	if len(ids) > 0 {
		b.Queue(markApplied, ids)
	}
}

// Applied marks receipts that changed nothing of their deliveries, with the
// addresses that they put on the suppression list.
func (s *Store) Applied(ctx context.Context, ids []uuid.UUID, suppress []*Suppression) error {
	var changes listed
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		b := &pgx.Batch{}
		queueApplied(b, ids)
		queueSuppressions(b, suppress, &changes)
		return send(ctx, tx, b)
	})
	if err != nil {
		return fmt.Errorf("mark receipts as applied: %w", err)
	}
	s.tell(changes)
	return nil
}

// ParkedReceipts counts receipts of messages that nobody knows, as far as most.
func (s *Store) ParkedReceipts(ctx context.Context, most int) (int, error) {
	var n int
	err := s.pool.QueryRow(ctx, `select count(*) from (
		select from dispatcher.receipts where applied_at is null and notification_id is null limit $1) r`, most).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count parked receipts: %w", err)
	}
	return n, nil
}
