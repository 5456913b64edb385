package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// fetchedBy tells the jobs that a node, the first argument, was the last to fetch.
const fetchedBy = "attempted_by[array_upper(attempted_by, 1)] = $1::text"

const jobsOf = `
select id from dispatcher.river_job
where state = 'running' and ` + fetchedBy + `
  and attempted_at < clock_timestamp() - $2::interval`

// JobsOf returns the jobs that count as running on a node for longer than age.
func (s *Store) JobsOf(ctx context.Context, node uuid.UUID, age time.Duration) ([]int64, error) {
	rows, err := s.pool.Query(ctx, jobsOf, node, age)
	if err != nil {
		return nil, fmt.Errorf("read a node's jobs: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("read a node's jobs: %w", err)
	}
	return ids, nil
}

// The try does not count: nobody has made it.
const giveBack = `
update dispatcher.river_job
set state = 'available', attempt = greatest(attempt - 1, 0), scheduled_at = clock_timestamp()
where id = any($2) and state = 'running' and ` + fetchedBy

// GiveBack puts jobs that count as running on a node back into the queue, and
// returns how many.
func (s *Store) GiveBack(ctx context.Context, node uuid.UUID, jobs []int64) (int, error) {
	tag, err := s.pool.Exec(ctx, giveBack, node, jobs)
	if err != nil {
		return 0, fmt.Errorf("give jobs back: %w", err)
	}
	return int(tag.RowsAffected()), nil
}
