package store

import (
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

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
	var (
		k                                     keys
		status                                []string
		final                                 []bool
		because                               []*string
		attempts, throttles, crashes, repeats []int16
		finished                              []*time.Time
		claim                                 []uuid.UUID
		uncalled                              []int16
	)
	// In one order everywhere, so that two nodes do not lock crosswise.
	order := make([]*Result, len(results))
	for i := range results {
		order[i] = &results[i]
	}
	slices.SortFunc(order, func(a, b *Result) int { return compareIDs(a.DeliveryID, b.DeliveryID) })
	for _, r := range order {
		k.add(r.DeliveryID, r.Turn)
		claim = append(claim, r.Claim)
		if r.Uncalled {
			uncalled = append(uncalled, 1)
		} else {
			uncalled = append(uncalled, 0)
		}
		status, final = append(status, string(r.After.Status)), append(final, r.After.Final)
		because, finished = append(because, nullText(r.After.Because)), append(finished, null(r.After.FinishedAt))
		attempts, throttles = append(attempts, int16(r.After.Attempts)), append(throttles, int16(r.After.Throttles))
		crashes, repeats = append(crashes, int16(r.After.Crashes)), append(repeats, int16(r.After.Repeats))
	}
	b.Queue(updateDeliveries, k.ids, k.step, k.target, k.turn, status, final, because, attempts, throttles, crashes, repeats, finished, claim, uncalled)
}

func queueAttempts(b *pgx.Batch, results []Result) bool {
	var (
		k                        keys
		n                        []int16
		httpStatus               []*int16
		duration                 []int64
		retryAfter               []*int64
		started                  []time.Time
		ids, nodes               []uuid.UUID
		duplicate                []bool
		account, outcome         []string
		code, messageID, details []*string
	)
	for i := range results {
		a := results[i].Attempt
		if a == nil {
			continue
		}
		k.add(results[i].DeliveryID, results[i].Turn)
		n, duration, started = append(n, a.N), append(duration, a.Duration.Microseconds()), append(started, a.StartedAt)
		var status *int16
		if a.HTTPStatus != 0 {
			s := int16(a.HTTPStatus)
			status = &s
		}
		var after *int64
		if a.RetryAfter > 0 {
			ms := a.RetryAfter.Milliseconds()
			after = &ms
		}
		httpStatus, retryAfter = append(httpStatus, status), append(retryAfter, after)
		ids, nodes, duplicate = append(ids, a.ID), append(nodes, a.Node), append(duplicate, a.PossibleDuplicate)
		account, outcome, code = append(account, a.Account), append(outcome, string(a.Outcome)), append(code, nullText(a.ProviderCode))
		messageID, details = append(messageID, nullText(a.ProviderMessageID)), append(details, nullText(a.Detail))
	}
	if len(n) == 0 {
		return false
	}
	b.Queue(insertAttempts, k.ids, k.step, k.target, k.turn, n, httpStatus, duration, retryAfter, started, ids, nodes, duplicate,
		account, outcome, code, messageID, details)
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
	b.Queue(deleteWaits, k.ids, k.step, k.target, k.turn)
}
