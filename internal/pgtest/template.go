package pgtest

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/notification-dispatcher/dispatcher/migrations"
)

// templateLock is the advisory lock that processes take to make a template; the
// key is arbitrary.
const templateLock = 0x7067746573740001

// staleAfter is how old a database must be to count as left by a killed test.
const staleAfter = "6 hours"

// migratedTemplate names the template by what is in it: our migrations and those
// of the River module.
func migratedTemplate() string {
	h := sha256.New()
	for _, files := range []fs.FS{migrations.FS, riverpgxv5.New(nil).GetMigrationFS("main")} {
		hashFiles(h, files)
	}
	return fmt.Sprintf("dispatcher_template_%x", h.Sum(nil)[:6])
}

func hashFiles(w io.Writer, files fs.FS) {
	err := fs.WalkDir(files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := fs.ReadFile(files, path)
		_, _ = fmt.Fprintf(w, "%s %d\n%s", path, len(text), text)
		return err
	})
	if err != nil {
		panic("pgtest: embedded migrations cannot be read: " + err.Error())
	}
}

// template returns the name of a template that migrate filled. The first process
// that asks makes it; the others wait.
func (s *server) template(ctx context.Context, name string, migrate func(ctx context.Context, url string) error) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.templates[name] {
		return name, nil
	}
	err := s.do(ctx, func(conn *pgx.Conn) error {
		// The connection's end frees the lock.
		if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", templateLock); err != nil {
			return err
		}
		return s.makeTemplate(ctx, conn, name, migrate)
	})
	if err != nil {
		return "", fmt.Errorf("make the template %s: %w", name, err)
	}
	s.templates[name] = true
	return name, nil
}

func (s *server) makeTemplate(ctx context.Context, conn *pgx.Conn, name string, migrate func(ctx context.Context, url string) error) error {
	var ready bool
	err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1 AND datistemplate)", name).Scan(&ready)
	if err != nil || ready {
		return err
	}
	if err := dropStale(ctx, conn); err != nil {
		return err
	}
	url, err := withDatabase(s.url, name)
	if err != nil {
		return err
	}
	// Only a whole one is marked as a template; what a killed process began is not.
	for _, statement := range []string{
		"DROP DATABASE IF EXISTS " + quote(name) + " WITH (FORCE)",
		"CREATE DATABASE " + quote(name) + " TEMPLATE template0" + strategy(conn),
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	if err := migrate(ctx, url); err != nil {
		return err
	}
	// A database that somebody is connected to cannot be copied.
	_, err = conn.Exec(ctx, "ALTER DATABASE "+quote(name)+" WITH IS_TEMPLATE true ALLOW_CONNECTIONS false")
	return err
}

// dropStale drops the databases that killed tests left on a lasting server.
func dropStale(ctx context.Context, conn *pgx.Conn) error {
	rows, err := conn.Query(ctx, `SELECT datname FROM pg_database
		WHERE datname ~ '^`+databasePrefix+`\d{10}_\w{10}$'
		AND to_timestamp(substr(datname, length('`+databasePrefix+`') + 1, 10)::bigint) < now() - '`+staleAfter+`'::interval`)
	if err != nil {
		return err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := conn.Exec(ctx, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)"); err != nil {
			return err
		}
	}
	return nil
}
