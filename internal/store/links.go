package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

// LinkKey returns the 32 bytes that sign the links in messages. All processes of
// a database share them, and they never change.
func (s *Store) LinkKey(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	var key []byte
	if err := s.pool.QueryRow(ctx, "select key from dispatcher.link_key").Scan(&key); err != nil {
		return nil, fmt.Errorf("read link key: %w", err)
	}
	return key, nil
}

// ProjectOf returns the project of a notification, for those who prove in another
// way than by a key that they may know of it. It returns [ErrNotFound] where there
// is none.
func (s *Store) ProjectOf(ctx context.Context, id uuid.UUID) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	var project string
	err := s.pool.QueryRow(ctx, "select project from dispatcher.notifications where id = $1", id).Scan(&project)
	if err != nil {
		return "", fmt.Errorf("read project: %w", notFound(err))
	}
	return project, nil
}
