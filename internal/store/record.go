package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Result is what a worker, a timer or the reaper has to write about a delivery.
type Result struct {
	DeliveryID
	Turn int32 // the turn it was decided under
	// Claim is the claim that it is the outcome of; zero where the delivery was
	// decided about unclaimed. One that somebody else has claimed meanwhile has not
	// changed its turn yet, but is being called.
	Claim   uuid.UUID
	Project string
	// Attempt is nil where no call was made.
	Attempt *Attempt
	// Uncalled says that the delivery was claimed and no call came of it.
	Uncalled bool
	After    After
	// Wait is why it does not move now; nil when it ended.
	Wait *Wait
	// Waited says that the turn was a wait's, whose row must go.
	Waited bool
	// Join asks that the step and the notification be looked at under lock, since
	// other deliveries have a say: several targets, or mode all. Without it Next
	// and Events are what the worker decided alone.
	Join   bool
	Next   []Start
	Events []Event
	// Suppress, if not nil, puts the address on the suppression list.
	Suppress *Suppression
	// Strike, if not nil, counts against the address.
	Strike *Strike
	// Receipts are those that it was decided from, which are applied with it.
	Receipts []uuid.UUID
}

// After is a delivery's state after a [Result].
type After struct {
	Status     notify.Status
	Final      bool
	Because    string
	Attempts   int
	Throttles  int
	Crashes    int
	Repeats    int
	FinishedAt time.Time // set when Final
}

// Fate says what became of a [Result].
type Fate int

// The fates.
const (
	// Written: the delivery moved on as decided.
	Written Fate = iota
	// Late: the delivery had moved on before. The attempt was kept as evidence;
	// what it means must be decided again from fresh state.
	Late
	// Locked: somebody else has locked a row that it touches. Nothing of it was
	// written, and it must be recorded again.
	Locked
)

// Joined is what [Joiner] decides under the notification's lock.
type Joined struct {
	Next   []Start
	Events []Event
}

// Joiner decides, from all deliveries of a notification in their state after the
// flush, what comes next. touched are those that this flush changed.
type Joiner func(r Record, touched []DeliveryID) Joined

const (
	updateFew  = updateHead + "d.notification_id = any($1) and " + updateTail
	updateMany = updateHead + updateTail
)

const updateHead = `
with r as (
  select unnest($1::uuid[]) as id, unnest($2::int2[]) as step, unnest($3::int2[]) as target, unnest($4::int4[]) as turn,
    unnest($5::text[]) as status, unnest($6::bool[]) as final, unnest($7::text[]) as because,
    unnest($8::int2[]) as attempts, unnest($9::int2[]) as throttles, unnest($10::int2[]) as crashes,
    unnest($11::int2[]) as repeats, unnest($12::timestamptz[]) as finished_at, unnest($13::uuid[]) as claim,
    unnest($14::int2[]) as uncalled
)
update dispatcher.deliveries d
set turn = d.turn + 1, status = r.status, final = r.final, because = r.because, attempts = r.attempts, throttles = r.throttles,
  crashes = r.crashes, repeats = r.repeats, calls = d.calls - r.uncalled, finished_at = r.finished_at, job_id = null, claimed_by = null, claimed_at = null
from r
where `

const updateTail = `d.notification_id = r.id and d.step = r.step and d.target = r.target and d.turn = r.turn and not d.final
  and (d.claimed_by is null or d.claim_id = r.claim)
returning d.notification_id, d.step, d.target`

// An attempt that the reaper wrote as unknown, or whoever applied a receipt that
// came before the call's answer, is corrected by the worker that made the call.
const insertAttempts = `
insert into dispatcher.attempts as a (notification_id, step, target, turn, n, http_status, duration_us, retry_after_ms, started_at,
  id, node, possible_duplicate, account, outcome, provider_code, provider_message_id, detail)
select unnest($1::uuid[]), unnest($2::int2[]), unnest($3::int2[]), unnest($4::int4[]), unnest($5::int2[]),
  unnest($6::int2[]), unnest($7::int8[]), unnest($8::int8[]), unnest($9::timestamptz[]), unnest($10::uuid[]),
  unnest($11::uuid[]), unnest($12::bool[]), unnest($13::text[]), unnest($14::text[]), unnest($15::text[]),
  unnest($16::text[]), unnest($17::text[])
on conflict (notification_id, step, target, turn) do update set
  http_status = excluded.http_status, duration_us = excluded.duration_us, retry_after_ms = excluded.retry_after_ms,
  id = excluded.id, outcome = excluded.outcome, provider_code = excluded.provider_code,
  provider_message_id = excluded.provider_message_id, detail = excluded.detail
where a.outcome = 'unknown' and excluded.outcome <> 'unknown'
returning notification_id, step, target`

