package store

import (
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/jackc/pgx/v5"
)

// ErrNoRole means that there is no such role in the database.
var ErrNoRole = errors.New("no such database role")

// ErrBadProject means that the name of the project is none.
var ErrBadProject = errors.New("a project is 1 to 63 lower case letters, digits, hyphens and underscores")

var projectShape = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

// RoleBinding lets a database role, and its members, act for a project in SQL.
type RoleBinding struct {
	Role    string `json:"role"`
	Project string `json:"project"`
}

// What a bound role may do in the database. It is all that it may: no table is
// readable.
var (
	roleGrants = []string{
		"grant usage on schema dispatcher to %s",
		"grant execute on function dispatcher.enqueue(jsonb), dispatcher.cancel_for(text, text) to %s",
		"grant select on dispatcher.status to %s",
	}
	roleRevokes = []string{
		"revoke select on dispatcher.status from %s",
		"revoke execute on function dispatcher.enqueue(jsonb), dispatcher.cancel_for(text, text) from %s",
		"revoke usage on schema dispatcher from %s",
	}
)

// BindRole lets a database role enqueue and cancel for a project and see its
// statuses, from SQL. It is safe to repeat. The role must exist: [ErrNoRole].
func (s *Store) BindRole(ctx context.Context, b RoleBinding) error {
	if !projectShape.MatchString(b.Project) {
		return fmt.Errorf("bind role: %w", ErrBadProject)
	}
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "insert into dispatcher.role_projects (role, project) values ($1, $2) on conflict do nothing", b.Role, b.Project)
		if err != nil {
			return err
		}
		return grant(ctx, tx, roleGrants, b.Role)
	})
	if err != nil {
		return fmt.Errorf("bind role: %w", err)
	}
	return nil
}

// UnbindRole takes a project from a role and, with its last one, what the role
// may do in the database. It returns [ErrNotFound] where they are not bound.
func (s *Store) UnbindRole(ctx context.Context, b RoleBinding) error {
	err := s.inTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "delete from dispatcher.role_projects where role = $1 and project = $2", b.Role, b.Project)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return ErrNotFound
		}
		var bound bool
		if err := tx.QueryRow(ctx, "select exists (select from dispatcher.role_projects where role = $1)", b.Role).Scan(&bound); err != nil || bound {
			return err
		}
		if err := grant(ctx, tx, roleRevokes, b.Role); !errors.Is(err, ErrNoRole) { // a role that was dropped has nothing
			return err
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("unbind role: %w", err)
	}
	return nil
}

// grant runs statements about a role, which cannot take it as an argument.
func grant(ctx context.Context, tx pgx.Tx, statements []string, role string) error {
	var exists bool
	if err := tx.QueryRow(ctx, "select exists (select from pg_catalog.pg_roles where rolname = $1)", role).Scan(&exists); err != nil {
		return err
	}
	if !exists {
		return ErrNoRole
	}
	for _, statement := range statements {
		sql := fmt.Sprintf(statement, pgx.Identifier{role}.Sanitize())
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// RoleBindings lists which roles act for which projects, by role and project.
func (s *Store) RoleBindings(ctx context.Context) ([]RoleBinding, error) {
	rows, err := s.pool.Query(ctx, "select role::text, project from dispatcher.role_projects order by 1, 2")
	if err != nil {
		return nil, fmt.Errorf("list role bindings: %w", err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[RoleBinding])
	if err != nil {
		return nil, fmt.Errorf("list role bindings: %w", err)
	}
	return out, nil
}
