package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// OldestHeld returns, of each scope that has held a delivery for longer than so
// long, the group with the one it has held longest, by scope. It looks at as many
// groups as the limit.
func (s *Store) OldestHeld(ctx context.Context, longer time.Duration, limit int) ([]Hold, error) {
	holds, err := s.Holds(ctx, Hold{}, limit)
	if err != nil {
		return nil, err
	}
	var out []Hold
	for _, h := range holds {
		switch last := len(out) - 1; {
		case h.Age <= longer:
		case last < 0 || out[last].Scope != h.Scope:
			out = append(out, h)
		case h.Since.Before(out[last].Since):
			out[last] = h
		}
	}
	return out, nil
}

// CountHeld returns how many deliveries a scope holds, counting no further than
// most.
func (s *Store) CountHeld(ctx context.Context, scope string, most int) (int, error) {
	var n int
	err := s.pool.QueryRow(ctx, `select count(*) from (select from dispatcher.waits where held and scope = $1 limit $2) w`, scope, most).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count held waits: %w", err)
	}
	return n, nil
}

// EldestNode returns the node that has worked longest, [ErrNotFound] where none
// does. It is good for picking one to say what all of them see; nothing else may
// depend on there being one only.
func (s *Store) EldestNode(ctx context.Context) (uuid.UUID, error) {
	var id uuid.UUID
	err := s.pool.QueryRow(ctx, "select id from dispatcher.nodes order by started_at, id limit 1").Scan(&id)
	if errors.Is(err, pgx.ErrNoRows) {
		return id, ErrNotFound
	}
	if err != nil {
		return id, fmt.Errorf("read nodes: %w", err)
	}
	return id, nil
}
