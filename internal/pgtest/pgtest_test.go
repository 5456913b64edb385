package pgtest_test

import (
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
)

func TestDatabasesAreMigratedAndApart(t *testing.T) {
	t.Parallel()
	first, second := pgtest.New(t), pgtest.New(t)
	for _, sql := range []string{"CREATE TABLE mine ()", "SELECT FROM dispatcher.notifications", "SELECT FROM dispatcher.river_job"} {
		if _, err := first.Exec(t.Context(), sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
	}
	var seen bool
	if err := second.QueryRow(t.Context(), "SELECT to_regclass('mine') IS NOT NULL").Scan(&seen); err != nil {
		t.Fatal(err)
	}
	if seen {
		t.Error("a table of the first database is in the second")
	}
}

func TestEmptyDatabaseHasNoTables(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgtest.Empty(t))
	var tables int
	err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')").Scan(&tables)
	if err != nil {
		t.Fatal(err)
	}
	if tables != 0 {
		t.Errorf("%d tables, want none", tables)
	}
}

func TestDatabaseIsGoneAfterItsTest(t *testing.T) {
	var url string
	t.Run("inner", func(t *testing.T) {
		url = pgtest.URL(t)
		// A connection that the test leaves open must not save the database.
		if _, err := pgx.Connect(t.Context(), url); err != nil {
			t.Fatal(err)
		}
	})
	if t.Failed() || url == "" {
		t.SkipNow() // The inner test has said why.
	}
	if conn, err := pgx.Connect(t.Context(), url); err == nil {
		_ = conn.Close(t.Context())
		t.Error("the database is still there")
	}
}

func TestManyTestsAtOnce(t *testing.T) {
	t.Parallel()
	for i := range 8 {
		t.Run(strconv.Itoa(i), func(t *testing.T) {
			t.Parallel()
			pool := pgtest.New(t)
			if _, err := pool.Exec(t.Context(), "CREATE TABLE mine ()"); err != nil {
				t.Error(err)
			}
		})
	}
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(t.Context()) })
	return conn
}
