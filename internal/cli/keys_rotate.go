package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func keysRotate(f *flag.FlagSet) action {
	database := newDatabaseFlags(f)
	overlap := f.Duration("overlap", 24*time.Hour, "how `long` the old key still works, up to 168h")
	lifetime := f.Duration("expires-in", 0, "how `long` the new key is good for (default as long as the old one was made for)")
	asJSON := f.Bool("json", false, "print JSON")
	return func(ctx context.Context, e *env, args []string) error {
		if len(args) != 1 {
			return usagef("keys rotate takes the id of one key; see dispatcher keys list")
		}
		id, err := uuid.Parse(args[0])
		switch {
		case err != nil:
			return usagef("%q is not the id of a key; see dispatcher keys list", args[0])
		case *overlap < 0 || *overlap > store.MaxKeyOverlap:
			return usagef("--overlap must be 0s to 168h")
		case *lifetime < 0:
			return usagef("--expires-in must not be negative")
		}
		return withStore(ctx, e, database, func(s *store.Store) error { return rotate(ctx, e, s, id, *overlap, *lifetime, *asJSON) })
	}
}

func rotate(ctx context.Context, e *env, s *store.Store, id uuid.UUID, overlap, lifetime time.Duration, asJSON bool) error {
	var expires time.Time
	if lifetime > 0 {
		expires = time.Now().Add(lifetime)
	}
	text, made, old, err := s.RotateKey(ctx, "", id, overlap, expires)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("there is no key %s", id)
	case errors.Is(err, store.ErrKeyEnded):
		return fmt.Errorf("key %s is revoked or has expired: create another", id)
	case err != nil:
		return err
	case asJSON:
		v := viewKey(made)
		v.Key = text
		return writeJSON(e.stdout, v)
	}
	printTo(e.stderr, "Key %s takes the place of %s, which works until %s. It cannot be shown again.\n",
		made.ID, old.ID, old.ExpiresAt.UTC().Format(time.RFC3339))
	_, err = fmt.Fprintln(e.stdout, text)
	return err
}
