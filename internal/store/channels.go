package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Backlog counts what each channel has ahead of it, for one project or, when it
// is empty, for all together.
func (s *Store) Backlog(ctx context.Context, project string) ([]Backlog, error) {
	byChannel := map[notify.Channel]*Backlog{}
	out := make([]Backlog, len(notify.Channels()))
	for i, c := range notify.Channels() {
		out[i] = Backlog{Channel: c, Project: project, Waiting: map[notify.WaitReason]int64{}, OldestHeld: map[notify.WaitReason]time.Time{}}
		byChannel[c] = &out[i]
	}
	rows, err := s.pool.Query(ctx, `select channel, reason, count(*), min(due) filter (where due <= clock_timestamp()), min(since) filter (where held)
		from dispatcher.waits where ($1 = '' or project = $1) group by 1, 2`, project)
	if err != nil {
		return nil, fmt.Errorf("count waits: %w", err)
	}
	var channel notify.Channel
	var reason notify.WaitReason
	var n int64
	var oldest, held *time.Time
	_, err = pgx.ForEachRow(rows, []any{&channel, &reason, &n, &oldest, &held}, func() error {
		b := byChannel[channel]
		if b == nil {
			return nil // a newer version's
		}
		b.Waiting[reason] = n
		if held != nil {
			b.OldestHeld[reason] = *held
		}
		if oldest != nil && (b.OldestDue.IsZero() || oldest.Before(b.OldestDue)) {
			b.OldestDue = *oldest
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count waits: %w", err)
	}
	rows, err = s.pool.Query(ctx, `select queue, sum(jsonb_array_length(args -> 'i')), min(scheduled_at) filter (where state = 'available')
		from dispatcher.river_job
		where state in ('available', 'running', 'retryable', 'scheduled') and jsonb_typeof(args -> 'i') = 'array'
		  and ($1 = '' or args ->> 'p' = $1) group by 1`, project)
	if err != nil {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	_, err = pgx.ForEachRow(rows, []any{&channel, &n, &oldest}, func() error {
		b := byChannel[channel]
		if b == nil {
			return nil
		}
		b.Queued = n
		if oldest != nil && (b.OldestDue.IsZero() || oldest.Before(b.OldestDue)) {
			b.OldestDue = *oldest
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("count jobs: %w", err)
	}
	return out, nil
}

// Pauses returns the paused channels.
func (s *Store) Pauses(ctx context.Context) ([]Pause, error) {
	rows, err := s.pool.Query(ctx, "select channel, by, reason, since from dispatcher.pauses order by channel")
	if err != nil {
		return nil, fmt.Errorf("read pauses: %w", err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Pause])
	if err != nil {
		return nil, fmt.Errorf("read pauses: %w", err)
	}
	return out, nil
}
