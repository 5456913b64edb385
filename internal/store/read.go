package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// queryer is a pool, a connection or a transaction.
type queryer interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

const wholeStory = "select " + eventColumns + " from dispatcher.events e where e.notification_id = $1 order by e.id"

// Get reads one notification of a project with its whole story, or [ErrNotFound].
func (s *Store) Get(ctx context.Context, project string, id uuid.UUID) (Record, error) {
	var records []Record
	// One snapshot for all of its parts, so that they tell one story.
	err := pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) (err error) {
		if records, err = readRecords(ctx, tx, []uuid.UUID{id}, true); err != nil || len(records) == 0 {
			return err
		}
		rows, err := tx.Query(ctx, wholeStory, id)
		if err != nil {
			return fmt.Errorf("read events: %w", err)
		}
		records[0].Events, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (LoggedEvent, error) { return scanEvent(row) })
		return err
	})
	if err != nil {
		return Record{}, fmt.Errorf("get notification: %w", err)
	}
	if len(records) == 0 || records[0].Notification.Project != project {
		return Record{}, ErrNotFound
	}
	return records[0], nil
}

// Records reads notifications by id, without their attempts and receipts. Those that do not
// exist are left out.
func (s *Store) Records(ctx context.Context, ids []uuid.UUID) ([]Record, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return readRecords(ctx, s.pool, ids, false)
}

// listIDs writes the query for a page of ids. Only the conditions that are asked
// for are in it, so that each kind of list gets a plan of its own.
func listIDs(f Filter, cursor uuid.UUID, page int) (string, []any) {
	sql, args := "select n.id from dispatcher.notifications n where n.project = $1", []any{f.Project}
	and := func(condition string, arg any) {
		args = append(args, arg)
		sql += " and " + strings.ReplaceAll(condition, "$", "$"+strconv.Itoa(len(args)))
	}
	if cursor != uuid.Nil {
		and("n.id < $", cursor)
	}
	if f.Reference != "" {
		and("n.reference = $", f.Reference)
	}
	if !f.After.IsZero() {
		and("n.created_at >= $", f.After)
		and("n.id >= $", firstIDAt(f.After.Add(-idSlack))) // where the walk may end
	}
	if !f.Before.IsZero() {
		and("n.created_at < $", f.Before)
		and("n.id < $", firstIDAt(f.Before.Add(idSlack))) // where it may begin
	}
	if f.Channel != "" {
		and("exists (select from dispatcher.deliveries d where d.notification_id = n.id and d.channel = $)", string(f.Channel))
	}
	if len(f.Addresses) > 0 {
		addresses := make([][]byte, len(f.Addresses))
		for i := range f.Addresses {
			addresses[i] = f.Addresses[i][:]
		}
		and("n.id in (select d.notification_id from dispatcher.deliveries d where d.address = any($))", addresses)
	}
	args = append(args, page)
	return sql + " order by n.id desc limit $" + strconv.Itoa(len(args)), args
}

// idSlack is how far the instant in a notification's id may be from its
// created_at: one node makes both at acceptance.
const idSlack = time.Hour

// maxScan bounds how many notifications a filtered list looks at.
const maxScan = 20_000

