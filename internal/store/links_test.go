package store_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestEveryDatabaseSignsLinksWithAKeyOfItsOwn(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	key := linkKey(t, url)
	if !bytes.Equal(key, linkKey(t, url)) {
		t.Error("two processes of one database have two keys")
	}
	other := pgtest.Empty(t)
	if err := store.Migrate(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(key, linkKey(t, other)) {
		t.Error("two databases have one key")
	}
}

func linkKey(t *testing.T, url string) []byte {
	t.Helper()
	key, err := openAt(t, url).LinkKey(t.Context())
	if err != nil || len(key) != 32 {
		t.Fatalf("the key has %d bytes, %v", len(key), err)
	}
	return key
}

func TestWhoseANotificationIs(t *testing.T) {
	t.Parallel()
	d := open(t)
	n := row(func(a *store.Acceptance) { a.Notification.Project = "acme" })
	d.accept(n)
	if project, err := d.ProjectOf(t.Context(), n.Notification.ID); project != "acme" || err != nil {
		t.Errorf("got %q, %v", project, err)
	}
	if _, err := d.ProjectOf(t.Context(), uuid.New()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}
