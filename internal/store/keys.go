package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// keyPrefix starts every API key, so that scanners for leaked secrets know it.
const keyPrefix = "dsp_"

// authTTL is for how long an authenticated key is remembered, and so how long a
// revoked one may still be let in.
const authTTL = time.Second

// authCacheSize bounds the memory of authenticated keys.
const authCacheSize = 10_000

const keyColumns = `id, project, name, hint, scopes, created_at, expires_at, revoked_at, last_used_at, ` + limitColumns

// CreateKey makes an API key and returns its secret, which is stored as a hash
// only and cannot be had again. A zero expires means never.
func (s *Store) CreateKey(ctx context.Context, project, name string, scopes []string, expires time.Time) (secret string, key APIKey, err error) {
	secret, key, err = insertKey(ctx, s.pool, APIKey{Project: project, Name: name, Scopes: scopes, ExpiresAt: expires})
	if err != nil {
		return "", APIKey{}, fmt.Errorf("create key: %w", err)
	}
	return secret, key, nil
}

// insertKey makes a key with the project, name, scopes, end and limits of k.
func insertKey(ctx context.Context, q queryer, k APIKey) (string, APIKey, error) {
	secret := keyPrefix + rand.Text() + rand.Text()[:14] // 40 characters, 200 bits
	id, err := uuid.NewV7()
	if err != nil {
		return "", APIKey{}, err
	}
	hash := sha256.Sum256([]byte(secret))
	args := []any{id, k.Project, k.Name, hash[:], secret[:len(keyPrefix)+4], k.Scopes, null(k.ExpiresAt)}
	key, err := oneKey(ctx, q, `insert into dispatcher.api_keys (id, project, name, hash, hint, scopes, created_at, expires_at, `+limitColumns+`)
		values ($1, $2, $3, $4, $5, $6, clock_timestamp(), $7, $8, $9, $10, $11, $12, $13) returning `+keyColumns,
		append(args, k.Limits.args()...)...)
	return secret, key, err
}

func oneKey(ctx context.Context, q queryer, sql string, args ...any) (APIKey, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return APIKey{}, err
	}
	return pgx.CollectExactlyOneRow(rows, scanKey)
}

// ListKeys returns the keys of a project, newest first, with what was refused to
// them; of all projects when it is empty.
func (s *Store) ListKeys(ctx context.Context, project string) ([]APIKey, error) {
	rows, err := s.pool.Query(ctx, listKeys, project)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	keys, err := pgx.CollectRows(rows, scanListedKey)
	if err != nil {
		return nil, fmt.Errorf("list keys: %w", err)
	}
	return keys, nil
}

// RevokeKey ends a key of a project, any project when it is empty, within a
// second on every node. Revoking twice is no error; [ErrNotFound] is.
func (s *Store) RevokeKey(ctx context.Context, project string, id uuid.UUID) error {
	tag, err := s.pool.Exec(ctx, `update dispatcher.api_keys set revoked_at = coalesce(revoked_at, clock_timestamp())
		where id = $1 and ($2 = '' or project = $2)`, id, project)
	if err != nil {
		return fmt.Errorf("revoke key: %w", err)
	}
	if tag.RowsAffected() == 0 {
		return ErrNotFound
	}
	return nil
}

// Authenticate returns the live key that a secret belongs to, or [ErrNotFound].
// The look-up is by hash, so its time says nothing about the secret.
func (s *Store) Authenticate(ctx context.Context, secret string) (APIKey, error) {
	hash := sha256.Sum256([]byte(secret))
	now := time.Now()
	if key, ok := s.auth.get(hash, now); ok {
		return key, nil
	}
	rows, err := s.pool.Query(ctx, `select `+keyColumns+` from dispatcher.api_keys
		where hash = $1 and revoked_at is null and (expires_at is null or expires_at > clock_timestamp())`, hash[:])
	if err != nil {
		return APIKey{}, fmt.Errorf("authenticate: %w", err)
	}
	key, err := pgx.CollectExactlyOneRow(rows, scanKey)
	if errors.Is(err, pgx.ErrNoRows) {
		return APIKey{}, ErrNotFound
	}
	if err != nil {
		return APIKey{}, fmt.Errorf("authenticate: %w", err)
	}
	s.auth.put(hash, key, now)
	if now.Sub(key.LastUsedAt) > time.Minute {
		_, err := s.pool.Exec(ctx, `update dispatcher.api_keys set last_used_at = clock_timestamp()
			where id = $1 and (last_used_at is null or last_used_at < clock_timestamp() - interval '1 minute')`, key.ID)
		if err != nil {
			return APIKey{}, fmt.Errorf("authenticate: %w", err)
		}
	}
	return key, nil
}

func scanKey(row pgx.CollectableRow) (APIKey, error) { return scanKeyAnd(row) }

// scanKeyAnd scans keyColumns and what follows them.
func scanKeyAnd(row pgx.CollectableRow, more ...any) (APIKey, error) {
	var k APIKey
	var expires, revoked, used *time.Time
	var limits limitsRow
	into := []any{&k.ID, &k.Project, &k.Name, &k.Hint, &k.Scopes, &k.CreatedAt, &expires, &revoked, &used}
	err := row.Scan(slices.Concat(into, limits.targets(), more)...)
	k.ExpiresAt, k.RevokedAt, k.LastUsedAt, k.Limits = zero(expires), zero(revoked), zero(used), limits.limits()
	return k, err
}

// authCache remembers authenticated keys for a moment, by the secret's hash.
type authCache struct {
	mu   sync.Mutex
	keys map[[32]byte]authEntry
}

type authEntry struct {
	key   APIKey
	until time.Time
}

func newAuthCache() *authCache { return &authCache{keys: map[[32]byte]authEntry{}} }

func (c *authCache) get(hash [32]byte, now time.Time) (APIKey, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.keys[hash]
	return e.key, ok && now.Before(e.until)
}

func (c *authCache) put(hash [32]byte, key APIKey, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.keys) >= authCacheSize {
		clear(c.keys) // at most once per ten thousand keys within a second
	}
	until := now.Add(authTTL)
	if !key.ExpiresAt.IsZero() && key.ExpiresAt.Before(until) {
		until = key.ExpiresAt
	}
	c.keys[hash] = authEntry{key, until}
}
