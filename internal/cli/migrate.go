package cli

import (
	"context"
	"flag"
	"fmt"

	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// databaseFlags are the flags of commands that need nothing but the database.
type databaseFlags struct{ file, url *string }

func newDatabaseFlags(f *flag.FlagSet) databaseFlags {
	return databaseFlags{
		file: f.String("config", "", "read this configuration `file` (default $DISPATCHER_CONFIG)"),
		url:  f.String("database-url", "", "the database's `url` (default $DATABASE_URL)"),
	}
}

// resolve returns the database's URL.
func (d databaseFlags) resolve(e *env) (string, error) {
	flags := map[string]string{}
	if *d.url != "" {
		flags["database.url"] = *d.url
	}
	c, err := e.load(*d.file, flags)
	return c.Database.URL.Reveal(), err
}

func migrateCommand() command {
	return command{
		name: "migrate", summary: "bring the database to this version's schema",
		sub: []command{
			{
				name: "up", summary: "apply what is missing",
				details: "Any number of processes may do it at once: one works and the others wait for it.\n" +
					"A table that another session keeps locked is tried for two minutes.",
				setup: func(f *flag.FlagSet) action {
					database := newDatabaseFlags(f)
					return func(ctx context.Context, e *env, _ []string) error { return migrateUp(ctx, e, database) }
				},
			},
			{
				name: "status", summary: "say how far the database has been migrated",
				details: "It changes nothing, and fails where something is missing.",
				setup: func(f *flag.FlagSet) action {
					database := newDatabaseFlags(f)
					asJSON := f.Bool("json", false, "print JSON")
					return func(ctx context.Context, e *env, _ []string) error { return migrateStatus(ctx, e, database, *asJSON) }
				},
			},
		},
	}
}

func migrateUp(ctx context.Context, e *env, database databaseFlags) error {
	url, err := database.resolve(e)
	if err != nil {
		return err
	}
	before, err := store.Status(ctx, url)
	if err != nil {
		return err
	}
	if before.Current() {
		printTo(e.stdout, "%s: nothing to do\n", migrationLine(before))
		return nil
	}
	waiting := func(blockers string) { printTo(e.stderr, "waiting for a lock that is held by %s\n", blockers) }
	if err := (store.Migration{Waiting: waiting}).Up(ctx, url); err != nil {
		return err
	}
	after, err := store.Status(ctx, url)
	if err != nil {
		return err
	}
	printTo(e.stdout, "%s: migrated from schema %d, river %d\n", migrationLine(after), before.Schema, before.River)
	return nil
}

func migrateStatus(ctx context.Context, e *env, database databaseFlags, asJSON bool) error {
	url, err := database.resolve(e)
	if err != nil {
		return err
	}
	s, err := store.Status(ctx, url)
	if err != nil {
		return err
	}
	if asJSON {
		out := struct {
			store.MigrationStatus
			Current bool `json:"current"`
		}{s, s.Current()}
		if err := writeJSON(e.stdout, out); err != nil {
			return err
		}
	} else {
		state := "current"
		if !s.Current() {
			state = "out of date; run `dispatcher migrate up`"
		}
		printTo(e.stdout, "%s: %s\n", migrationLine(s), state)
	}
	if !s.Current() {
		return errFailed
	}
	return nil
}

func migrationLine(s store.MigrationStatus) string {
	return fmt.Sprintf("schema %d of %d, river %d of %d", s.Schema, s.Wanted, s.River, s.RiverWanted)
}
