package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A flush carries the rows of many, and one of them may be locked by somebody who
// has all day: a session in which an operator has begun to mend something, say.
// So a flush waits for rows for a moment only. Where that was in vain it is made
// again with every row locked beforehand, without those that somebody else has;
// what is about them goes into a later flush. To lock all rows beforehand always
// would take about twice as long (measured with 500 rows).

const (
	// rowPatience is how long a flush waits for another's lock on a row: longer than
	// our own short transactions hold one, and less than Postgres waits before it
	// looks for a deadlock.
	rowPatience = 250 * time.Millisecond
	// otherPatience is the same for what all flushes have to wait for: the events'
	// lock.
	otherPatience = 5 * time.Second
	// waryFor is how long after it met a locked row every flush looks first.
	waryFor = 10 * time.Second
)

// errRowLocked says that a flush would have to wait for a row that cannot be seen:
// one that somebody else has written and not committed.
var errRowLocked = errors.New("a row is locked by another session")

// wariness is whether rows have been found locked lately. It is safe for
// concurrent use.
type wariness struct{ until atomic.Pointer[time.Time] }

func (w *wariness) now() bool {
	until := w.until.Load()
	return until != nil && time.Now().Before(*until)
}

func (w *wariness) begin() {
	until := time.Now().Add(waryFor)
	w.until.Store(&until)
}

// yielding makes a flush, and makes it again, wary of locked rows, where the
// first try had to wait for one.
func (s *Store) yielding(flush func(wary bool) error) error {
	wary := s.wary.now()
	err := flush(wary)
	if !wary && isLockTimeout(err) {
		s.wary.begin()
		err = flush(true)
	}
	return err
}

func isLockTimeout(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "55P03"
}

// lockedUnseen marks a lock timeout that came after all rows that can be seen had
// been locked.
func lockedUnseen(err error) error {
	if isLockTimeout(err) {
		return fmt.Errorf("%w: %w", errRowLocked, err)
	}
	return err
}

// plan says how the statements of a flush are planned.
type plan bool

const (
	// freshPlan is made for each execution, as everywhere: it goes by the size that
	// the tables have now.
	freshPlan plan = false
	// keptPlan is made once for each connection, where that would be a third of what
	// a flush of one costs Postgres. It may have been made while the tables were next
	// to empty: so it may read none from end to end, and statements that join what
	// they are given with a large table name the ids twice. An index leads to the rows
	// then whichever side it begins with. What naming them twice costs grows with the
	// square of the rows.
	keptPlan plan = true
)

// fewRows reports whether a flush is small enough to have a [keptPlan].
func fewRows(n int) bool { return n <= 16 }

func planFor(n int) plan { return plan(fewRows(n)) }

func (p plan) asStatement() string {
	if p == keptPlan {
		return "; set local plan_cache_mode = force_generic_plan; set local enable_seqscan = off"
	}
	return ""
}

func (p plan) asQuery() string {
	if p == keptPlan {
		return ", set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true)"
	}
	return ""
}

// inFlush is inTx for what waits for rows no longer than a moment.
func (s *Store) inFlush(ctx context.Context, p plan, do func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	begin := pgx.TxOptions{BeginQuery: fmt.Sprintf("begin; set local lock_timeout = %d", rowPatience.Milliseconds()) + p.asStatement()}
	return pgx.BeginTxFunc(ctx, s.pool, begin, func(tx pgx.Tx) error { return do(ctx, tx) })
}

// What each of these returns cannot be locked now. A row that is not there can be.
const (
	lockedDeliveries = `
with k as materialized (
  select distinct id, step, target from unnest($1::uuid[], $2::int2[], $3::int2[]) as k (id, step, target)
), free as materialized (
  select d.notification_id as id, d.step, d.target from k
  join dispatcher.deliveries d on d.notification_id = any($1) and d.notification_id = k.id and d.step = k.step and d.target = k.target
  for no key update of d skip locked
)
select k.id, k.step, k.target from k join dispatcher.deliveries d on d.notification_id = any($1) and d.notification_id = k.id and d.step = k.step and d.target = k.target
where not exists (select from free f where f.id = k.id and f.step = k.step and f.target = k.target)`

	lockedWaits = `
with k as materialized (
  select distinct id, step, target from unnest($1::uuid[], $2::int2[], $3::int2[]) as k (id, step, target)
), free as materialized (
  select w.notification_id as id, w.step, w.target from k
  join dispatcher.waits w on w.notification_id = any($1) and w.notification_id = k.id and w.step = k.step and w.target = k.target
  for update of w skip locked
)
select k.id, k.step, k.target from k join dispatcher.waits w on w.notification_id = any($1) and w.notification_id = k.id and w.step = k.step and w.target = k.target
where not exists (select from free f where f.id = k.id and f.step = k.step and f.target = k.target)`

	lockedAttempts = `
with k as materialized (
  select distinct id, step, target, turn from unnest($1::uuid[], $2::int2[], $3::int2[], $4::int4[]) as k (id, step, target, turn)
), free as materialized (
  select a.notification_id as id, a.step, a.target, a.turn from k
  join dispatcher.attempts a on a.notification_id = any($1) and a.notification_id = k.id and a.step = k.step and a.target = k.target and a.turn = k.turn
  for no key update of a skip locked
)
select k.id, k.step, k.target from k
join dispatcher.attempts a on a.notification_id = any($1) and a.notification_id = k.id and a.step = k.step and a.target = k.target and a.turn = k.turn
where not exists (select from free f where f.id = k.id and f.step = k.step and f.target = k.target and f.turn = k.turn)`

	lockedJoins = `
with free as materialized (
  select id from dispatcher.notifications where id = any($1) for no key update skip locked
)
select n.id from dispatcher.notifications n where n.id = any($1) and not exists (select from free f where f.id = n.id)`

	// What is known of an address is two rows: its entry on the list, and what counts
	// against it.
	lockedSuppressions = `
with k as materialized (
  select distinct project, channel, address from unnest($1::text[], $2::text[], $3::bytea[]) as k (project, channel, address)
), free as materialized (
  select s.project, s.channel, s.address from k join dispatcher.suppressions s using (project, channel, address)
  for no key update of s skip locked
)
select s.project, s.channel, s.address from k join dispatcher.suppressions s using (project, channel, address)
where not exists (select from free f where f.project = s.project and f.channel = s.channel and f.address = s.address)`

	lockedStrikes = `
with k as materialized (
  select distinct project, channel, address from unnest($1::text[], $2::text[], $3::bytea[]) as k (project, channel, address)
), free as materialized (
  select s.project, s.channel, s.address from k join dispatcher.address_strikes s using (project, channel, address)
  for no key update of s skip locked
)
select s.project, s.channel, s.address from k join dispatcher.address_strikes s using (project, channel, address)
where not exists (select from free f where f.project = s.project and f.channel = s.channel and f.address = s.address)`
)

