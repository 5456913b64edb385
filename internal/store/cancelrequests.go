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
select id, notification_id, project from dispatcher.cancel_requests order by id limit 1 for update skip locked`

const deleteCancelRequest = "delete from dispatcher.cancel_requests where id = $1"

// ApplyCancelRequests cancels what dispatcher.cancel_for asked for in its callers'
// transactions, at most limit notifications, each in a transaction of its own, and
// returns how many it dealt with. Claims have honoured the requests since they
// were committed. Rows that another node holds are skipped.
func (s *Store) ApplyCancelRequests(ctx context.Context, limit int, now time.Time) (int, error) {
	for n := range limit {
		found := false
		err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
			var request int64
			var id uuid.UUID
			var project string
			err := tx.QueryRow(ctx, takeCancelRequest).Scan(&request, &id, &project)
			if errors.Is(err, pgx.ErrNoRows) {
				return nil
			}
			if err != nil {
				return err
			}
			found = true
			if _, err := tx.Exec(ctx, deleteCancelRequest, request); err != nil {
				return err
			}
			// Its events are the last thing before the commit.
			if _, err := cancel(ctx, tx, project, id, now); !errors.Is(err, ErrNotFound) {
				return err
			}
			return nil // past retention
		})
		if err != nil {
			return n, fmt.Errorf("apply cancel requests: %w", err)
		}
		if !found {
			return n, nil
		}
	}
	return limit, nil
}
