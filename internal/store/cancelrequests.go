package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const takeCancelRequest = `
select id, notification_id, project from dispatcher.cancel_requests where id > $1 order by id limit 1 for update skip locked`

const deleteCancelRequest = "delete from dispatcher.cancel_requests where id = $1"

// ApplyCancelRequests cancels what dispatcher.cancel_for asked for in its callers'
// transactions, at most limit notifications, each in a transaction of its own, and
// returns how many it dealt with. Claims have honoured the requests since they
// were committed. Rows that another node holds are skipped; one that fails is
// left for the next time and keeps none of the others waiting.
func (s *Store) ApplyCancelRequests(ctx context.Context, limit int, now time.Time) (int, error) {
	var last int64
	var done int
	var errs []error
	for len(errs) < maxCancelFailures && done+len(errs) < limit {
		found, ours := false, last
		// A row that somebody else has locked is waited for a moment only.
		err := s.inFlush(ctx, freshPlan, func(ctx context.Context, tx pgx.Tx) error {
			var id uuid.UUID
			var project string
			err := tx.QueryRow(ctx, takeCancelRequest, last).Scan(&ours, &id, &project)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			if err != nil {
				return err
			}
			found = true
			if _, err := tx.Exec(ctx, deleteCancelRequest, ours); err != nil {
				return err
			}
			// Its events are the last thing before the commit.
			if _, err := cancel(ctx, tx, project, id, now); !errors.Is(err, ErrNotFound) {
				return err
			}
			return nil // past retention
		})
		switch {
		case err == nil && !found:
			return done, errors.Join(errs...)
		case err == nil:
			done++
		default:
			errs = append(errs, fmt.Errorf("apply cancel requests: %w", err))
			if !found {
				return done, errors.Join(errs...)
			}
		}
		last = ours
	}
	return done, errors.Join(errs...)
}

// maxCancelFailures is how many requests may fail before the rest of them has to
// wait for the next time.
const maxCancelFailures = 100
