package main_test

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// need ends the test where a program is missing: in CI that is a failure.
func need(t *testing.T, ok bool, what string) {
	t.Helper()
	switch {
	case ok:
	case os.Getenv("CI") != "":
		t.Fatalf("%s is missing", what)
	default:
		t.Skipf("%s is missing", what)
	}
}

// python returns an interpreter that has psycopg2, empty for none.
func python(t *testing.T) string {
	t.Helper()
	for _, program := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), program, "-c", "import psycopg2").Run() == nil {
			return program
		}
	}
	return ""
}

// shop makes a database with orders, and a role that may store them and act for
// the project shop. It returns the role's URL.
func shop(t *testing.T) (*pgxpool.Pool, string) {
	t.Helper()
	url := pgtest.URL(t)
	s, err := store.Open(t.Context(), url, store.Options{MaxConnections: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	role := "shop-" + uuid.NewString() // roles belong to the server
	ident := pgx.Identifier{role}.Sanitize()
	for _, sql := range []string{
		"create table orders (id text primary key)", "create role " + ident + " login password 'secret'", "grant insert on orders to " + ident,
	} {
		if _, err := s.Pool().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		for _, sql := range []string{"drop owned by " + ident, "drop role " + ident} {
			if _, err := s.Pool().Exec(context.WithoutCancel(t.Context()), sql); err != nil {
				t.Error(err)
			}
		}
	})
	if err := s.BindRole(t.Context(), store.RoleBinding{Role: role, Project: "shop"}); err != nil {
		t.Fatal(err)
	}
	c := s.Pool().Config().ConnConfig
	return s.Pool(), strings.Join([]string{
		"host='" + c.Host + "'", "port=" + strconv.Itoa(int(c.Port)), "dbname='" + c.Database + "'", "user='" + role + "'", "password=secret",
	}, " ")
}

func TestExamplesStoreTheOrderAndTheNotificationTogether(t *testing.T) {
	t.Parallel()
	pool, url := shop(t)
	_, noPsql := exec.LookPath("psql")
	interpreter := python(t)
	for _, example := range []struct {
		name, needs string
		there       bool
		command     func(order string) []string
	}{
		{"Go", "go", true, func(order string) []string { return []string{"go", "run", ".", order} }},
		{"psql", "psql", noPsql == nil, func(order string) []string {
			return []string{"psql", url, "-v", "ON_ERROR_STOP=1", "-v", "order=" + order, "-f", "enqueue.sql"}
		}},
		{"Python", "python3 with psycopg2", interpreter != "", func(order string) []string { return []string{interpreter, "enqueue.py", order} }},
	} {
		t.Run(example.name, func(t *testing.T) {
			t.Parallel()
			need(t, example.there, example.needs)
			order := "order-" + example.name
			run := func() (string, error) {
				line := example.command(order)
				cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
				cmd.Env = append(os.Environ(), "DATABASE_URL="+url)
				var errs strings.Builder
				cmd.Stderr = &errs
				out, err := cmd.Output()
				if err != nil {
					t.Log(errs.String())
				}
				return strings.TrimSpace(string(out)), err
			}
			id, err := run()
			if err != nil {
				t.Fatal(err)
			}
			// The order is there already, so the second try must leave nothing.
			if _, err := run(); err == nil {
				t.Error("stored the same order twice")
			}
			var orders, matching, all int
			err = pool.QueryRow(t.Context(), `select (select count(*) from orders where id = $1),
				(select count(*) from dispatcher.status where id::text = $2 and reference = $1 and status = 'queued' and project = 'shop'),
				(select count(*) from dispatcher.notifications where reference = $1)`, order, id).Scan(&orders, &matching, &all)
			if err != nil || orders != 1 || matching != 1 || all != 1 {
				t.Errorf("%d orders, %d notifications, %d of them with the id %q, want one of each: %v", orders, all, matching, id, err)
			}
		})
	}
}
