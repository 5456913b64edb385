package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// timerLease is for how long a node has a timer to itself before another may
// decide it too, which turn would make harmless.
const timerLease = 10 * time.Second

// waitColumns lists the columns in the order of [scanDueWait].
const waitColumns = `w.notification_id, w.step, w.target, w.turn, w.project, w.channel, w.priority, w.reason, w.scope, w.held,
  w.since, w.until, w.due, w.ends_at, w.pinned, w.provider, w.scopes, w.attempts, w.throttles, w.repeats, w.account`

// dueWaits takes due rows, urgent ones first. Each priority is a walk of its own
// along waits_by_due, so that waits that are not due cost nothing. No index can be
// walked as far as clock_timestamp(), which may be another for each row.
const dueWaits = `
select ` + waitColumns + `
from unnest(array[1, 2, 3, 4]::int2[]) with ordinality as p (priority, place)
cross join lateral (
  select w.*, d.ends_at, d.pinned, d.provider, d.scopes, d.attempts, d.throttles, d.repeats, d.account
  from dispatcher.waits w
  join dispatcher.deliveries d using (notification_id, step, target)
  where w.priority = p.priority and w.due <= statement_timestamp()
    and not exists (select from dispatcher.enqueued e where e.notification_id = w.notification_id) -- until it is announced
  order by w.due
  limit $1
  for update of w, d skip locked
) w
order by p.place, w.due
limit $1`

// mayMove holds for a wait w that moves when its scope has room. The instant that a
// provider named stands on the row itself, so that it holds on a node that has
// not heard of the gate yet; but for one that any of several accounts may end.
const mayMove = `(w.reason <> 'throttled' or w.until <= clock_timestamp() or starts_with(w.scope, '` + anyPrefix + `'))`

// heldWaits takes so many rows of each group, oldest first.
const heldWaits = `
select ` + waitColumns + `
from unnest($1::text[], $2::int2[], $3::text[], $4::int4[]) as g (scope, priority, project, n)
cross join lateral (
  select w.*, d.ends_at, d.pinned, d.provider, d.scopes, d.attempts, d.throttles, d.repeats, d.account
  from dispatcher.waits w
  join dispatcher.deliveries d using (notification_id, step, target)
  where w.held and w.scope = g.scope and w.priority = g.priority and w.project = g.project and ` + mayMove + `
  order by w.since
  limit g.n
  for update of w, d skip locked
) w`

// heldGroups finds what is held, hopping along waits_by_hold from one group to
// the next: its cost is the number of groups, not of rows. The first row of a group
// is its oldest one.
const heldGroups = `
with recursive g as (
  (select scope, priority, project, channel, reason, since from dispatcher.waits
    where held and (scope, priority, project) > ($2, $3, $4) order by scope, priority, project, since limit 1)
  union all
  select n.* from g cross join lateral (
    select w.scope, w.priority, w.project, w.channel, w.reason, w.since from dispatcher.waits w
    where w.held and (w.scope, w.priority, w.project) > (g.scope, g.priority, g.project)
    order by w.scope, w.priority, w.project, w.since limit 1) n
)
select scope, priority, project, channel, reason, since, extract(epoch from clock_timestamp() - since) from g limit $1`

// countHeld counts what may move of each group, no further than n.
const countHeld = `
select (select count(*) from (
  select from dispatcher.waits w
  where w.held and w.scope = g.scope and w.priority = g.priority and w.project = g.project and ` + mayMove + `
  limit g.n) c)
from unnest($1::text[], $2::int2[], $3::text[], $4::int4[]) with ordinality as g (scope, priority, project, n, place)
order by g.place`

const leaseTimers = `
update dispatcher.waits w set due = greatest(w.until, clock_timestamp() + $5)
from unnest($1::uuid[], $2::int2[], $3::int2[], $4::int4[]) as k (id, step, target, turn)
where w.notification_id = k.id and w.step = k.step and w.target = k.target and w.turn = k.turn`

const queueDeliveries = `
update dispatcher.deliveries d set status = 'queued', job_id = k.job_id, because = k.because
from unnest($1::uuid[], $2::int2[], $3::int2[], $4::int4[], $5::int8[], $6::text[]) as k (id, step, target, turn, job_id, because)
where d.notification_id = k.id and d.step = k.step and d.target = k.target and d.turn = k.turn
  and not d.final and d.claimed_by is null`

