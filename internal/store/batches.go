package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// BatchLease is for how long a batch belongs to whoever runs it, counted from
// its last part. After a crash another may take over then.
const BatchLease = time.Minute

// ErrBatchLost means that the lease of a batch ran out and somebody else has it.
var ErrBatchLost = errors.New("batch is run by another")

// BatchRunningError says that somebody else runs the batch.
type BatchRunningError struct {
	// Lease is how long they have it for unless they go on.
	Lease time.Duration
}

// Error implements error.
func (*BatchRunningError) Error() string { return "batch is being run" }

// Batch is a batch under an idempotency key that the caller may run, or whose
// results are all there.
type Batch struct {
	Project, Key string
	// Results counts them once all are there; 0 before.
	Results int
	holder  uuid.UUID
}

// BatchPart is a run of rows of a batch with their results.
type BatchPart struct {
	First       int      // the index of its first row
	Fingerprint [32]byte // of its rows
	Results     []byte   // as they are answered
}

const (
	dropBatch = `
delete from dispatcher.batches where project = $1 and key = $2 and expires_at <= clock_timestamp() and lease_until <= clock_timestamp()`

	insertBatch = `
insert into dispatcher.batches (project, key, holder, fingerprint, lease_until, expires_at)
values ($1, $2, $3, $4, clock_timestamp() + $5::interval, clock_timestamp() + $6::interval)
on conflict (project, key) do nothing`

	readBatch = `
select fingerprint, coalesce(results, 0), greatest(lease_until - clock_timestamp(), interval '0')
from dispatcher.batches where project = $1 and key = $2 for update`

	takeBatch = `
update dispatcher.batches set holder = $3, lease_until = clock_timestamp() + $4::interval where project = $1 and key = $2`

	insertBatchPart = `
with mine as (
  update dispatcher.batches set lease_until = clock_timestamp() + $4::interval
  where project = $1 and key = $2 and holder = $3 and results is null returning project, key
)
insert into dispatcher.batch_parts (project, key, first, fingerprint, results)
select project, key, $5, $6, $7 from mine
on conflict (project, key, first) do update set results = excluded.results`

	leaveBatch = `
update dispatcher.batches set lease_until = clock_timestamp(), results = $4
where project = $1 and key = $2 and holder = $3 and results is null`
)

// BeginBatch takes the lease of a batch: a new one, or one whose runner gave up
// or died. Of one that is done it returns the number of its results and no
// lease. keep is how long the key answers. It returns [ErrIdempotencyMismatch]
// for another fingerprint and a [*BatchRunningError] while somebody else runs it.
func (s *Store) BeginBatch(ctx context.Context, project, key string, fingerprint [32]byte, keep time.Duration) (Batch, error) {
	b := Batch{Project: project, Key: key, holder: uuid.New()}
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, dropBatch, project, key); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, insertBatch, project, key, b.holder, fingerprint[:], BatchLease, keep)
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		var kept []byte
		var lease time.Duration
		if err := tx.QueryRow(ctx, readBatch, project, key).Scan(&kept, &b.Results, &lease); err != nil {
			return err
		}
		switch {
		case [32]byte(kept) != fingerprint:
			return ErrIdempotencyMismatch
		case b.Results > 0:
			return nil
		case lease > 0:
			return &BatchRunningError{Lease: lease}
		}
		_, err = tx.Exec(ctx, takeBatch, project, key, b.holder, BatchLease)
		return err
	})
	if err != nil {
		return Batch{}, fmt.Errorf("begin batch: %w", err)
	}
	return b, nil
}

// BatchPart reads the part that begins with row first; false if it has no
// results yet.
func (s *Store) BatchPart(ctx context.Context, b Batch, first int) (BatchPart, bool, error) {
	part := BatchPart{First: first}
	var fingerprint []byte
	err := s.pool.QueryRow(ctx, "select fingerprint, results from dispatcher.batch_parts where project = $1 and key = $2 and first = $3",
		b.Project, b.Key, first).Scan(&fingerprint, &part.Results)
	if errors.Is(err, pgx.ErrNoRows) {
		return part, false, nil
	}
	if err != nil {
		return part, false, fmt.Errorf("read batch: %w", err)
	}
	part.Fingerprint = [32]byte(fingerprint)
	return part, true, nil
}

// SaveBatchPart keeps a part and renews the lease, or returns [ErrBatchLost].
func (s *Store) SaveBatchPart(ctx context.Context, b Batch, p BatchPart) error {
	tag, err := s.pool.Exec(ctx, insertBatchPart, b.Project, b.Key, b.holder, BatchLease, p.First, p.Fingerprint[:], p.Results)
	if err != nil {
		return fmt.Errorf("save batch: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrBatchLost
	}
	return nil
}

// LeaveBatch gives the lease back: of a batch that is done with the number of its
// results, of one that is to be gone on with later with 0.
func (s *Store) LeaveBatch(ctx context.Context, b Batch, results int) error {
	var done *int
	if results > 0 {
		done = &results
	}
	if _, err := s.pool.Exec(ctx, leaveBatch, b.Project, b.Key, b.holder, done); err != nil {
		return fmt.Errorf("leave batch: %w", err)
	}
	return nil
}