// List reads notifications of a project, newest first, without their attempts.
// Status is derived, so a filter on it walks the list: it may return fewer than
// asked although older ones exist, after 20,000 that did not match.
func (s *Store) List(ctx context.Context, f Filter) ([]Record, error) {
	limit := min(max(f.Limit, 1), 200)
	page := limit
	if f.Status != "" {
		page = 500
	}
	cursor := f.Cursor
	var out []Record
	for scanned := 0; scanned < maxScan; {
		sql, args := listIDs(f, cursor, page)
		rows, err := s.pool.Query(ctx, sql, args...)
		if err != nil {
			return nil, fmt.Errorf("list notifications: %w", err)
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
		if err != nil {
			return nil, fmt.Errorf("list notifications: %w", err)
		}
		records, err := readRecords(ctx, s.pool, ids, false)
		if err != nil {
			return nil, fmt.Errorf("list notifications: %w", err)
		}
		for _, r := range records {
			if status, _ := r.Overall(); f.Status == "" || status == f.Status {
				if out = append(out, r); len(out) == limit {
					return out, nil
				}
			}
		}
		if len(ids) < page || f.Status == "" {
			return out, nil
		}
		cursor = ids[len(ids)-1]
		scanned += len(ids)
	}
	return out, nil
}

// Overall derives the notification's status and whether it is its end.
func (r *Record) Overall() (notify.Status, bool) {
	return notify.Overall(r.Notification.Mode, r.ByStep(), !r.CanceledAt.IsZero())
}

// Past reports whether a delivery failed before a retry and has not begun again:
// in mode first the chain may not have come to it yet.
func (r *Record) Past(d *Delivery) bool {
	return r.Notification.Mode == notify.First && int(d.Round) < r.Notification.Round && !notify.UntilAccepted.MetBy(d.Status)
}

// ByStep groups what the status is derived from by step of the chain, without
// what is past.
func (r *Record) ByStep() [][]notify.DeliveryView {
	steps := make([][]notify.DeliveryView, len(r.Notification.Chain))
	for _, d := range r.Deliveries {
		if int(d.Step) < len(steps) && !r.Past(&d) {
			steps[d.Step] = append(steps[d.Step], notify.DeliveryView{Status: d.Status, Final: d.Final})
		}
	}
	return steps
}

// FinishedAt is when the last delivery ended; zero while one has not.
func (r *Record) FinishedAt() time.Time {
	var last time.Time
	for _, d := range r.Deliveries {
		if !d.Final {
			return time.Time{}
		}
		if d.FinishedAt.After(last) {
			last = d.FinishedAt
		}
	}
	return last
}

const readNotifications = `
select n.id, n.project, n.priority, n.expires_at, m.canceled_at, m.acknowledged_at, m.retried_at, m.expires_at, coalesce(m.round, 0),
  n.mode, n.chain, n.recipient, '{}'::json, n.reference, n.metadata, n.trace, n.created_at, n.send_at
from dispatcher.notifications n left join dispatcher.marks m on m.notification_id = n.id
where n.id = any($1) order by n.id desc`

// Content reads what the recipient of a notification is told, which may be
// several megabytes, or returns [ErrNotFound].
func (s *Store) Content(ctx context.Context, id uuid.UUID) (notify.Content, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return readContent(ctx, s.pool, id)
}

// errUnreadable says that what is stored is not what was accepted.
var errUnreadable = errors.New("stored content cannot be read")

func readContent(ctx context.Context, q queryer, id uuid.UUID) (c notify.Content, err error) {
	rows, err := q.Query(ctx, "select content from dispatcher.notifications where id = $1", id)
	if err != nil {
		return c, fmt.Errorf("read content: %w", err)
	}
	text, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[[]byte])
	if err != nil {
		return c, fmt.Errorf("read content: %w", notFound(err))
	}
	if err := notify.Decode(text, &c); err != nil {
		return c, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return c, nil
}

const readDeliveries = `select ` + deliveryColumnsOfD + `
from dispatcher.deliveries d where d.notification_id = any($1) order by d.notification_id, d.step, d.target`

const readWaits = `
select notification_id, step, target, turn, project, channel, priority, reason, scope, held, since, until, due, ask_at
from dispatcher.waits where notification_id = any($1) order by notification_id, step, target`

const readAttempts = `
select notification_id, step, target, turn, id, n, node, account, started_at, duration_us, outcome, http_status, retry_after_ms,
  provider_code, provider_message_id, detail, possible_duplicate
from dispatcher.attempts where notification_id = any($1) order by notification_id, step, target, turn`

// Histories is Records with attempts and receipts.
func (s *Store) Histories(ctx context.Context, ids []uuid.UUID) ([]Record, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	return readRecords(ctx, s.pool, ids, true)
}

// readRecords reads notifications by id, newest first, with their attempts and
// receipts if asked to. They are without their content: it is large, and only a
// call needs it. Those that do not exist are left out.
func readRecords(ctx context.Context, q queryer, ids []uuid.UUID, attempts bool) ([]Record, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	rows, err := q.Query(ctx, readNotifications, ids)
	if err != nil {
		return nil, fmt.Errorf("read notifications: %w", err)
	}
	records, err := pgx.CollectRows(rows, scanRecord)
	if err != nil {
		return nil, fmt.Errorf("read notifications: %w", err)
	}
	at := make(map[uuid.UUID]*Record, len(records))
	for i := range records {
		at[records[i].Notification.ID] = &records[i]
	}
	err = each(ctx, q, readDeliveries, ids, scanDelivery, func(d Delivery) {
		if r := at[d.Notification]; r != nil {
			r.Deliveries = append(r.Deliveries, d)
			if r.Invalid != nil {
				lengthen(&r.Notification, &d)
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read deliveries: %w", err)
	}
	err = each(ctx, q, readWaits, ids, scanWait, func(w Wait) {
		if r := at[w.Notification]; r != nil {
			r.Waits = append(r.Waits, w)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read waits: %w", err)
	}
	if !attempts {
		return records, nil
	}
	err = each(ctx, q, readAttempts, ids, scanAttempt, func(a Attempt) {
		if r := at[a.Notification]; r != nil {
			r.Attempts = append(r.Attempts, a)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read attempts: %w", err)
	}
	err = each(ctx, q, readReceipts, ids, scanReceipt, func(receipt Receipt) {
		if r := at[receipt.Notification]; r != nil {
			r.Receipts = append(r.Receipts, receipt)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("read receipts: %w", err)
	}
	return records, nil
}

func each[T any](ctx context.Context, q queryer, sql string, ids []uuid.UUID, scan pgx.RowToFunc[T], do func(T)) error {
	rows, err := q.Query(ctx, sql, ids)
	if err != nil {
		return err
	}
	all, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return err
	}
	for _, v := range all {
		do(v)
	}
	return nil
}

func scanRecord(row pgx.CollectableRow) (Record, error) {
	var n notificationRow
	var canceled, acknowledged, retried, extended *time.Time
	head := []any{&n.ID, &n.Project, &n.Priority, &n.ExpiresAt, &canceled, &acknowledged, &retried, &extended, &n.Round}
	if err := row.Scan(append(head, n.fields()...)...); err != nil {
		return Record{}, err
	}
	// One that cannot be read must not keep others from being read beside it.
	notification, invalid := n.notification()
	r := Record{
		Notification: notification, CanceledAt: zero(canceled), AcknowledgedAt: zero(acknowledged), RetriedAt: zero(retried),
		Invalid: invalid,
	}
	if extended != nil {
		r.AcceptedUntil, r.Notification.ExpiresAt = notification.ExpiresAt, *extended
	}
	return r, nil
}

func scanDelivery(row pgx.CollectableRow) (Delivery, error) {
	var d deliveryRow
	if err := row.Scan(d.fields()...); err != nil {
		return Delivery{}, err
	}
	return d.delivery(), nil
}

func scanWait(row pgx.CollectableRow) (Wait, error) {
	var w Wait
	var ask *time.Time
	err := row.Scan(&w.Notification, &w.Step, &w.Target, &w.Turn, &w.Project, &w.Channel, &w.Priority, &w.Reason, &w.Scope, &w.Held, &w.Since,
		&w.Until, &w.Due, &ask)
	w.AskAt = zero(ask)
	return w, err
}

func scanAttempt(row pgx.CollectableRow) (Attempt, error) {
	var a Attempt
	var us int64
	var ms *int64
	var status *int16
	var code, id, detail *string
	err := row.Scan(&a.Notification, &a.Step, &a.Target, &a.Turn, &a.ID, &a.N, &a.Node, &a.Account, &a.StartedAt, &us, &a.Outcome,
		&status, &ms, &code, &id, &detail, &a.PossibleDuplicate)
	a.Duration, a.RetryAfter = time.Duration(us)*time.Microsecond, time.Duration(zero(ms))*time.Millisecond
	a.HTTPStatus, a.ProviderCode, a.ProviderMessageID, a.Detail = int(zero(status)), zero(code), zero(id), zero(detail)
	return a, err
}
