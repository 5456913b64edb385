package store

import (
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// column is what of says of each row, for unnest.
func column[R, T any](rows []R, of func(R) T) []T {
	out := make([]T, len(rows))
	for i, r := range rows {
		out[i] = of(r)
	}
	return out
}

// keys gathers deliveries and their turns column by column for unnest. Statements
// of the hot path unnest their columns in the select list, where Postgres walks
// through all of them at once; in the from clause it would first write each column
// into a store of its own, and the rows into another.
type keys struct {
	ids          []uuid.UUID
	step, target []int16
	turn         []int32
}

func (k *keys) add(d DeliveryID, turn int32) {
	k.ids, k.step, k.target, k.turn = append(k.ids, d.Notification), append(k.step, d.Step), append(k.target, d.Target), append(k.turn, turn)
}

// collectIDs reads the deliveries that a statement returned.
func collectIDs(rows pgx.Rows, err error) (map[DeliveryID]bool, error) {
	if err != nil {
		return nil, err
	}
	out := map[DeliveryID]bool{}
	var d DeliveryID
	_, err = pgx.ForEachRow(rows, []any{&d.Notification, &d.Step, &d.Target}, func() error { out[d] = true; return nil })
	return out, err
}

func queueUpdates(b *pgx.Batch, results []Result) {
	// In one order everywhere, so that two nodes do not lock crosswise.
	order := make([]*Result, len(results))
	for i := range results {
		order[i] = &results[i]
	}
	slices.SortFunc(order, func(a, b *Result) int { return compareIDs(a.DeliveryID, b.DeliveryID) })
	sql := updateMany
	if fewRows(len(results)) {
		sql = updateFew
	}
	b.Queue(sql,
		column(order, func(r *Result) uuid.UUID { return r.Notification }),
		column(order, func(r *Result) int16 { return r.Step }),
		column(order, func(r *Result) int16 { return r.Target }),
		column(order, func(r *Result) int32 { return r.Turn }),
		column(order, func(r *Result) string { return string(r.After.Status) }),
		column(order, func(r *Result) bool { return r.After.Final }),
		column(order, func(r *Result) *string { return nullText(r.After.Because) }),
		column(order, func(r *Result) int16 { return int16(r.After.Attempts) }),
		column(order, func(r *Result) int16 { return int16(r.After.Throttles) }),
		column(order, func(r *Result) int16 { return int16(r.After.Crashes) }),
		column(order, func(r *Result) int16 { return int16(r.After.Repeats) }),
		column(order, func(r *Result) *time.Time { return null(r.After.FinishedAt) }),
		column(order, func(r *Result) uuid.UUID { return r.Claim }),
		column(order, (*Result).uncalled),
	)
}

// uncalled is how many of the calls that were claimed were not made.
func (r *Result) uncalled() int16 {
	if r.Uncalled {
		return 1
	}
	return 0
}

func queueAttempts(b *pgx.Batch, results []Result) bool {
	of := make([]*Result, 0, len(results))
	for i := range results {
		if results[i].Attempt != nil {
			of = append(of, &results[i])
		}
	}
	if len(of) == 0 {
		return false
	}
	b.Queue(insertAttempts,
		column(of, func(r *Result) uuid.UUID { return r.Notification }),
		column(of, func(r *Result) int16 { return r.Step }),
		column(of, func(r *Result) int16 { return r.Target }),
		column(of, func(r *Result) int32 { return r.Turn }),
		column(of, func(r *Result) int16 { return r.Attempt.N }),
		column(of, func(r *Result) *int16 { return nullNumber(int16(r.Attempt.HTTPStatus)) }),
		column(of, func(r *Result) int64 { return r.Attempt.Duration.Microseconds() }),
		column(of, func(r *Result) *int64 { return nullNumber(max(r.Attempt.RetryAfter, 0).Milliseconds()) }),
		column(of, func(r *Result) time.Time { return r.Attempt.StartedAt }),
		column(of, func(r *Result) uuid.UUID { return r.Attempt.ID }),
		column(of, func(r *Result) uuid.UUID { return r.Attempt.Node }),
		column(of, func(r *Result) bool { return r.Attempt.PossibleDuplicate }),
		column(of, func(r *Result) string { return r.Attempt.Account }),
		column(of, func(r *Result) string { return string(r.Attempt.Outcome) }),
		column(of, func(r *Result) *string { return nullText(r.Attempt.ProviderCode) }),
		column(of, func(r *Result) *string { return nullText(r.Attempt.ProviderMessageID) }),
		column(of, func(r *Result) *string { return nullText(r.Attempt.Detail) }),
	)
	return true
}

func queueWaitDeletes(b *pgx.Batch, results []*Result) {
	if len(results) == 0 {
		return
	}
	var k keys
	for _, r := range results {
		k.add(r.DeliveryID, r.Turn)
	}
	sql := deleteWaitsMany
	if fewRows(len(results)) {
		sql = deleteWaitsFew
	}
	b.Queue(sql, k.ids, k.step, k.target, k.turn)
}
