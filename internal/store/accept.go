package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Acceptance is an [Accept] with what it starts: the first step's deliveries, or
// all steps' in mode all.
type Acceptance struct {
	Accept
	Starts []Start
}

// EventAccepted is the first event of every notification.
const EventAccepted = "accepted"

// Accept writes notifications in one transaction: rows, deliveries, waits, jobs,
// idempotency records and events. The results are in order. A repeated
// idempotency key gives the earlier answer, or [ErrIdempotencyMismatch] in that
// row's place of errs; one whose record somebody else has locked, an error of
// class [Blocked] there. It is safe to call again with the same rows after an
// error that leaves it open whether the transaction was committed.
func (s *Store) Accept(ctx context.Context, rows []Acceptance, now time.Time, keep time.Duration) (out []Accepted, errs []error, err error) {
	out, errs = make([]Accepted, len(rows)), make([]error, len(rows))
	once := func(wary, again bool) error {
		clear(errs)
		return s.inFlush(ctx, keptPlan, func(ctx context.Context, tx pgx.Tx) error {
			insert := insertKeys
			if wary { // what is waited for now is a rival's commit
				insert = insertUnseenKeys
				if _, err := tx.Exec(ctx, "select set_config('lock_timeout', $1, true)", otherPatience.String()); err != nil {
					return err
				}
			}
			fresh, err := claimKeys(ctx, tx, insert, rows, out, errs, now, keep)
			if err != nil {
				return err
			}
			return s.acceptFresh(ctx, tx, rows, fresh, again)
		})
	}
	err = s.yielding(func(wary bool) error {
		err := once(wary, false)
		if isWritten(err) {
			err = once(wary, true)
		}
		return err
	})
	if err != nil {
		return nil, nil, fmt.Errorf("accept: %w", err)
	}
	return out, errs, nil
}

// acceptFresh writes the rows at the given indexes. With again those that an
// earlier try has committed are passed over; without, they fail the transaction.
func (s *Store) acceptFresh(ctx context.Context, tx pgx.Tx, rows []Acceptance, fresh []int, again bool) error {
	b := &pgx.Batch{}
	var err error
	if again {
		fresh, err = insertMissing(ctx, tx, rows, fresh)
	} else {
		err = queueNotifications(b, rows, fresh)
	}
	if err != nil {
		return err
	}
	starts, events := make([]*Start, 0, len(fresh)), make([]Event, 0, len(fresh))
	for _, i := range fresh {
		n := &rows[i].Notification
		starts = appendStarts(starts, rows[i].Starts)
		events = append(events, acceptedEvent(n.ID, n.Project, n.CreatedAt))
	}
	p := newPack()
	queueStarts(p, starts)
	if err := p.insert(ctx, tx, s.queue); err != nil {
		return err
	}
	queueInserts(b, insertDeliveries, starts)
	queueEvents(b, events)
	if err := send(ctx, tx, b); err != nil {
		return fmt.Errorf("insert notifications: %w", err)
	}
	return nil
}

// A record that is there is not locked: whoever repeats a key at the same time
// would wait for it. One that is not committed yet is a rival's, which is waited for.
const insertKeys = `
insert into dispatcher.idempotency_keys (project, route, key, fingerprint, notification_id, answer, expires_at)
select * from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::uuid[], $6::bytea[], $7::timestamptz[])
order by 1, 2, 3
on conflict (project, route, key) do nothing
returning project, route, key`

// The same without those that can be seen, which somebody may be about to change
// or delete. The offset keeps the planner from looking for all at once.
const insertUnseenKeys = `
insert into dispatcher.idempotency_keys (project, route, key, fingerprint, notification_id, answer, expires_at)
select * from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::uuid[], $6::bytea[], $7::timestamptz[])
  as w (project, route, key, fingerprint, notification_id, answer, expires_at)
where not exists (select from dispatcher.idempotency_keys k where k.project = w.project and k.route = w.route and k.key = w.key offset 0)
order by 1, 2, 3
on conflict (project, route, key) do nothing
returning project, route, key`

// A record whose time is over is taken by who comes first. What somebody else has
// locked is not waited for.
const renewKeys = `
with w as materialized (
  select * from unnest($1::text[], $2::text[], $3::text[], $4::bytea[], $5::uuid[], $6::bytea[], $7::timestamptz[])
    as w (project, route, key, fingerprint, notification_id, answer, expires_at)
), free as materialized (
  select k.project, k.route, k.key from w join dispatcher.idempotency_keys k using (project, route, key)
  where k.expires_at <= $8
  order by 1, 2, 3 for update of k skip locked
)
update dispatcher.idempotency_keys k
set fingerprint = w.fingerprint, notification_id = w.notification_id, answer = w.answer, expires_at = w.expires_at
from w join free using (project, route, key)
where k.project = w.project and k.route = w.route and k.key = w.key
returning k.project, k.route, k.key`

