package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/notification-dispatcher/dispatcher/migrations"
)

// Schema is the Postgres schema of every table, River's included.
const Schema = "dispatcher"

// riverVersion is the version of River's schema that this build works with.
// River's migrations are not ours to reorder, so it is pinned and raised with
// the module.
const riverVersion = 8

// migrateLock is the key of the session advisory lock that migrations run under:
// without it, River migrators that start together fail on each other.
const migrateLock int64 = 0x6469737061746368 // "dispatch"

// MigrationStatus says how far a database has been migrated.
type MigrationStatus struct {
	River       int   `json:"river"`        // River's schema version, 0 for none
	RiverWanted int   `json:"river_wanted"` // the version this build works with
	Schema      int64 `json:"schema"`       // our version, 0 for none
	Wanted      int64 `json:"wanted"`       // the newest version in this build
}

// Current reports whether nothing is left to apply. A database that is ahead is
// current too: a new version's migrations keep the previous version working.
func (s MigrationStatus) Current() bool { return s.River >= s.RiverWanted && s.Schema >= s.Wanted }

// Migrate brings the database to this build's schema; see [Migration.Up].
func Migrate(ctx context.Context, databaseURL string) error {
	return Migration{}.Up(ctx, databaseURL)
}

// lockMigrations waits without a limit: another migrator works as long as it
// takes.
const lockMigrations = "select set_config('lock_timeout', '0', false), pg_advisory_lock($1)"

// up applies what is missing, once.
func (m *migrator) up(ctx context.Context) error {
	if _, err := m.lock.Exec(ctx, "create schema if not exists "+Schema); err != nil {
		return fmt.Errorf("create schema: %w", err)
	}
	_, err := m.river.Migrate(ctx, rivermigrate.DirectionUp, &rivermigrate.MigrateOpts{TargetVersion: riverVersion})
	if err != nil {
		return fmt.Errorf("migrate river: %w", err)
	}
	ours, err := m.goose()
	if err != nil {
		return err
	}
	if _, err := ours.Up(ctx); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}

// Status reads how far the database has been migrated; it changes nothing.
func Status(ctx context.Context, databaseURL string) (MigrationStatus, error) {
	s := MigrationStatus{RiverWanted: riverVersion}
	err := withMigrator(ctx, databaseURL, func(ctx context.Context, m *migrator) error {
		var tables int
		err := m.lock.QueryRow(ctx, `select count(*) from pg_tables
			where schemaname = $1 and tablename in ('river_migration', 'schema_migrations')`, Schema).Scan(&tables)
		if err != nil {
			return fmt.Errorf("read schema: %w", err)
		}
		if s.Wanted, err = newest(); err != nil {
			return err
		}
		if tables < 2 {
			return nil
		}
		return m.lock.QueryRow(ctx, `select
			(select coalesce(max(version), 0) from dispatcher.river_migration),
			(select coalesce(max(version_id), 0) from dispatcher.schema_migrations where is_applied)`).Scan(&s.River, &s.Schema)
	})
	return s, err
}

// newest is the highest version among the embedded migrations.
func newest() (int64, error) {
	files, err := migrations.FS.ReadDir(".")
	if err != nil {
		return 0, fmt.Errorf("read embedded migrations: %w", err)
	}
	var highest int64
	for _, f := range files {
		version, err := goose.NumericComponent(f.Name())
		if err != nil {
			return 0, fmt.Errorf("read embedded migrations: %w", err)
		}
		highest = max(highest, version)
	}
	return highest, nil
}

// migrator holds what both kinds of migration need: a connection for the lock
// and short statements, and a small pool for River and goose.
type migrator struct {
	lock  *pgx.Conn
	pool  *pgxpool.Pool
	river *rivermigrate.Migrator[pgx.Tx]
}

func withMigrator(ctx context.Context, databaseURL string, do func(context.Context, *migrator) error) (err error) {
	cfg, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return errors.New("the database URL cannot be parsed") // the parser's own words may hold the password
	}
	cfg.MaxConns = 2
	cfg.ConnConfig.RuntimeParams["application_name"] = migratorName
	cfg.ConnConfig.RuntimeParams["lock_timeout"] = strconv.FormatInt(migrationLockWait.Milliseconds(), 10)
	lock, err := pgx.ConnectConfig(ctx, cfg.ConnConfig)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	// Closing the connection frees the lock, whatever state it is in.
	defer func() { err = errors.Join(err, lock.Close(context.WithoutCancel(ctx))) }()
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer pool.Close()
	river, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Schema: Schema})
	if err != nil {
		return fmt.Errorf("prepare river migrations: %w", err)
	}
	return do(ctx, &migrator{lock: lock, pool: pool, river: river})
}

func (m *migrator) goose() (*goose.Provider, error) {
	p, err := goose.NewProvider(goose.DialectPostgres, stdlib.OpenDBFromPool(m.pool), migrations.FS,
		goose.WithTableName(Schema+".schema_migrations"))
	if err != nil {
		return nil, fmt.Errorf("prepare migrations: %w", err)
	}
	return p, nil
}