const readAttemptIDs = `
select a.notification_id, a.step, a.target, a.id
from unnest($1::uuid[], $2::int2[], $3::int2[], $4::int4[]) as k (id, step, target, turn)
join dispatcher.attempts a on a.notification_id = k.id and a.step = k.step and a.target = k.target and a.turn = k.turn
where a.notification_id = any($1)`

const (
	deleteWaitsFew  = deleteWaitsMany + " and w.notification_id = any($1)"
	deleteWaitsMany = `
delete from dispatcher.waits w
using unnest($1::uuid[], $2::int2[], $3::int2[], $4::int4[]) as k (id, step, target, turn)
where w.notification_id = k.id and w.step = k.step and w.target = k.target and w.turn <= k.turn`
)

// Record writes results in one transaction. No two of them may name the same
// delivery. A result whose turn is no longer the row's is [Late]: its attempt is
// kept and nothing else of it is written. A result with an attempt that an earlier
// call already committed, although its answer was lost, is [Written]; one without
// is [Late] then. A result that somebody else's lock on a row stands in the way of
// is [Locked], and the others are written without it. Where that row cannot be seen,
// since it is new and not committed, all of them fail with an error of class
// [Blocked].
func (s *Store) Record(ctx context.Context, results []Result, join Joiner) ([]Fate, error) {
	fates := make([]Fate, len(results))
	var changes listed
	err := s.yielding(func(wary bool) error {
		clear(fates)
		changes = nil
		return s.inFlush(ctx, planFor(len(results)), func(ctx context.Context, tx pgx.Tx) error {
			if wary {
				return s.recordFree(ctx, tx, results, fates, join, &changes)
			}
			w, err := s.move(ctx, tx, results, fates, join, &changes)
			if err != nil {
				return err
			}
			queueEvents(w.rows, w.events)
			return send(ctx, tx, w.rows)
		})
	})
	if err != nil {
		return nil, fmt.Errorf("record: %w", err)
	}
	s.tell(changes)
	return fates, nil
}

// recordFree is Record without the results that touch a row which somebody else
// has locked.
func (s *Store) recordFree(ctx context.Context, tx pgx.Tx, results []Result, fates []Fate, join Joiner, changes *listed) error {
	locked, err := lockRows(ctx, tx, results)
	if err != nil {
		return fmt.Errorf("lock rows: %w", err)
	}
	free, at := make([]Result, 0, len(results)), make([]int, 0, len(results))
	for i := range results {
		if locked.touchedBy(&results[i]) {
			fates[i] = Locked
		} else {
			free, at = append(free, results[i]), append(at, i)
		}
	}
	if len(free) < len(results) {
		s.wary.begin()
	}
	if len(free) == 0 {
		return nil
	}
	moved := make([]Fate, len(free))
	w, err := s.move(ctx, tx, free, moved, join, changes)
	if err == nil {
		err = send(ctx, tx, w.rows)
	}
	if err != nil {
		return lockedUnseen(err)
	}
	for i, fate := range moved {
		fates[at[i]] = fate
	}
	last := &pgx.Batch{}
	queueEvents(last, w.events)
	return send(ctx, tx, last)
}

// move writes the deliveries' new state and sets fates. What it returns is still
// to be written, the events last, and adds to changes.
func (s *Store) move(ctx context.Context, tx pgx.Tx, results []Result, fates []Fate, join Joiner, changes *listed) (following, error) {
	w := following{rows: &pgx.Batch{}}
	if err := lockJoins(ctx, tx, results); err != nil {
		return w, err
	}
	moved, err := update(ctx, tx, results, fates)
	if err != nil {
		return w, err
	}
	joined, err := joins(ctx, tx, moved, join)
	if err != nil {
		return w, err
	}
	var starts []*Start
	var waits []Wait
	var suppressions []*Suppression
	var strikes []*Strike
	var waited []*Result
	var receipts []uuid.UUID
	for _, r := range moved {
		receipts = append(receipts, r.Receipts...)
		starts, w.events = appendStarts(starts, r.Next), append(w.events, r.Events...)
		switch {
		case r.Wait != nil:
			waits = append(waits, *r.Wait)
		case r.Waited:
			waited = append(waited, r)
		}
		if r.Suppress != nil {
			suppressions = append(suppressions, r.Suppress)
		}
		if r.Strike != nil {
			strikes = append(strikes, r.Strike)
		}
	}
	starts, w.events = appendStarts(starts, joined.Next), append(w.events, joined.Events...)
	p := newPack()
	queueStarts(p, starts)
	if err := p.insert(ctx, tx, s.queue); err != nil {
		return w, err
	}
	queueWaits(w.rows, waits)
	queueWaitDeletes(w.rows, waited)
	queueStrikes(w.rows, strikes, changes)
	queueSuppressions(w.rows, suppressions, changes)
	queueApplied(w.rows, receipts)
	queueInserts(w.rows, renewDeliveries, starts)
	return w, nil
}

