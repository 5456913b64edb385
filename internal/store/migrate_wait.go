package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	// migratorName is the application_name of the connections that migrate.
	migratorName = "dispatcher-migrate"
	// migrationLockWait is how long a migration waits for the lock on a table. While
	// it waits, whoever comes after it waits too, so that a caller's transaction which
	// somebody has left open would stop the service.
	migrationLockWait = 2 * time.Second
	// migrationPatience is how long that is tried again, by default.
	migrationPatience = 2 * time.Minute
	// blockersEvery is how often it is looked what a migration waits for.
	blockersEvery = migrationLockWait / 4
)

// Migration is how a database is migrated. Zero fields take their defaults.
type Migration struct {
	// Patience is how long a table that others keep locked is tried for; default
	// 2 min. Each try waits for 2 s, and between two of them the tables are free.
	Patience time.Duration
	// Waiting, if not nil, is told what stands in the way of a try that failed, in a
	// few words: the sessions' process ids and application names.
	Waiting func(blockers string)
}

// BlockedError says that other sessions kept a table locked which a migration
// changes.
type BlockedError struct {
	// Blockers are those sessions, empty where they could not be seen.
	Blockers string
	Err      error
}

// Error implements error.
func (e *BlockedError) Error() string {
	by := e.Blockers
	if by == "" {
		by = "a session that has ended since"
	}
	return fmt.Sprintf("the schema is kept locked by %s: end that transaction (pg_terminate_backend) and try again: %v", by, e.Err)
}

// Unwrap returns what the database said.
func (e *BlockedError) Unwrap() error { return e.Err }

// Up brings the database to this build's schema. Any number of processes may
// call it at once; one works and the others wait for it. What was applied stays
// applied when a later part fails. A table that others keep locked for longer
// than Patience ends it with a [*BlockedError].
func (m Migration) Up(ctx context.Context, databaseURL string) error {
	if m.Patience == 0 {
		m.Patience = migrationPatience
	}
	return withMigrator(ctx, databaseURL, func(ctx context.Context, db *migrator) error {
		if _, err := db.lock.Exec(ctx, lockMigrations, migrateLock); err != nil {
			return fmt.Errorf("lock migrations: %w", err)
		}
		if _, err := db.lock.Exec(ctx, "select set_config('lock_timeout', $1, false)", migrationLockWait.String()); err != nil {
			return fmt.Errorf("limit waits for locks: %w", err)
		}
		begun := time.Now()
		for pause := migrationLockWait / 4; ; pause = min(2*pause, 10*time.Second) {
			watch := watchBlockers(ctx, db.pool)
			err := db.up(ctx)
			blockers := watch()
			if !isLockTimeout(err) {
				return err
			}
			if time.Since(begun)+pause > m.Patience {
				return &BlockedError{blockers, err}
			}
			if m.Waiting != nil {
				m.Waiting(blockers)
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return errors.Join(ctx.Err(), &BlockedError{blockers, err})
			}
		}
	})
}

// Only the one migrator that holds the lock waits for anything but that lock.
const readBlockers = `
select distinct format('process %s (%s, %s)', b.pid, coalesce(nullif(b.application_name, ''), 'no application name'),
  coalesce(b.state || ' for ' || date_trunc('second', clock_timestamp() - b.xact_start), 'of another role'))
from pg_stat_activity m
cross join unnest(pg_blocking_pids(m.pid)) as blocker (pid)
join pg_stat_activity b on b.pid = blocker.pid
where m.datname = current_database() and m.application_name = '` + migratorName + `'
  and m.wait_event_type = 'Lock' and m.wait_event <> 'advisory' and b.application_name is distinct from '` + migratorName + `'
order by 1 limit 5`

// watchBlockers looks again and again at what the migrator waits for, until it is
// asked for what it last saw.
func watchBlockers(ctx context.Context, pool *pgxpool.Pool) (last func() string) {
	ctx, end := context.WithCancel(ctx)
	seen := make(chan string, 1)
	go func() {
		var last []string
		defer func() { seen <- strings.Join(last, ", ") }()
		ticker := time.NewTicker(blockersEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			rows, err := pool.Query(ctx, readBlockers)
			if err != nil {
				continue // the migration's own error says more
			}
			if found, err := pgx.CollectRows(rows, pgx.RowTo[string]); err == nil && len(found) > 0 {
				last = found
			}
		}
	}()
	return func() string { end(); return <-seen }
}