const readKeys = `
select k.project, k.route, k.key, k.fingerprint, k.notification_id, k.answer, k.expires_at <= $4
from unnest($1::text[], $2::text[], $3::text[]) as w (project, route, key)
cross join lateral (
  select * from dispatcher.idempotency_keys k where k.project = w.project and k.route = w.route and k.key = w.key offset 0) k`

type keyName struct{ project, route, key string }

// claimKeys writes the idempotency records that are new, by insert, and answers the
// rows whose key was there already. A rival's uncommitted record is waited for. Rows
// that have an error are passed over. It returns the indexes of the rows to write.
func claimKeys(ctx context.Context, tx pgx.Tx, insert string, rows []Acceptance, out []Accepted, errs []error, now time.Time, keep time.Duration) ([]int, error) {
	var (
		fresh               []int
		names               []keyName
		project, route, key []string
		fingerprint, answer [][]byte
		ids                 []uuid.UUID
		expires             []time.Time
		first               = map[keyName]int{} // the row of this batch that speaks for a key
	)
	for i := range rows {
		a := &rows[i].Accept
		out[i] = Accepted{ID: a.Notification.ID, Answer: a.Answer}
		if errs[i] != nil {
			continue
		}
		if a.Key == "" {
			fresh = append(fresh, i)
			continue
		}
		name := keyName{a.Notification.Project, a.Route, a.Key}
		names = append(names, name)
		if _, ok := first[name]; ok {
			continue
		}
		first[name] = i
		project, route, key = append(project, name.project), append(route, name.route), append(key, name.key)
		fingerprint, answer = append(fingerprint, a.Fingerprint[:]), append(answer, a.Answer)
		ids, expires = append(ids, a.Notification.ID), append(expires, now.Add(keep))
	}
	if len(names) == 0 {
		return fresh, nil
	}
	won, err := wonKeys(ctx, tx, insert, project, route, key, fingerprint, ids, answer, expires)
	if err != nil {
		return nil, err
	}
	kept := map[keyName]keptKey{}
	if len(won) < len(first) || len(names) > len(first) {
		var over bool
		if kept, over, err = keptKeys(ctx, tx, project, route, key, now); err != nil {
			return nil, err
		}
		if over {
			renewed, err := wonKeys(ctx, tx, renewKeys, project, route, key, fingerprint, ids, answer, expires, now)
			if err != nil {
				return nil, err
			}
			maps.Copy(won, renewed)
			for name, i := range first {
				if renewed[name] {
					a := &rows[i].Accept
					kept[name] = keptKey{id: a.Notification.ID, fingerprint: a.Fingerprint, answer: a.Answer}
				}
			}
		}
	}
	for i := range rows {
		a := &rows[i].Accept
		name := keyName{a.Notification.Project, a.Route, a.Key}
		switch k := kept[name]; {
		case a.Key == "", errs[i] != nil:
		case won[name] && first[name] == i, k.id == a.Notification.ID: // the latter: this very row, committed by an earlier try
			fresh = append(fresh, i)
		case k.over: // and somebody else has it locked
			errs[i] = errRowLocked
		case k.fingerprint != a.Fingerprint:
			errs[i] = ErrIdempotencyMismatch
		default:
			out[i] = Accepted{ID: k.id, Replayed: true, Answer: k.answer}
		}
	}
	return fresh, nil
}

// wonKeys runs a statement that writes idempotency records and returns which.
func wonKeys(ctx context.Context, tx pgx.Tx, sql string, args ...any) (map[keyName]bool, error) {
	won := map[keyName]bool{}
	result, err := tx.Query(ctx, sql, args...)
	if err != nil {
		return nil, fmt.Errorf("write idempotency keys: %w", err)
	}
	var n keyName
	if _, err := pgx.ForEachRow(result, []any{&n.project, &n.route, &n.key}, func() error { won[n] = true; return nil }); err != nil {
		return nil, fmt.Errorf("write idempotency keys: %w", err)
	}
	return won, nil
}

type keptKey struct {
	id          uuid.UUID
	fingerprint [32]byte
	answer      []byte
	over        bool // its time
}

