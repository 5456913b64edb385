package httpapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// rowLimit is what the limit of a key allows a batch. A row costs a token; the
// first of a batch was paid when the request was let in, so that one who is over
// the limit cannot have large bodies read.
type rowLimit struct {
	limits *limits // nil for no limit
	key    store.APIKey
	paid   int // rows that are paid for and were not used yet
}

func (a *API) rowLimit(ctx context.Context) rowLimit {
	return rowLimit{limits: a.limits, key: keyOf(ctx), paid: 1}
}

func (l *rowLimit) limit() resilience.Limit { return l.limits.limitOf(&l.key, store.ClassWrite) }

// all pays for all rows of a batch, or refuses it.
func (l *rowLimit) all(ctx context.Context, h http.Header, rows int) *Problem {
	if l.limits == nil || rows <= l.paid {
		return nil
	}
	if p := l.tooMany(rows); p != nil {
		return p
	}
	d := l.take(ctx, rows-l.paid)
	writeLimit(h, store.ClassWrite, d)
	if !d.OK {
		d.RetryAfter += d.Limit.Interval() // the next try pays for its first row anew
		l.limits.refused(store.ClassWrite, &l.key, 1)
		return limited(d)
	}
	l.paid = rows
	return nil
}

// tooMany refuses what the limit can never allow at once.
func (l *rowLimit) tooMany(rows int) *Problem {
	burst := l.limit().Burst
	if rows <= burst {
		return nil
	}
	return newProblem(http.StatusRequestEntityTooLarge, CodeBatchOverBurst,
		fmt.Sprintf("The limit of this API key allows %d rows at once. Send fewer, or NDJSON without an Idempotency-Key.", burst))
}

func (l *rowLimit) take(ctx context.Context, rows int) resilience.Decision {
	return l.limits.take(ctx, &l.key, store.ClassWrite, rows)
}

// some pays for the first rows of a part, as many as there are tokens for; with
// whole, for all or none. It returns how many, and where that is not all, why.
func (l *rowLimit) some(ctx context.Context, rows int, whole bool) (int, *Problem) {
	if l.limits == nil {
		return rows, nil
	}
	if p := l.tooMany(rows); p != nil && whole {
		return 0, p
	}
	var refusal resilience.Decision
	for l.paid < rows {
		d := l.take(ctx, min(rows-l.paid, l.limit().Burst))
		if d.OK {
			l.paid += min(rows-l.paid, d.Limit.Burst)
			continue
		}
		refusal = d
		if left := min(d.Remaining, rows-l.paid-1); left > 0 && !whole {
			if l.take(ctx, left).OK {
				l.paid += left
			}
		}
		break
	}
	if l.paid >= rows {
		l.paid -= rows
		return rows, nil
	}
	granted := l.paid
	if whole {
		granted = 0
	}
	l.paid -= granted
	return granted, limited(refusal)
}

// count tells of rows that were refused.
func (l *rowLimit) count(results []batchResult) {
	if l.limits == nil {
		return
	}
	refused := 0
	for i := range results {
		if results[i].Status == http.StatusTooManyRequests {
			refused++
		}
	}
	l.limits.refused(store.ClassWrite, &l.key, refused)
}
