package bench

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// The kinds of database.
const (
	forService = "service" // migrated, with an API key
	forRiver   = "river"   // River's own schema, as it ships
	forTuned   = "tuned"   // River's schema without the indexes that the service drops
)

// project is the project that everything is sent for.
const project = "bench"

// database is one of a sample's own.
type database struct {
	name string
	url  string
	pool *pgxpool.Pool
}

// newDatabase makes a database of a kind, as a copy of a template. The caller
// drops it.
func (b *bench) newDatabase(ctx context.Context, kind string) (*database, error) {
	template, err := b.template(ctx, kind)
	if err != nil {
		return nil, err
	}
	return b.create(ctx, template)
}

// create makes a database from a template. The name holds the process's own
// backend, so that runs on one server do not meet.
func (b *bench) create(ctx context.Context, template string) (*database, error) {
	var backend int
	if err := b.admin.QueryRow(ctx, "select pg_backend_pid()").Scan(&backend); err != nil {
		return nil, fmt.Errorf("make database: %w", err)
	}
	b.databases++
	d := &database{name: fmt.Sprintf("dispatcher_bench_%d_%d", backend, b.databases)}
	if _, err := b.admin.Exec(ctx, "create database "+d.name+" template "+template); err != nil {
		return nil, fmt.Errorf("make database: %w", err)
	}
	var err error
	if d.url, err = withDatabase(b.serverURL, d.name); err != nil {
		return nil, err
	}
	cfg, err := pgxpool.ParseConfig(d.url)
	if err != nil {
		return nil, errors.New("the database URL cannot be parsed")
	}
	cfg.MaxConns = 20
	cfg.ConnConfig.RuntimeParams["application_name"] = "dispatcher-bench"
	if d.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return d, nil
}

// withDatabase is the URL of another database of the same server.
func withDatabase(server, name string) (string, error) {
	u, err := url.Parse(server)
	if err != nil || u.Scheme == "" {
		return "", errors.New("the database must be given as a URL: postgres://…")
	}
	u.Path = "/" + name
	return u.String(), nil
}

// drop ends whoever is connected, and the database.
func (b *bench) drop(ctx context.Context, d *database) error {
	d.pool.Close()
	if _, err := b.admin.Exec(context.WithoutCancel(ctx), "drop database "+d.name+" with (force)"); err != nil {
		return fmt.Errorf("drop database: %w", err)
	}
	return nil
}

// template returns the name of a kind's template.
func (b *bench) template(ctx context.Context, kind string) (string, error) {
	if name, ok := b.templates[kind]; ok {
		return name, nil
	}
	d, err := b.create(ctx, "template0")
	if err != nil {
		return "", err
	}
	b.templates[kind] = d.name
	defer d.pool.Close() // nobody may be connected to what is copied
	switch kind {
	case forService:
		if err := store.Migrate(ctx, d.url); err != nil {
			return "", err
		}
		s := store.New(d.pool)
		if b.key, _, err = s.CreateKey(ctx, project, "bench", []string{"send", "read", "admin"}, time.Time{}); err != nil {
			return "", err
		}
	default:
		if err := migrateRiver(ctx, d.pool, kind); err != nil {
			return "", err
		}
	}
	if b.o.Statements {
		if _, err := d.pool.Exec(ctx, "create extension if not exists pg_stat_statements"); err != nil {
			return "", fmt.Errorf("the server must have pg_stat_statements in shared_preload_libraries: %w", err)
		}
	}
	return d.name, nil
}

func migrateRiver(ctx context.Context, pool *pgxpool.Pool, kind string) error {
	m, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return fmt.Errorf("prepare river's migrations: %w", err)
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate river: %w", err)
	}
	if kind == forRiver {
		return nil
	}
	_, err = pool.Exec(ctx, `drop index river_job_args_index; drop index river_job_metadata_index;
		alter table river_job set (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0)`)
	if err != nil {
		return fmt.Errorf("tune river: %w", err)
	}
	return nil
}

func (b *bench) dropTemplates(ctx context.Context) error {
	var errs []error
	for _, name := range b.templates {
		if _, err := b.admin.Exec(ctx, "drop database if exists "+name+" with (force)"); err != nil {
			errs = append(errs, fmt.Errorf("drop database: %w", err))
		}
	}
	return errors.Join(errs...)
}

// settle brings a database into the state of one that has been used for a while:
// statistics are known, and no checkpoint is due. A role that may not begin a
// checkpoint goes without.
func (d *database) settle(ctx context.Context) error {
	if _, err := d.pool.Exec(ctx, "vacuum analyze"); err != nil {
		return fmt.Errorf("settle the database: %w", err)
	}
	_, _ = d.pool.Exec(ctx, "checkpoint")
	return nil
}

// state is what the server has used so far.
type state struct {
	wal          int64 // bytes
	size         int64 // bytes of the schema's tables with their indexes
	transactions int64
	connections  int64 // of others than this process
	cpu          time.Duration
}

const stateSQL = `
select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint,
  (select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind in ('r', 'p') and n.nspname in ('dispatcher', 'public')),
  (select xact_commit + xact_rollback from pg_stat_database where datname = current_database()),
  (select count(*) from pg_stat_activity where datname = current_database() and application_name <> 'dispatcher-bench')`

func (b *bench) state(ctx context.Context, d *database) (state, error) {
	var s state
	if err := d.pool.QueryRow(ctx, stateSQL).Scan(&s.wal, &s.size, &s.transactions, &s.connections); err != nil {
		return state{}, fmt.Errorf("read what the server used: %w", err)
	}
	if b.server == 0 {
		return s, nil
	}
	var err error
	if s.cpu, err = serverCPU(b.server); err != nil {
		return state{}, fmt.Errorf("read what the server used: %w", err)
	}
	return s, nil
}

// Statement is what a statement cost in one sample.
type Statement struct {
	Calls int64   `json:"calls"`
	Rows  int64   `json:"rows"`
	Ms    float64 `json:"total_ms"`
	WAL   int64   `json:"wal_bytes"`
	Text  string  `json:"text"`
}

const statementsSQL = `
select calls, rows, total_exec_time + total_plan_time, wal_bytes::bigint, regexp_replace(query, '\s+', ' ', 'g')
from pg_stat_statements where dbid = (select oid from pg_database where datname = current_database())
order by 3 desc limit 25`

func (d *database) statements(ctx context.Context) ([]Statement, error) {
	rows, err := d.pool.Query(ctx, statementsSQL)
	if err != nil {
		return nil, fmt.Errorf("read statements: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (Statement, error) {
		var s Statement
		err := row.Scan(&s.Calls, &s.Rows, &s.Ms, &s.WAL, &s.Text)
		s.Text = strings.TrimSpace(s.Text)
		return s, err
	})
}
