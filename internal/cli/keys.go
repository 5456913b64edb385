package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func keysCommand() command {
	return command{
		name: "keys", summary: "create, list, limit, rotate and revoke API keys, in the database",
		sub: []command{
			{
				name: "create", summary: "make an API key and print it, once",
				details: "The key itself goes to standard output. It is stored as a hash only and cannot be shown again.",
				setup:   keysCreate,
			},
			{name: "list", summary: "list API keys", setup: keysList},
			{
				name: "rotate", args: "ID", summary: "replace an API key, and let the old one work for a while",
				details: "The new key has the name, scopes and limits of the old one. It goes to standard output and cannot be shown again.",
				setup:   keysRotate,
			},
			{
				name: "limit", args: "ID", summary: "give an API key limits of its own, or the configured ones back",
				details: `A limit is a rate and how many may come at once: 100/s,2000, or 30/m,10. Without the second it is what comes back
in ten seconds. "default" takes the key's own limit back. Every process notices within a second.`,
				setup: keysLimit,
			},
			{
				name: "revoke", args: "ID", summary: "end an API key",
				details: "Every process notices within a second. Revoking a key twice is no error.",
				setup:   keysRevoke,
			},
		},
	}
}

// keyView is an API key as it is printed.
type keyView struct {
	ID         uuid.UUID                      `json:"id"`
	Project    string                         `json:"project"`
	Name       string                         `json:"name"`
	Scopes     []string                       `json:"scopes"`
	Hint       string                         `json:"hint"`
	Key        string                         `json:"key,omitzero"` // only when it is made
	CreatedAt  time.Time                      `json:"created_at"`
	ExpiresAt  time.Time                      `json:"expires_at,omitzero"`
	RevokedAt  time.Time                      `json:"revoked_at,omitzero"`
	LastUsedAt time.Time                      `json:"last_used_at,omitzero"`
	Limits     map[store.RouteClass]limitView `json:"limits,omitempty"`

	LastRefusedAt   time.Time `json:"last_refused_at,omitzero"`
	RefusedLastHour int64     `json:"refused_last_hour,omitzero"`
}

func viewKey(k store.APIKey) keyView {
	return keyView{
		ID: k.ID, Project: k.Project, Name: k.Name, Scopes: k.Scopes, Hint: k.Hint,
		CreatedAt: k.CreatedAt.UTC(), ExpiresAt: k.ExpiresAt.UTC(), RevokedAt: k.RevokedAt.UTC(), LastUsedAt: k.LastUsedAt.UTC(),
		Limits: viewLimits(k.Limits), LastRefusedAt: k.LastRefusedAt.UTC(), RefusedLastHour: k.RefusedLastHour,
	}
}

// withStore opens the database for one command.
func withStore(ctx context.Context, e *env, d databaseFlags, do func(*store.Store) error) error {
	url, err := d.resolve(e)
	if err != nil {
		return err
	}
	s, err := store.Open(ctx, url, store.Options{MaxConnections: 2, Name: "dispatcher-cli"})
	if err != nil {
		return err
	}
	defer s.Close()
	return do(s)
}

// newKey is what keys create was asked for.
type newKey struct {
	project, name string
	scopes        []string
	lifetime      time.Duration
}

var projectName = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)

func (k newKey) check() error {
	known := []string{"send", "read", "admin"}
	switch {
	case !projectName.MatchString(k.project):
		return usagef(`--project must be 1 to 63 lower-case letters, digits, "-" and "_"`)
	case len(k.name) > 100:
		return usagef("--name must be at most 100 characters")
	case slices.ContainsFunc(k.scopes, func(s string) bool { return !slices.Contains(known, s) }):
		return usagef("--scopes must be some of send, read, admin")
	case k.lifetime < 0:
		return usagef("--expires-in must not be negative")
	}
	return nil
}

