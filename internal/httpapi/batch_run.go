package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// batchRun works through the rows of one batch, a part at a time.
type batchRun struct {
	api      *API
	project  string
	trace    string
	key      string      // the Idempotency-Key, or empty
	batch    store.Batch // of the key
	defaults defaults
	account  func(notify.Channel, string) (notify.Status, bool)
	limit    rowLimit

	next      int              // index of the next row
	seen      map[[32]byte]int // accepted rows by fingerprint
	undecided *Problem         // why rows could not be decided; the rest is not tried
	complete  bool             // no row is left
}

// header writes the header of an answer.
func (b *batchRun) header(w http.ResponseWriter, contentType string) {
	w.Header().Set("Content-Type", contentType)
	if b.batch.Results > 0 {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	w.WriteHeader(http.StatusOK)
}

// leave gives the lease back, also for a caller who has gone.
func (b *batchRun) leave(ctx context.Context) {
	if b.key == "" || b.batch.Results > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	results := 0
	if b.complete && b.undecided == nil {
		results = b.next
	}
	if err := b.api.batches.LeaveBatch(ctx, b.batch, results); err != nil {
		_ = b.api.batchProblem(ctx, err) // logged; the lease runs out by itself
	}
}

// part answers the next rows: their results, each in a line.
func (b *batchRun) part(ctx context.Context, rows []batchRow) ([]byte, *Problem) {
	first := b.next
	b.next += len(rows)
	prints, whole := b.merge(rows)
	if b.key != "" {
		kept, ok, err := b.api.batches.BatchPart(ctx, b.batch, first)
		switch {
		case err != nil:
			return nil, b.api.batchProblem(ctx, err)
		case ok && kept.Fingerprint == whole:
			b.remember(first, prints, kept.Results)
			return kept.Results, nil
		case ok, b.batch.Results > 0:
			return encodeResults(refuseAll(first, len(rows), b.api.storeProblem(ctx, store.ErrIdempotencyMismatch))), nil
		}
	}
	results := b.decideAllowed(ctx, first, rows, prints)
	lines := encodeResults(results)
	if err := ctx.Err(); err != nil {
		return nil, b.api.storeProblem(ctx, err)
	}
	if b.key == "" || b.undecided != nil {
		return lines, nil //nolint:nilerr // what is undecided stands in its row
	}
	if err := b.api.batches.SaveBatchPart(ctx, b.batch, store.BatchPart{First: first, Fingerprint: whole, Results: lines}); err != nil {
		return nil, b.api.batchProblem(ctx, err)
	}
	return lines, nil
}

// merge puts the defaults into the rows and returns the fingerprint of each and
// of all of them.
func (b *batchRun) merge(rows []batchRow) (prints [][32]byte, whole [32]byte) {
	prints = make([][32]byte, len(rows))
	sum := sha256.New()
	for i := range rows {
		rows[i].raw = b.defaults.into(rows[i].raw)
		prints[i] = fingerprint(rows[i].raw)
		_, _ = sum.Write(prints[i][:])
	}
	return prints, [32]byte(sum.Sum(nil))
}

// remember notes which rows of an earlier answer were accepted.
func (b *batchRun) remember(first int, prints [][32]byte, lines []byte) {
	i := 0
	for line := range bytes.Lines(lines) {
		var r struct {
			Status int `json:"status"`
		}
		if json.Unmarshal(line, &r) == nil && r.Status == http.StatusAccepted && i < len(prints) {
			b.seen[prints[i]] = first + i
		}
		i++
	}
}

// decideAllowed decides the rows that the key's limit allows. Once it is spent,
// the rest of the batch is refused, not only what came too early: a batch with an
// Idempotency-Key can be repeated, and then goes on where it was.
func (b *batchRun) decideAllowed(ctx context.Context, first int, rows []batchRow, prints [][32]byte) []batchResult {
	allowed := len(rows)
	var refusal *Problem
	if b.undecided == nil {
		allowed, refusal = b.limit.some(ctx, len(rows), b.key != "")
	}
	results := b.decide(ctx, first, rows[:allowed], prints)
	if refusal != nil {
		if b.undecided == nil {
			b.undecided = refusal
		}
		results = append(results, refuseAll(first+allowed, len(rows)-allowed, b.undecided)...)
	}
	b.limit.count(results)
	return results
}

// decide accepts the rows that are good, all at once: they share a few commits.
func (b *batchRun) decide(ctx context.Context, first int, rows []batchRow, prints [][32]byte) []batchResult {
	results := make([]batchResult, len(rows))
	errs := make([]error, len(rows))
	var accepting sync.WaitGroup
	for i, row := range rows {
		r := &results[i]
		r.Index = first + i
		n, refusal := b.check(row, prints[i], r)
		if refusal != nil {
			r.Status, r.Error = refusal.Status, refusal
			continue
		}
		accepting.Go(func() {
			errs[i] = b.api.guard.Do(ctx, panics.Request, "accept a row", func() error {
				done, err := b.api.accept.Accept(ctx, b.request(n, r.Index, prints[i]))
				if err == nil {
					r.Status, r.ID, r.Replayed = http.StatusAccepted, done.ID, done.Replayed
				}
				return err
			})
		})
	}
	accepting.Wait()
	for i, err := range errs {
		if err != nil {
			results[i].Error = b.failed(ctx, err)
			results[i].Status = results[i].Error.Status
		}
	}
	return results
}

// check reads a row and finds out whether it may be accepted.
func (b *batchRun) check(row batchRow, of [32]byte, r *batchResult) (*notify.Notification, *Problem) {
	if b.undecided != nil {
		return nil, b.undecided
	}
	if row.tooLong {
		return nil, newProblem(http.StatusRequestEntityTooLarge, CodeTooLarge, "The line is too long.")
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, newProblem(http.StatusInternalServerError, CodeInternal, "The service made a mistake.")
	}
	n, problems := notify.Parse(row.raw, notify.ParseOptions{ID: id, Project: b.project, Now: b.api.now(), Account: b.account})
	if len(problems) == 0 {
		problems = b.api.accounts.Check(&n)
	}
	if len(problems) > 0 {
		return nil, bodyProblem(problems[:min(len(problems), maxRowErrors)])
	}
	if earlier, ok := b.seen[of]; ok {
		r.DuplicateOf = &earlier
		return nil, newProblem(http.StatusConflict, CodeDuplicateRow, "The row is the same as an earlier one of the batch.")
	}
	b.seen[of] = r.Index
	n.Trace = b.trace
	return &n, nil
}

func (b *batchRun) request(n *notify.Notification, index int, of [32]byte) store.Accept {
	a := store.Accept{Notification: *n}
	if b.key != "" {
		a.Key, a.Route, a.Fingerprint, a.Answer = b.key, batchRoute+strconv.Itoa(index), of, []byte{}
	}
	return a
}

// failed is the answer to a row that the store did not take. What is no fault of
// the row's ends the batch, which can be repeated.
func (b *batchRun) failed(ctx context.Context, err error) *Problem {
	if b.undecided != nil && store.Classify(err) != store.BadRow {
		return b.undecided // which was logged once
	}
	p := b.api.storeProblem(ctx, err)
	if p.Status >= http.StatusInternalServerError {
		b.undecided = p
	}
	return p
}

func refuseAll(first, count int, p *Problem) []batchResult {
	results := make([]batchResult, count)
	for i := range results {
		results[i] = batchResult{Index: first + i, Status: p.Status, Error: p}
	}
	return results
}

func encodeResults(results []batchResult) []byte {
	var out bytes.Buffer
	for i := range results {
		line, err := json.Marshal(&results[i])
		if err != nil {
			line = []byte(`{"index":` + strconv.Itoa(results[i].Index) + `,"status":500}`)
		}
		out.Write(append(line, '\n'))
	}
	return out.Bytes()
}
