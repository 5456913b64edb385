// Package pgtest gives each test a PostgreSQL database of its own, so that tests
// run in parallel and use LISTEN, NOTIFY, advisory locks and River as they like.
//
// A database is a copy of a template that has all migrations, made in some 50 ms.
// The server is the one of [pgserver.Start], one per process; the command withpg
// makes it one for all packages. Roles belong to the server, not to a database:
// a test that makes one must give it a name of its own.
//
// Tests of package store itself stand in package store_test, since pgtest
// imports store.
package pgtest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest/pgserver"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// New returns a pool on a new migrated database. The test's end closes the pool
// and drops the database. Where no server can be had the test is skipped, or
// fails if the environment variable CI is set.
func New(t testing.TB) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), URL(t))
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() { closePool(t, pool) })
	return pool
}

// URL is [New] without the pool: the URL of a new migrated database.
func URL(t testing.TB) string {
	t.Helper()
	s := serverFor(t)
	template, err := s.template(t.Context(), migratedTemplate(), store.Migrate)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return create(t, s, template)
}

// Empty returns the URL of a new database without migrations.
func Empty(t testing.TB) string {
	t.Helper()
	return create(t, serverFor(t), "template0")
}

func create(t testing.TB, s *server, template string) string {
	t.Helper()
	url, drop, err := s.clone(t.Context(), template)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		// The test's context has ended by now.
		if err := drop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return url
}

// serverFor returns the process's server, or ends the test.
func serverFor(t testing.TB) *server {
	t.Helper()
	s, err := processServer()
	if errors.Is(err, pgserver.ErrNone) && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return s
}

// closeLimit is how long a test's own work may still hold connections.
const closeLimit = 10 * time.Second

// closePool closes a pool, which waits for the connections that are in use: one
// that the test forgot to release would hang it for ever.
func closePool(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	closed := make(chan struct{})
	go func() { defer close(closed); pool.Close() }()
	select {
	case <-closed:
	case <-time.After(closeLimit):
		t.Errorf("pgtest: the test still holds %d connections of its pool", pool.Stat().AcquiredConns())
	}
}