func keysCreate(f *flag.FlagSet) action {
	database := newDatabaseFlags(f)
	project := f.String("project", "default", "the `project` that the key belongs to")
	name := f.String("name", "", "a `name` to know it by")
	scopes := f.String("scopes", "send,read", "what it may do: `some` of send, read, admin")
	lifetime := f.Duration("expires-in", 0, "how `long` it is good for (default for ever)")
	asJSON := f.Bool("json", false, "print JSON")
	return func(ctx context.Context, e *env, _ []string) error {
		k := newKey{project: *project, name: *name, scopes: strings.Split(*scopes, ","), lifetime: *lifetime}
		if err := k.check(); err != nil {
			return err
		}
		return withStore(ctx, e, database, func(s *store.Store) error { return k.create(ctx, e, s, *asJSON) })
	}
}

func (k newKey) create(ctx context.Context, e *env, s *store.Store, asJSON bool) error {
	var expires time.Time
	if k.lifetime > 0 {
		expires = time.Now().Add(k.lifetime)
	}
	text, key, err := s.CreateKey(ctx, k.project, k.name, k.scopes, expires)
	if err != nil {
		return err
	}
	if asJSON {
		v := viewKey(key)
		v.Key = text
		return writeJSON(e.stdout, v)
	}
	printTo(e.stderr, "Key %s of project %s, for %s. It cannot be shown again.\n", key.ID, key.Project, strings.Join(key.Scopes, ", "))
	_, err = fmt.Fprintln(e.stdout, text)
	return err
}

func keysList(f *flag.FlagSet) action {
	database := newDatabaseFlags(f)
	project := f.String("project", "", "only those of a `project`")
	asJSON := f.Bool("json", false, "print JSON")
	return func(ctx context.Context, e *env, _ []string) error {
		return withStore(ctx, e, database, func(s *store.Store) error {
			keys, err := s.ListKeys(ctx, *project)
			if err != nil {
				return err
			}
			return printKeys(e, keys, *asJSON)
		})
	}
}

func printKeys(e *env, keys []store.APIKey, asJSON bool) error {
	if asJSON {
		out := struct {
			Items []keyView `json:"items"`
		}{Items: make([]keyView, len(keys))}
		for i, k := range keys {
			out.Items[i] = viewKey(k)
		}
		return writeJSON(e.stdout, out)
	}
	rows := [][]string{{"ID", "PROJECT", "NAME", "KEY", "SCOPES", "CREATED", "LAST USED", "STATE", "LIMITS", "REFUSED"}}
	for _, k := range keys {
		rows = append(rows, []string{
			k.ID.String(), k.Project, k.Name, k.Hint + "…", strings.Join(k.Scopes, ","),
			day(k.CreatedAt), day(k.LastUsedAt), keyState(k, time.Now()), limitsText(k.Limits), refusedText(k),
		})
	}
	table(e.stdout, rows)
	return nil
}

func day(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.DateOnly)
}

func keyState(k store.APIKey, now time.Time) string {
	switch {
	case !k.RevokedAt.IsZero():
		return "revoked " + day(k.RevokedAt)
	case k.ExpiresAt.IsZero():
		return "live"
	case now.Before(k.ExpiresAt):
		return "live until " + day(k.ExpiresAt)
	}
	return "expired " + day(k.ExpiresAt)
}

func keysRevoke(f *flag.FlagSet) action {
	database := newDatabaseFlags(f)
	return func(ctx context.Context, e *env, args []string) error {
		if len(args) != 1 {
			return usagef("keys revoke takes the id of one key; see dispatcher keys list")
		}
		id, err := uuid.Parse(args[0])
		if err != nil {
			return usagef("%q is not the id of a key; see dispatcher keys list", args[0])
		}
		return withStore(ctx, e, database, func(s *store.Store) error {
			err := s.RevokeKey(ctx, "", id)
			if errors.Is(err, store.ErrNotFound) {
				return fmt.Errorf("there is no key %s", id)
			}
			if err == nil {
				printTo(e.stdout, "revoked %s\n", id)
			}
			return err
		})
	}
}
