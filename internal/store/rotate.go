package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// MaxKeyOverlap is the longest time for which a key and its successor both work.
const MaxKeyOverlap = 7 * 24 * time.Hour

// ErrKeyEnded means that the key is revoked or has expired.
var ErrKeyEnded = errors.New("key has ended")

const endSoon = `
update dispatcher.api_keys
set expires_at = least(expires_at, clock_timestamp() + $3::interval)
where id = $1 and ($2 = '' or project = $2) and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())
returning ` + keyColumns

// RotateKey makes a key like the given one, limits included, with a secret of its own, and ends
// that one after overlap, 0 to [MaxKeyOverlap], or when it would have ended
// anyway. A zero expires gives the new key the lifetime that the old one was
// made with. An empty project means any. It returns [ErrNotFound], and
// [ErrKeyEnded] for a key that does not work any more.
func (s *Store) RotateKey(ctx context.Context, project string, id uuid.UUID, overlap time.Duration, expires time.Time) (secret string, made, old APIKey, err error) {
	err = s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		was, err := oneKey(ctx, tx, `select `+keyColumns+` from dispatcher.api_keys where id = $1 and ($2 = '' or project = $2) for update`, id, project)
		if err != nil {
			return notFound(err)
		}
		old, err = oneKey(ctx, tx, endSoon, id, project, overlap)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrKeyEnded
		}
		if err != nil {
			return err
		}
		if expires.IsZero() && !was.ExpiresAt.IsZero() {
			expires = time.Now().Add(was.ExpiresAt.Sub(was.CreatedAt))
		}
		was.ExpiresAt = expires
		secret, made, err = insertKey(ctx, tx, was)
		return err
	})
	if err != nil {
		return "", APIKey{}, APIKey{}, fmt.Errorf("rotate key: %w", err)
	}
	return secret, made, old, nil
}