// keptKeys reads the records that are there, and whether the time of one is over.
func keptKeys(ctx context.Context, tx pgx.Tx, project, route, key []string, now time.Time) (kept map[keyName]keptKey, over bool, err error) {
	kept = map[keyName]keptKey{}
	result, err := tx.Query(ctx, readKeys, project, route, key, now)
	if err != nil {
		return nil, false, fmt.Errorf("read idempotency keys: %w", err)
	}
	var n keyName
	var k keptKey
	var fingerprint []byte
	_, err = pgx.ForEachRow(result, []any{&n.project, &n.route, &n.key, &fingerprint, &k.id, &k.answer, &k.over}, func() error {
		copy(k.fingerprint[:], fingerprint)
		over = over || k.over
		kept[n] = k
		k.answer = nil // the next row gets a slice of its own
		return nil
	})
	if err != nil {
		return nil, false, fmt.Errorf("read idempotency keys: %w", err)
	}
	return kept, over, nil
}

const insertNotifications = `
insert into dispatcher.notifications (id, project, priority, mode, chain, recipient, content, reference, metadata, trace,
  created_at, send_at, expires_at)
select unnest($1::uuid[]), unnest($2::text[]), unnest($3::int2[]), unnest($4::text[]), unnest($5::json[]), unnest($6::json[]),
  unnest($7::json[]), unnest($8::text[]), unnest($9::json[]), unnest($10::text[]), unnest($11::timestamptz[]),
  unnest($12::timestamptz[]), unnest($13::timestamptz[])`

// To look for a conflict costs each row a search of the index beforehand and a
// record of the log afterwards, so that only who has met one looks.
const insertMissingNotifications = insertNotifications + `
on conflict (id) do nothing
returning id`

// isWritten reports whether err says that a notification is there already, which an
// earlier try has committed.
func isWritten(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.Code == "23505" && pg.ConstraintName == "notifications_pkey"
}

// queueNotifications adds the statement that writes the rows at the given indexes
// to b.
func queueNotifications(b *pgx.Batch, rows []Acceptance, fresh []int) error {
	if len(fresh) == 0 {
		return nil
	}
	columns, err := notificationColumns(rows, fresh)
	if err == nil {
		b.Queue(insertNotifications, columns...)
	}
	return err
}

// insertMissing writes those of the rows at the given indexes that are not there
// and returns them.
func insertMissing(ctx context.Context, tx pgx.Tx, rows []Acceptance, fresh []int) ([]int, error) {
	if len(fresh) == 0 {
		return nil, nil
	}
	columns, err := notificationColumns(rows, fresh)
	if err != nil {
		return nil, err
	}
	result, err := tx.Query(ctx, insertMissingNotifications, columns...)
	if err != nil {
		return nil, fmt.Errorf("insert notifications: %w", err)
	}
	written, err := pgx.CollectRows(result, pgx.RowTo[uuid.UUID])
	if err != nil {
		return nil, fmt.Errorf("insert notifications: %w", err)
	}
	return slices.DeleteFunc(fresh, func(i int) bool { return !slices.Contains(written, rows[i].Notification.ID) }), nil
}

// notificationColumns are the columns of [insertNotifications].
func notificationColumns(rows []Acceptance, fresh []int) ([]any, error) {
	of := make([]*notify.Notification, len(fresh))
	chain, recipient, content := make([][]byte, len(fresh)), make([][]byte, len(fresh)), make([][]byte, len(fresh))
	for i, at := range fresh {
		n := &rows[at].Notification
		of[i] = n
		var errs [3]error
		chain[i], errs[0] = notify.Encode(n.Chain)
		recipient[i], errs[1] = notify.Encode(n.To)
		content[i], errs[2] = notify.Encode(n.Content)
		if err := cmp.Or(errs[:]...); err != nil {
			return nil, fmt.Errorf("%w: %w", errUnstorable, err)
		}
	}
	return []any{
		column(of, func(n *notify.Notification) uuid.UUID { return n.ID }),
		column(of, func(n *notify.Notification) string { return n.Project }),
		column(of, func(n *notify.Notification) int16 { return int16(n.Priority) }),
		column(of, func(n *notify.Notification) string { return string(n.Mode) }),
		chain, recipient, content,
		column(of, func(n *notify.Notification) *string { return nullText(n.Reference) }),
		column(of, func(n *notify.Notification) []byte { return nullJSON(n.Metadata) }),
		column(of, func(n *notify.Notification) *string { return nullText(n.Trace) }),
		column(of, func(n *notify.Notification) time.Time { return n.CreatedAt }),
		column(of, func(n *notify.Notification) time.Time { return n.SendAt }),
		column(of, func(n *notify.Notification) time.Time { return n.ExpiresAt }),
	}, nil
}
