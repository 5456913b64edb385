package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Share is a project's part of a channel's job queue, at one priority.
type Share struct {
	Project  string
	Channel  notify.Channel
	Priority notify.Priority
}

const countShares = `
select args ->> 'p', queue, priority, sum(jsonb_array_length(args -> 'i'))
from dispatcher.river_job
where state = 'available' and kind = 'deliver' and jsonb_typeof(args -> 'i') = 'array'
group by 1, 2, 3`

// Shares counts the deliveries in jobs that nobody has fetched yet.
func (s *Store) Shares(ctx context.Context) (map[Share]int, error) {
	rows, err := s.pool.Query(ctx, countShares)
	if err != nil {
		return nil, fmt.Errorf("count queue: %w", err)
	}
	out := map[Share]int{}
	var k Share
	var n int
	_, err = pgx.ForEachRow(rows, []any{&k.Project, &k.Channel, &k.Priority, &n}, func() error { out[k] = n; return nil })
	if err != nil {
		return nil, fmt.Errorf("count queue: %w", err)
	}
	return out, nil
}
