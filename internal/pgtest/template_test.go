package pgtest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestTemplateIsMadeOnceByManyProcesses(t *testing.T) {
	s := serverFor(t)
	name := temporaryTemplate(t, s)
	var made atomic.Int32
	migrate := func(context.Context, string) error { made.Add(1); return nil }

	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			// Each knows no template yet, as another process does.
			other := &server{url: s.url, templates: map[string]bool{}}
			if _, err := other.template(t.Context(), name, migrate); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if got := made.Load(); got != 1 {
		t.Errorf("made %d times, want once", got)
	}
}

func TestTemplateThatFailedIsMadeAnew(t *testing.T) {
	s := serverFor(t)
	name := temporaryTemplate(t, s)
	broken := errors.New("broken migration")
	_, err := s.template(t.Context(), name, func(ctx context.Context, url string) error {
		return errors.Join(execute(ctx, url, "CREATE TABLE half ()"), broken)
	})
	if !errors.Is(err, broken) {
		t.Fatalf("template = %v, want the migration's error", err)
	}
	_, err = s.template(t.Context(), name, func(ctx context.Context, url string) error {
		return execute(ctx, url, "CREATE TABLE half ()")
	})
	if err != nil {
		t.Errorf("the second time: %v", err)
	}
}

func TestTemplateTakesAwayDatabasesOfKilledTests(t *testing.T) {
	s := serverFor(t)
	old := databasePrefix + "1600000000_aaaaaaaaaa"
	if err := execute(t.Context(), s.url, "CREATE DATABASE "+old); err != nil {
		t.Fatal(err)
	}
	kept, drop, err := s.clone(t.Context(), "template0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = drop(context.WithoutCancel(t.Context())) })

	_, err = s.template(t.Context(), temporaryTemplate(t, s), func(context.Context, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	url, err := withDatabase(s.url, old)
	if err != nil {
		t.Fatal(err)
	}
	if err := execute(t.Context(), url, "SELECT 1"); err == nil {
		t.Error("the old database is still there")
	}
	if err := execute(t.Context(), kept, "SELECT 1"); err != nil {
		t.Errorf("the new one: %v", err)
	}
}

func TestWithDatabaseReplacesOnlyTheDatabase(t *testing.T) {
	tests := []struct{ in, want string }{
		{"postgres://u:p@h:1/a?sslmode=disable", "postgres://u:p@h:1/b?sslmode=disable"},
		{"postgresql:///a?host=%2Ftmp", "postgresql:///b?host=%2Ftmp"},
		{"postgres://h?dbname=a", "postgres://h/b"},
		{"host=/tmp dbname=a", "host=/tmp dbname=a dbname=b"},
	}
	for _, test := range tests {
		got, err := withDatabase(test.in, "b")
		if err != nil || got != test.want {
			t.Errorf("withDatabase(%q) = %q, %v, want %q", test.in, got, err, test.want)
		}
		cfg, err := pgx.ParseConfig(got)
		if err != nil || cfg.Database != "b" {
			t.Errorf("%q: pgx reads %+v, %v, want database b", got, cfg, err)
		}
	}
}

// temporaryTemplate is a template's name that the test's end drops.
func temporaryTemplate(t *testing.T, s *server) string {
	t.Helper()
	name := "dispatcher_template_of_" + randomName()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
		defer cancel()
		_ = execute(ctx, s.url, "ALTER DATABASE "+quote(name)+" WITH IS_TEMPLATE false")
		if err := execute(ctx, s.url, "DROP DATABASE IF EXISTS "+quote(name)); err != nil {
			t.Error(err)
		}
	})
	return name
}

func execute(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql)
	return errors.Join(err, conn.Close(ctx))
}
