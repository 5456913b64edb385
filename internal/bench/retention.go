package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/app"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// retention measures how many notifications that have ended are deleted a second
// while as many are delivered as can be, and what that takes from the latter. The
// nodes' own turn comes once a minute only, so it is taken for them.
func retention(ctx context.Context, b *bench) (_ Sample, err error) {
	s, err := b.fill(ctx, false, max(b.o.Backlog/5, 10))
	if err != nil {
		return Sample{}, err
	}
	defer func() { err = errors.Join(err, s.stop(ctx)) }()
	ended := time.Now()
	alone, err := s.round(ctx, "alone")
	if err != nil {
		return Sample{}, err
	}
	if err := s.addNode(ctx, app.ModeAll); err != nil {
		return Sample{}, err
	}
	if err := s.warm(ctx, webhooks); err != nil {
		return Sample{}, err
	}
	deleting, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var deleted int64
	var failed error
	began := time.Now()
	wg.Go(func() { deleted, failed = s.deleteEnded(deleting, ended) })
	beside, err := s.deliver(ctx, webhooks, b.o.Count, steadyWindow)
	stop()
	wg.Wait()
	if err := errors.Join(err, failed); err != nil {
		return Sample{}, err
	}
	return Sample{
		Value: float64(deleted) / time.Since(began).Seconds(),
		More:  map[string]float64{"/s delivered alone": alone.Value, "/s delivered meanwhile": beside.Value},
	}, nil
}

// deleteEnded deletes what ended before an instant until ctx ends, or nothing is
// left.
func (s *service) deleteEnded(ctx context.Context, ended time.Time) (int64, error) {
	db, err := store.Open(ctx, s.d.url, store.Options{MaxConnections: 1})
	if err != nil {
		return 0, fmt.Errorf("delete what has ended: %w", err)
	}
	defer db.Close()
	deleted, err := db.Expire(ctx, ended, time.Now(), 1000)
	if ctx.Err() != nil {
		return deleted, nil
	}
	return deleted, err
}