// Woken is what a [Store.Wake] did.
type Woken struct {
	Moved int // waits that became jobs
	Kept  int // waits that were due and are held now
	// Timers are waits for knowledge (receipt, reconcile) that are over: what
	// that means is a decision. They stay, and come again after a while.
	Timers []Wait
}

// Wake moves at most limit due waits into the queue. Rows that somebody else
// holds are skipped. keep is asked about each delivery that was not held already:
// where it returns a wait, that takes the place of the one that is over. A nil
// keep keeps nothing.
func (s *Store) Wake(ctx context.Context, limit int, keep func(*Delivery) *Wait) (Woken, error) {
	out, err := s.take(ctx, keep, dueWaits, limit)
	if err != nil {
		return Woken{}, fmt.Errorf("wake: %w", err)
	}
	return out, nil
}

// ForgetWait deletes the wait of a delivery that has moved on from the given turn
// without it.
func (s *Store) ForgetWait(ctx context.Context, id DeliveryID, turn int32) error {
	var k keys
	k.add(id, turn)
	if _, err := s.pool.Exec(ctx, deleteWaitsMany, k.ids, k.step, k.target, k.turn); err != nil {
		return fmt.Errorf("forget wait: %w", err)
	}
	return nil
}

// Hold is a group of waits that are held by one scope, of one priority and
// project.
type Hold struct {
	Scope    string
	Priority notify.Priority
	Project  string
	Channel  notify.Channel
	// Reason, Since (by the database's clock) and Age are those of the one that has
	// been held longest.
	Reason notify.WaitReason
	Since  time.Time
	Age    time.Duration
}

// Holds returns the groups that are held after the given one, by scope, priority
// and project, at most limit; from the first on after the zero one.
func (s *Store) Holds(ctx context.Context, after Hold, limit int) ([]Hold, error) {
	rows, err := s.pool.Query(ctx, heldGroups, limit, after.Scope, int16(after.Priority), after.Project)
	if err != nil {
		return nil, fmt.Errorf("read held waits: %w", err)
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (h Hold, err error) {
		var age float64
		err = row.Scan(&h.Scope, &h.Priority, &h.Project, &h.Channel, &h.Reason, &h.Since, &age)
		h.Age = time.Duration(age * float64(time.Second))
		return h, err
	})
	if err != nil {
		return nil, fmt.Errorf("read held waits: %w", err)
	}
	return out, nil
}

// Room is how many waits of a group may move now.
type Room struct {
	Hold
	N int
}

// maxRoom bounds how many waits of a group move at once.
const maxRoom = 10_000

// CountRooms returns how many waits of each group could move now, counting no
// further than its room.
func (s *Store) CountRooms(ctx context.Context, rooms []Room) ([]int, error) {
	rows, err := s.pool.Query(ctx, countHeld, roomColumns(rooms)...)
	if err != nil {
		return nil, fmt.Errorf("count held waits: %w", err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		return nil, fmt.Errorf("count held waits: %w", err)
	}
	return out, nil
}

// WakeHeld moves waits that are held into the queue, so many of each group.
func (s *Store) WakeHeld(ctx context.Context, rooms []Room) (Woken, error) {
	out, err := s.take(ctx, nil, heldWaits, roomColumns(rooms)...)
	if err != nil {
		return Woken{}, fmt.Errorf("wake held: %w", err)
	}
	return out, nil
}

func roomColumns(rooms []Room) []any {
	var scopes, projects []string
	var priorities []int16
	var n []int32
	for _, r := range rooms {
		scopes, projects = append(scopes, r.Scope), append(projects, r.Project)
		priorities, n = append(priorities, int16(r.Priority)), append(n, int32(min(r.N, maxRoom)))
	}
	return []any{scopes, priorities, projects, n}
}

// take locks the rows that a query selects and moves them.
func (s *Store) take(ctx context.Context, keep func(*Delivery) *Wait, sql string, args ...any) (Woken, error) {
	var out Woken
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return fmt.Errorf("read waits: %w", err)
		}
		found, err := pgx.CollectRows(rows, scanDueWait)
		if err != nil {
			return fmt.Errorf("read waits: %w", err)
		}
		out = Woken{}
		var moving []Delivery
		var kept []Wait
		for i := range found {
			w := &found[i]
			if w.Reason == notify.WaitReceipt || w.Reason == notify.WaitReconcile {
				out.Timers = append(out.Timers, w.Wait)
				continue
			}
			d := w.delivery()
			if k := w.kept(&d, keep); k != nil {
				kept = append(kept, *k)
			} else {
				moving = append(moving, d)
			}
		}
		out.Moved, out.Kept = len(moving), len(kept)
		return s.wake(ctx, tx, moving, kept, out.Timers)
	})
	return out, err
}