type addressKey struct {
	project, channel string
	address          [16]byte
}

// lockedRows are rows that somebody else has locked.
type lockedRows struct {
	deliveries    map[DeliveryID]bool // or their wait or attempt
	notifications map[uuid.UUID]bool
	addresses     map[addressKey]bool // their suppression or strikes
}

// touchedBy reports whether a result cannot be written without one of them.
func (h *lockedRows) touchedBy(r *Result) bool {
	if h.deliveries[r.DeliveryID] || h.notifications[r.Notification] {
		return true
	}
	for i := range r.Next {
		if h.deliveries[r.Next[i].DeliveryID] {
			return true
		}
	}
	if s := r.Suppress; s != nil && h.addresses[addressKey{s.Project, string(s.Channel), s.Address}] {
		return true
	}
	k := r.Strike
	return k != nil && h.addresses[addressKey{k.Project, string(k.Channel), k.Address}]
}

// lockRows locks every row that results touch, as far as nobody else has, and
// returns those that somebody has.
func lockRows(ctx context.Context, tx pgx.Tx, results []Result) (lockedRows, error) {
	locked := lockedRows{map[DeliveryID]bool{}, map[uuid.UUID]bool{}, map[addressKey]bool{}}
	var moved, next, attempts keys
	var joins []uuid.UUID
	var project, channel []string
	var address [][]byte
	struck := false
	for i := range results {
		r := &results[i]
		moved.add(r.DeliveryID, r.Turn)
		if r.Attempt != nil {
			attempts.add(r.DeliveryID, r.Turn)
		}
		if r.Join {
			joins = append(joins, r.Notification)
		}
		for j := range r.Next {
			next.add(r.Next[j].DeliveryID, 0)
		}
		if s := r.Suppress; s != nil {
			project, channel, address = append(project, s.Project), append(channel, string(s.Channel)), append(address, s.Address[:])
		}
		if k := r.Strike; k != nil {
			project, channel, address = append(project, k.Project), append(channel, string(k.Channel)), append(address, k.Address[:])
			struck = true
		}
	}
	b := &pgx.Batch{}
	var d DeliveryID
	delivery := func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&d.Notification, &d.Step, &d.Target}, func() error { locked.deliveries[d] = true; return nil })
		return err
	}
	var id uuid.UUID
	notification := func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&id}, func() error { locked.notifications[id] = true; return nil })
		return err
	}
	if len(joins) > 0 {
		b.Queue(lockedJoins, joins).Query(notification)
	}
	b.Queue(lockedDeliveries, moved.ids, moved.step, moved.target).Query(delivery)
	b.Queue(lockedWaits, moved.ids, moved.step, moved.target).Query(delivery)
	if len(attempts.ids) > 0 {
		b.Queue(lockedAttempts, attempts.ids, attempts.step, attempts.target, attempts.turn).Query(delivery)
	}
	if len(next.ids) > 0 {
		b.Queue(lockedDeliveries, next.ids, next.step, next.target).Query(delivery)
	}
	if len(project) > 0 {
		var k addressKey
		var hash []byte
		away := func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&k.project, &k.channel, &hash}, func() error {
				copy(k.address[:], hash)
				locked.addresses[k] = true
				return nil
			})
			return err
		}
		if struck {
			b.Queue(lockedStrikes, project, channel, address).Query(away)
		}
		b.Queue(lockedSuppressions, project, channel, address).Query(away)
	}
	return locked, send(ctx, tx, b)
}