// following is what follows from results that moved deliveries.
type following struct {
	rows   *pgx.Batch
	events []Event
}

// lockJoins takes the row lock under which deliveries of one notification decide
// together. It is a weak lock: foreign keys do not wait for it.
func lockJoins(ctx context.Context, tx pgx.Tx, results []Result) error {
	var ids []uuid.UUID
	for i := range results {
		if results[i].Join {
			ids = append(ids, results[i].Notification)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, "select from dispatcher.notifications where id = any($1) order by id for no key update", ids)
	if err != nil {
		return fmt.Errorf("lock notifications: %w", err)
	}
	return nil
}

// update writes attempts and the deliveries' new state, sets fates and returns the
// results whose delivery moved in this transaction.
func update(ctx context.Context, tx pgx.Tx, results []Result, fates []Fate) ([]*Result, error) {
	b := &pgx.Batch{}
	queueUpdates(b, results)
	attempted := queueAttempts(b, results)
	answers := tx.SendBatch(ctx, b)
	movedIDs, err := collectIDs(answers.Query())
	if err != nil {
		_ = answers.Close()
		return nil, fmt.Errorf("update deliveries: %w", err)
	}
	keptIDs := map[DeliveryID]bool{}
	if attempted {
		if keptIDs, err = collectIDs(answers.Query()); err != nil {
			_ = answers.Close()
			return nil, fmt.Errorf("insert attempts: %w", err)
		}
	}
	if err := answers.Close(); err != nil {
		return nil, fmt.Errorf("update deliveries: %w", err)
	}
	var moved []*Result
	var doubtful []int
	for i := range results {
		r := &results[i]
		switch {
		case movedIDs[r.DeliveryID]:
			moved = append(moved, r)
		case r.Attempt != nil && !keptIDs[r.DeliveryID]:
			doubtful = append(doubtful, i)
		default:
			fates[i] = Late
		}
	}
	return moved, settle(ctx, tx, results, doubtful, fates)
}

// settle tells results that an earlier call committed from those that came after
// somebody else's: the attempt's id was made before the first try.
func settle(ctx context.Context, tx pgx.Tx, results []Result, doubtful []int, fates []Fate) error {
	if len(doubtful) == 0 {
		return nil
	}
	var k keys
	for _, i := range doubtful {
		fates[i] = Late
		k.add(results[i].DeliveryID, results[i].Turn)
	}
	rows, err := tx.Query(ctx, readAttemptIDs, k.ids, k.step, k.target, k.turn)
	if err != nil {
		return fmt.Errorf("read attempts: %w", err)
	}
	ours := map[DeliveryID]uuid.UUID{}
	var d DeliveryID
	var id uuid.UUID
	if _, err := pgx.ForEachRow(rows, []any{&d.Notification, &d.Step, &d.Target, &id}, func() error { ours[d] = id; return nil }); err != nil {
		return fmt.Errorf("read attempts: %w", err)
	}
	for _, i := range doubtful {
		if ours[results[i].DeliveryID] == results[i].Attempt.ID {
			fates[i] = Written
		}
	}
	return nil
}

// joins asks join about every notification whose deliveries decide together.
func joins(ctx context.Context, tx pgx.Tx, moved []*Result, join Joiner) (Joined, error) {
	touched := map[uuid.UUID][]DeliveryID{}
	var ids []uuid.UUID
	for _, r := range moved {
		if !r.Join {
			continue
		}
		if touched[r.Notification] == nil {
			ids = append(ids, r.Notification)
		}
		touched[r.Notification] = append(touched[r.Notification], r.DeliveryID)
	}
	var all Joined
	if len(ids) == 0 {
		return all, nil
	}
	records, err := readRecords(ctx, tx, ids, false)
	if err != nil {
		return all, err
	}
	for _, r := range records {
		j := join(r, touched[r.Notification.ID])
		all.Next, all.Events = append(all.Next, j.Next...), append(all.Events, j.Events...)
	}
	return all, nil
}
