package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestMigrateBringsAnEmptyDatabaseUpAndThenHasNothingToDo(t *testing.T) {
	url := pgtest.Empty(t)
	env := []string{"DATABASE_URL=" + url}
	run(t, env, "migrate", "status").want(t, 1, "schema 0 of ", "out of date")
	run(t, env, "migrate", "up").want(t, 0, "migrated from schema 0, river 0")
	run(t, nil, "migrate", "up", "--database-url", url).want(t, 0, "nothing to do")
	run(t, env, "migrate", "status").want(t, 0, "current")
	var out struct {
		Current        bool
		Schema, Wanted int
	}
	r := run(t, env, "migrate", "status", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil || !out.Current || out.Schema != out.Wanted || out.Schema == 0 {
		t.Errorf("migrate status --json = %s, %v", r.stdout, err)
	}
}

func TestMigrateWithoutADatabaseSaysWhatIsMissing(t *testing.T) {
	run(t, nil, "migrate", "up").want(t, 1, "database.url: must be given, here or as DATABASE_URL")
	r := run(t, []string{"DATABASE_URL=postgres://ana:hunter2@127.0.0.1:1/x"}, "migrate", "up")
	r.want(t, 1, "connect")
	if strings.Contains(r.stdout+r.stderr, "hunter2") {
		t.Errorf("the password was printed: %s", r.stderr)
	}
}

func TestKeysAreMadeListedAndRevoked(t *testing.T) {
	url := pgtest.URL(t)
	env := []string{"DATABASE_URL=" + url}
	var made struct {
		ID, Project, Name, Key string
		Scopes                 []string
	}
	r := run(t, env, "keys", "create", "--project", "shop", "--scopes", "send,read", "--name", "checkout", "--expires-in", "1h", "--json")
	r.want(t, 0)
	if err := json.Unmarshal([]byte(r.stdout), &made); err != nil {
		t.Fatal(err)
	}
	s, err := store.Open(t.Context(), url, store.Options{MaxConnections: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key, err := s.Authenticate(t.Context(), made.Key)
	if err != nil || key.Project != "shop" || key.Name != "checkout" || strings.Join(key.Scopes, ",") != "send,read" || key.ExpiresAt.IsZero() {
		t.Errorf("the key authenticates as %+v, %v", key, err)
	}

	r = run(t, env, "keys", "create")
	r.want(t, 0, "It cannot be shown again.")
	if !strings.HasPrefix(r.stdout, "dsp_") || strings.Count(r.stdout, "\n") != 1 {
		t.Errorf("stdout = %q, want the key alone", r.stdout)
	}
	r = run(t, env, "keys", "list")
	r.want(t, 0, made.ID, "shop", "checkout", "live until", "default")
	if strings.Contains(r.stdout, made.Key) {
		t.Error("the list shows a key's secret")
	}
	run(t, env, "keys", "limit", made.ID, "--write", "100/s", "--read", "30/m,7").want(t, 0, "read 30/m,7; write 100/s,1000")
	run(t, env, "keys", "limit", made.ID, "--write", "default").want(t, 0, "limits of "+made.ID+": read 30/m,7\n")
	run(t, env, "keys", "limit", "01937f00-0000-7000-8000-00000000dead", "--read", "1/h").want(t, 1, "there is no key")
	run(t, env, "keys", "list", "--project", "shop").want(t, 0, "read 30/m,7", "none")
	run(t, env, "keys", "list", "--project", "shop", "--json").want(t, 0, `"per_second": 0.5`)
	run(t, env, "keys", "revoke", made.ID).want(t, 0, "revoked "+made.ID)
	run(t, env, "keys", "revoke", made.ID).want(t, 0)
	run(t, env, "keys", "list", "--project", "shop").want(t, 0, "revoked")
	run(t, env, "keys", "revoke", "01937f00-0000-7000-8000-00000000dead").want(t, 1, "there is no key")

	var list struct {
		Items []struct{ ID, Key, Hint string }
	}
	r = run(t, env, "keys", "list", "--project", "shop", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &list); err != nil || len(list.Items) != 1 || list.Items[0].Key != "" || list.Items[0].Hint == "" {
		t.Errorf("keys list --json = %s, %v", r.stdout, err)
	}
}
