package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// EventRetried is the event of a retry by an operator. What was final moves again.
const EventRetried = "retried"

// MaxRounds is how often a notification may be started again. It keeps the turns
// of all rounds within their column.
const MaxRounds = 1000

// RetryResult is the definitive answer to an operator's retry.
type RetryResult string

// The answers.
const (
	// Retried: a new round of what had failed has begun.
	Retried RetryResult = "retried"
	// RetryMoving: it has not ended, so there is nothing to start again yet.
	RetryMoving RetryResult = "in_progress"
	// RetryNeedless: no step has failed, or a later one made up for it.
	RetryNeedless RetryResult = "nothing_to_retry"
	// RetryStopped: it was canceled or acknowledged, after which nothing is sent.
	RetryStopped RetryResult = "stopped"
	// RetryTooOften: it was started again [MaxRounds] times.
	RetryTooOften RetryResult = "too_often"
)

// Retry is what became of an operator's retry.
type Retry struct {
	Result    RetryResult
	Round     int       // of the notification now; 0 before the first retry
	ExpiresAt time.Time // of the notification now
}

// Restarter returns the deliveries that a new round starts with. The record's
// notification has the new round and expiry already.
type Restarter func(r Record) []Start

const lockNotification = "select from dispatcher.notifications where id = $1 and project = $2 for no key update"

const markRetried = `
insert into dispatcher.marks as m (notification_id, round, retried_at, expires_at) values ($1, $2, $3, $4)
on conflict (notification_id) do update set
  round = excluded.round, retried_at = excluded.retried_at, expires_at = excluded.expires_at`

// renewDelivery ends the statement that creates deliveries. One that is there
// already stays as it is, unless it ended in an earlier round: then it begins
// again. Its calls are counted on, so that attempts keep their numbers, and its
// turn only grows. Where an earlier call may have been accepted, the next one
// is a repeat.
const renewDelivery = `
on conflict (notification_id, step, target) do update set
  round = excluded.round, turn = greatest(excluded.turn, deliveries.turn + 1), final = false, status = excluded.status,
  because = excluded.because, started_because = excluded.started_because, stop = null, job_id = excluded.job_id, claim_id = null,
  attempts = 0, throttles = 0, crashes = 0,
  repeats = case when deliveries.repeats > 0 or deliveries.because in ('unknown', 'crashed_worker') then 1 else 0 end,
  started_at = excluded.started_at, ends_at = excluded.ends_at, expires_at = excluded.expires_at, finished_at = null,
  pinned = excluded.pinned, provider = excluded.provider, scopes = excluded.scopes
where deliveries.final and deliveries.round < excluded.round and deliveries.status not in ('sent', 'delivered', 'read')`

// Retry starts a new round of what failed in a notification of a project that has
// ended. expires is until when it may be sent; zero means for as long from now as
// it could at first. Attempts and events stay; deliveries that begin again have
// a new key, so that receivers do not take them for repeats.
func (s *Store) Retry(ctx context.Context, project string, id uuid.UUID, expires, now time.Time, restart Restarter) (Retry, error) {
	var out Retry
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, lockNotification, id, project)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return ErrNotFound
		}
		// Late evidence may still correct what has ended.
		if _, err := tx.Exec(ctx, "select from dispatcher.deliveries where notification_id = $1 order by step, target for update", id); err != nil {
			return err
		}
		records, err := readRecords(ctx, tx, []uuid.UUID{id}, false)
		if err != nil {
			return err
		}
		r := records[0]
		if _, err := readContent(ctx, tx, id); errors.Is(err, errUnreadable) {
			r.Invalid = err // it would fail in the same way
		} else if err != nil {
			return err
		}
		out = Retry{Result: r.retry(), Round: r.Notification.Round, ExpiresAt: r.Notification.ExpiresAt}
		if out.Result != Retried {
			return nil
		}
		n := &r.Notification
		n.Round++
		if expires.IsZero() {
			expires = now.Add(r.lifetime())
		}
		n.ExpiresAt = expires.Truncate(time.Microsecond) // which is what Postgres keeps
		out.Round, out.ExpiresAt = n.Round, n.ExpiresAt
		return s.startRound(ctx, tx, r, restart(r), now)
	})
	if err != nil {
		return Retry{}, fmt.Errorf("retry: %w", err)
	}
	return out, nil
}

