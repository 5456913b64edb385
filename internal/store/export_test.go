package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// SetLimit changes how long the store's own transactions may take.
func (s *Store) SetLimit(d time.Duration) { s.limit = d }

// BeWary makes flushes look for locked rows first, as after they met one.
func (s *Store) BeWary() { s.wary.begin() }

// SendAlone runs a batch as claims and reads of events do.
func (s *Store) SendAlone(ctx context.Context, b *pgx.Batch) error { return s.sendAlone(ctx, b) }
