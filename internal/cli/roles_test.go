package cli_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
)

func TestRolesAreBoundListedAndUnbound(t *testing.T) {
	url := pgtest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	// Roles belong to the server, so the test's needs a name of its own.
	role := "cli-" + uuid.NewString()
	if _, err := conn.Exec(t.Context(), "create role "+pgx.Identifier{role}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if _, err := conn.Exec(ctx, "drop role "+pgx.Identifier{role}.Sanitize()); err != nil { // fails where grants are left
			t.Error(err)
		}
		_ = conn.Close(ctx)
	})
	env := []string{"DATABASE_URL=" + url}
	run(t, env, "roles", "bind", role, "shop").want(t, 0, role+" acts for shop")
	run(t, env, "roles", "bind", role, "shop").want(t, 0)
	run(t, env, "roles", "list").want(t, 0, role, "shop")
	var list struct {
		Items []struct{ Role, Project string }
	}
	r := run(t, env, "roles", "list", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list.Items) != 1 || list.Items[0].Role != role {
		t.Errorf("roles list --json = %s, %v", r.stdout, err)
	}
	run(t, env, "roles", "unbind", role, "shop").want(t, 0, "no more")
	run(t, env, "roles", "unbind", role, "shop").want(t, 1, "does not act for")
	run(t, env, "roles", "bind", "nobody-"+role, "shop").want(t, 1, "there is no database role")
	run(t, env, "roles", "bind", role, "No Project").want(t, 2, "a project is")
	run(t, env, "roles", "bind", role).want(t, 2, "takes a database role and a project")
}