func (s *Store) startRound(ctx context.Context, tx pgx.Tx, r Record, starts []Start, now time.Time) error {
	n := &r.Notification
	p, b := newPack(), &pgx.Batch{}
	begun := appendStarts(nil, starts)
	queueStarts(p, begun)
	if err := p.insert(ctx, tx, s.queue); err != nil {
		return err
	}
	b.Queue(markRetried, n.ID, n.Round, now, n.ExpiresAt)
	queueInserts(b, renewDeliveries, begun)
	queueEvents(b, []Event{{At: now, ID: DeliveryID{Notification: n.ID}, Whole: true, Project: n.Project, Type: EventRetried}})
	return send(ctx, tx, b)
}

// lifetime is for how long the notification could be sent when it was accepted.
func (r *Record) lifetime() time.Duration {
	accepted := r.Notification.ExpiresAt
	if !r.AcceptedUntil.IsZero() {
		accepted = r.AcceptedUntil
	}
	return accepted.Sub(r.Notification.SendAt)
}

// retry says what a retry of the notification would be answered.
func (r *Record) retry() RetryResult {
	status, final := r.Overall()
	switch {
	case !r.CanceledAt.IsZero(), !r.AcknowledgedAt.IsZero():
		return RetryStopped
	case !final:
		return RetryMoving
	case r.Invalid != nil:
		return RetryNeedless // it would fail in the same way
	case r.Notification.Round >= MaxRounds:
		return RetryTooOften
	}
	switch status { //nolint:exhaustive // the others have nothing to retry
	case notify.Failed, notify.PartiallyFailed, notify.Lapsed, notify.Blocked:
		return Retried
	}
	return RetryNeedless
}

// Failures selects notifications of one project that a retry would start again.
type Failures struct {
	// Filter selects as in a list. Status is failed, partially_failed, expired or
	// suppressed; empty means any of them. Channel is one on which it failed.
	Filter
	// Because is what one of the deliveries ended for, on Channel if that is given.
	Because string
}

// Failed returns the ids of notifications that a retry would start again, newest
// first and at most limit. more says that older ones were not looked at: there
// were more, or 20,000 that did not match lay before them.
func (s *Store) Failed(ctx context.Context, f Failures, limit int) (ids []uuid.UUID, more bool, err error) {
	const page = 500
	cursor := f.Cursor
	for scanned := 0; scanned < maxScan; scanned += page {
		sql, args := listIDs(f.Filter, cursor, page)
		found, err := collect(ctx, s.pool, sql, args)
		if err != nil {
			return nil, false, fmt.Errorf("list failed notifications: %w", err)
		}
		records, err := readRecords(ctx, s.pool, found, false)
		if err != nil {
			return nil, false, fmt.Errorf("list failed notifications: %w", err)
		}
		for i := range records {
			if !f.matches(&records[i]) {
				continue
			}
			if len(ids) == limit {
				return ids, true, nil
			}
			ids = append(ids, records[i].Notification.ID)
		}
		if len(found) < page {
			return ids, false, nil
		}
		cursor = found[len(found)-1]
	}
	return ids, true, nil
}

func collect(ctx context.Context, q queryer, sql string, args []any) ([]uuid.UUID, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
}

// because reports whether a delivery ended for the reason that is looked for: word
// for word, or up to the colon after which the particulars stand.
func (f *Failures) because(reason string) bool {
	return f.Because == "" || reason == f.Because || strings.HasPrefix(reason, f.Because+": ")
}

func (f *Failures) matches(r *Record) bool {
	if r.retry() != Retried {
		return false
	}
	if status, _ := r.Overall(); f.Status != "" && status != f.Status {
		return false
	}
	for _, d := range r.Deliveries {
		taken := notify.UntilAccepted.MetBy(d.Status)
		if !taken && (f.Channel == "" || d.Channel == f.Channel) && f.because(d.Because) {
			return true
		}
	}
	return false
}
