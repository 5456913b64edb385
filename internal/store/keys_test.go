package store_test

import (
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestAKeyIsStoredAsAHashOnly(t *testing.T) {
	t.Parallel()
	d := open(t)
	expires := now().Add(time.Hour)
	secret, key, err := d.CreateKey(t.Context(), "default", "ci", []string{"send", "read"}, expires)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(secret, "dsp_") || len(secret) != 44 || key.Hint != secret[:8] {
		t.Errorf("secret of %d characters, hint %q", len(secret), key.Hint)
	}
	stored := one[string](d, "select k::text from dispatcher.api_keys k")
	if strings.Contains(stored, secret[8:]) {
		t.Error("the secret is in the database")
	}
	hash := sha256.Sum256([]byte(secret))
	if d.count("select count(*) from dispatcher.api_keys where hash = $1", hash[:]) != 1 {
		t.Error("the hash is not")
	}
	if key.Project != "default" || key.Name != "ci" || !key.ExpiresAt.Equal(expires) || !key.RevokedAt.IsZero() || !key.LastUsedAt.IsZero() {
		t.Errorf("key %+v", key)
	}
	got, err := d.Authenticate(t.Context(), secret)
	if err != nil || got.ID != key.ID || !cmp.Equal(got.Scopes, []string{"send", "read"}) {
		t.Errorf("authenticated %+v, %v", got, err)
	}
	if used := one[time.Time](d, "select last_used_at from dispatcher.api_keys"); time.Since(used) > time.Minute {
		t.Errorf("last used %v", used)
	}
	for name, wrong := range map[string]string{"none": "", "another": secret + "x", "its hint": key.Hint, "upper case": strings.ToUpper(secret)} {
		if _, err := d.Authenticate(t.Context(), wrong); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other, _, err := d.CreateKey(t.Context(), "default", "ci", []string{"send"}, time.Time{})
	if err != nil || other == secret {
		t.Errorf("two keys share a secret, %v", err)
	}
}

func TestARevokedKeyIsRefusedWithinASecondOnEveryNode(t *testing.T) {
	t.Parallel()
	a := open(t)
	b := openAt(t, a.url)
	secret, key, err := a.CreateKey(t.Context(), "default", "", []string{"read"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []*db{a, b} {
		if _, err := n.Authenticate(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.RevokeKey(t.Context(), "default", key.ID); err != nil {
		t.Fatal(err)
	}
	revoked := time.Now()
	for _, n := range []*db{a, b} {
		for {
			begun := time.Now()
			_, err := n.Authenticate(t.Context(), secret)
			if errors.Is(err, store.ErrNotFound) {
				break
			}
			if late := begun.Sub(revoked); err != nil || late > time.Second {
				t.Fatalf("let in %v after the revocation, %v", late, err)
			}
		}
	}
	first := one[time.Time](a, "select revoked_at from dispatcher.api_keys")
	if err := b.RevokeKey(t.Context(), "", key.ID); err != nil {
		t.Errorf("revoked again, by whoever sees all projects: %v", err)
	}
	if again := one[time.Time](a, "select revoked_at from dispatcher.api_keys"); !again.Equal(first) {
		t.Error("the instant of the revocation changed")
	}
}

func TestAKeyEndsAtItsTime(t *testing.T) {
	t.Parallel()
	d := open(t)
	expires := now().Add(300 * time.Millisecond)
	secret, _, err := d.CreateKey(t.Context(), "default", "", []string{"read"}, expires)
	if err != nil {
		t.Fatal(err)
	}
	for {
		before := time.Now()
		_, err := d.Authenticate(t.Context(), secret)
		after := time.Now()
		if errors.Is(err, store.ErrNotFound) && after.After(expires) {
			break
		}
		if err != nil || before.After(expires.Add(50*time.Millisecond)) {
			t.Fatalf("%v after its end: %v", before.Sub(expires), err)
		}
	}
}

func TestKeysOfOtherProjectsAreOutOfReach(t *testing.T) {
	t.Parallel()
	d := open(t)
	ids := map[string]uuid.UUID{}
	for _, project := range []string{"a", "b"} {
		_, key, err := d.CreateKey(t.Context(), project, "", []string{"admin"}, time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		ids[project] = key.ID
	}
	for project, want := range map[string][]uuid.UUID{"a": {ids["a"]}, "b": {ids["b"]}, "": {ids["b"], ids["a"]}, "c": nil} {
		keys, err := d.ListKeys(t.Context(), project)
		var got []uuid.UUID
		for _, k := range keys {
			got = append(got, k.ID)
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("keys of %q: %v\n%s", project, err, diff)
		}
	}
	for project, id := range map[string]uuid.UUID{"b": ids["a"], "a": uuid.New()} {
		if err := d.RevokeKey(t.Context(), project, id); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("revoked by %s: %v", project, err)
		}
	}
	if n := d.count("select count(*) from dispatcher.api_keys where revoked_at is not null"); n != 0 {
		t.Errorf("%d keys were revoked", n)
	}
}

func TestAKeyThatCannotBeStoredIsABadRow(t *testing.T) {
	t.Parallel()
	d := open(t)
	for name, c := range map[string]struct {
		project, name string
		scopes        []string
	}{
		"project": {"No", "", []string{"read"}}, "name": {"a", strings.Repeat("x", 101), []string{"read"}},
		"no scope": {"a", "", []string{}}, "scope": {"a", "", []string{"root"}},
	} {
		if _, _, err := d.CreateKey(t.Context(), c.project, c.name, c.scopes, time.Time{}); store.Classify(err) != store.BadRow {
			t.Errorf("%s: %v", name, err)
		}
	}
}
