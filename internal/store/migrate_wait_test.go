package store_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"

	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/migrations"
)

// before brings the database to the state before a migration.
func (d *db) before(version int64) {
	d.t.Helper()
	p, err := goose.NewProvider(goose.DialectPostgres, stdlib.OpenDBFromPool(d.Pool()), migrations.FS, goose.WithTableName("dispatcher.schema_migrations"))
	if err != nil {
		d.t.Fatal(err)
	}
	if _, err := p.DownTo(d.t.Context(), version-1); err != nil {
		d.t.Fatal(err)
	}
}

func TestAMigrationBehindAnOpenTransactionLetsOthersPass(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.before(7) // which changes notifications
	leave := d.stranger("set application_name = 'somebody''s psql'", "select * from dispatcher.notifications")
	done := make(chan error, 1)
	go func() { done <- store.Migration{Patience: time.Millisecond}.Up(t.Context(), d.url) }()
	waitUntil(d, "the migration waits", `select exists (select from pg_stat_activity
		where datname = current_database() and application_name = 'dispatcher-migrate' and wait_event_type = 'Lock')`)
	// Whoever comes now waits behind it, but not for long.
	begun := time.Now()
	d.count("select count(*) from dispatcher.notifications")
	if took := time.Since(begun); took > 20*time.Second {
		t.Errorf("a reader waited %v", took)
	}
	err := <-done
	var blocked *store.BlockedError
	if !errors.As(err, &blocked) || !strings.Contains(blocked.Blockers, "somebody's psql, idle in transaction") ||
		!strings.Contains(err.Error(), blocked.Blockers) {
		t.Errorf("error %v", err)
	}
	if strings.Contains(err.Error(), "from dispatcher.notifications") {
		t.Errorf("the error shows the session's query: %v", err)
	}
	waited := make(chan string, 1)
	go func() {
		done <- store.Migration{Waiting: func(blockers string) { waited <- blockers; leave() }}.Up(t.Context(), d.url)
	}()
	if got := <-waited; !strings.Contains(got, "somebody's psql") {
		t.Errorf("waits for %q", got)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s, err := store.Status(t.Context(), d.url); err != nil || !s.Current() {
		t.Errorf("status %+v, %v", s, err)
	}
}
