package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func rolesCommand() command {
	return command{
		name: "roles", summary: "let database roles enqueue in their own transactions",
		sub: []command{
			{
				name: "bind", args: "ROLE PROJECT", summary: "let a database role, and its members, act for a project in SQL",
				details: "The role must exist. It may then call dispatcher.enqueue and dispatcher.cancel_for and read dispatcher.status for\n" +
					"its projects; no table is open to it. Binding twice is no error.",
				setup: func(f *flag.FlagSet) action { return rolesChange(f, (*store.Store).BindRole, "%s acts for %s\n") },
			},
			{
				name: "unbind", args: "ROLE PROJECT", summary: "take a project from a database role",
				setup: func(f *flag.FlagSet) action {
					return rolesChange(f, (*store.Store).UnbindRole, "%s acts for %s no more\n")
				},
			},
			{name: "list", summary: "list which roles act for which projects", setup: rolesList},
		},
	}
}

func rolesChange(f *flag.FlagSet, change func(*store.Store, context.Context, store.RoleBinding) error, said string) action {
	database := newDatabaseFlags(f)
	return func(ctx context.Context, e *env, args []string) error {
		if len(args) != 2 {
			return usagef("roles takes a database role and a project")
		}
		b := store.RoleBinding{Role: args[0], Project: args[1]}
		return withStore(ctx, e, database, func(s *store.Store) error {
			err := change(s, ctx, b)
			switch {
			case errors.Is(err, store.ErrBadProject):
				return usagef("%s", store.ErrBadProject)
			case errors.Is(err, store.ErrNoRole):
				return fmt.Errorf("there is no database role %q", b.Role)
			case errors.Is(err, store.ErrNotFound):
				return fmt.Errorf("%q does not act for %q", b.Role, b.Project)
			case err != nil:
				return err
			}
			printTo(e.stdout, said, b.Role, b.Project)
			return nil
		})
	}
}

func rolesList(f *flag.FlagSet) action {
	database := newDatabaseFlags(f)
	asJSON := f.Bool("json", false, "print JSON")
	return func(ctx context.Context, e *env, _ []string) error {
		return withStore(ctx, e, database, func(s *store.Store) error {
			bindings, err := s.RoleBindings(ctx)
			if err != nil {
				return err
			}
			if *asJSON {
				return writeJSON(e.stdout, struct {
					Items []store.RoleBinding `json:"items"`
				}{bindings})
			}
			rows := [][]string{{"ROLE", "PROJECT"}}
			for _, b := range bindings {
				rows = append(rows, []string{b.Role, b.Project})
			}
			table(e.stdout, rows)
			return nil
		})
	}
}