// kept returns the wait that a delivery is to go on with, nil if it may move. What
// was held until it fell due is overdue, and nothing may keep that from its end.
func (w *dueWait) kept(d *Delivery, keep func(*Delivery) *Wait) *Wait {
	if keep == nil || w.Held || len(d.Refused) > 0 {
		return nil // the last is on its way from one account to another
	}
	k := keep(d)
	if k == nil {
		return nil
	}
	if !d.HeldSince.IsZero() {
		k.Since = d.HeldSince
	}
	k.DeliveryID, k.Turn, k.Project, k.Channel, k.Priority = w.DeliveryID, w.Turn, w.Project, w.Channel, w.Priority
	return k
}

func (s *Store) wake(ctx context.Context, tx pgx.Tx, moving []Delivery, kept, timers []Wait) error {
	if err := repeatWhereTaken(ctx, tx, moving); err != nil {
		return err
	}
	p, b := newPack(), &pgx.Batch{}
	for i := range moving {
		p.add(&moving[i])
	}
	if err := p.insert(ctx, tx, s.queue); err != nil {
		return err
	}
	if len(moving) > 0 {
		k := queueQueued(b, moving)
		b.Queue(deleteWaitsMany, k.ids, k.step, k.target, k.turn)
	}
	queueWaits(b, kept)
	if len(timers) > 0 {
		var k keys
		for _, t := range timers {
			k.add(t.DeliveryID, t.Turn)
		}
		b.Queue(leaseTimers, k.ids, k.step, k.target, k.turn, timerLease)
	}
	return send(ctx, tx, b)
}

// queueQueued adds the statement that marks deliveries as queued to b.
func queueQueued(b *pgx.Batch, deliveries []Delivery) keys {
	var k keys
	var jobs []int64
	var because []*string
	for i := range deliveries {
		d := &deliveries[i]
		k.add(d.DeliveryID, d.Turn)
		jobs, because = append(jobs, d.JobID), append(because, nullText(d.Because))
	}
	b.Queue(queueDeliveries, k.ids, k.step, k.target, k.turn, jobs, because)
	return k
}

type dueWait struct {
	Wait
	endsAt   time.Time
	pinned   string
	provider string
	scopes   []string

	attempts, throttles, repeats int16
	account                      string
}

// delivery is what moves when the wait is over. What was kept from its call by
// others goes on having been so since then.
func (w *dueWait) delivery() Delivery {
	d := Delivery{
		DeliveryID: w.DeliveryID, Turn: w.Turn, Project: w.Project, Channel: w.Channel, Priority: w.Priority,
		EndsAt: w.endsAt, Pinned: w.pinned, Provider: w.provider, Scopes: w.scopes, Because: string(w.Reason),
		Attempts: w.attempts, Throttles: w.throttles, Repeats: w.repeats, Account: w.account, Refused: refusedBy(w.Scope),
	}
	if w.Held || w.Reason == notify.WaitCapacity || w.Reason == notify.WaitBudget {
		d.HeldSince = w.Since
	}
	return d
}

func scanDueWait(row pgx.CollectableRow) (dueWait, error) {
	var w dueWait
	var pinned, provider, account *string
	err := row.Scan(&w.Notification, &w.Step, &w.Target, &w.Turn, &w.Project, &w.Channel, &w.Priority, &w.Reason, &w.Scope, &w.Held,
		&w.Since, &w.Until, &w.Due, &w.endsAt, &pinned, &provider, &w.scopes, &w.attempts, &w.throttles, &w.repeats, &account)
	w.pinned, w.provider, w.account = zero(pinned), zero(provider), zero(account)
	return w, err
}
