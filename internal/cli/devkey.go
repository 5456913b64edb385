package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// devProject is the project of the key that dev makes.
const devProject = "default"

// devKey returns the API key in a file if the database knows it, and else makes
// one with every scope and writes it there.
func devKey(ctx context.Context, database, path string) (string, error) {
	s, err := store.Open(ctx, database, store.Options{MaxConnections: 2, Name: "dispatcher-dev"})
	if err != nil {
		return "", err
	}
	defer s.Close()
	if b, err := os.ReadFile(path); err == nil { //nolint:gosec // the folder is the user's choice
		key := strings.TrimSpace(string(b))
		known, err := s.Authenticate(ctx, key)
		switch {
		case err == nil && len(known.Scopes) == 3:
			return key, nil
		case err != nil && !errors.Is(err, store.ErrNotFound):
			return "", err
		}
	}
	key, _, err := s.CreateKey(ctx, devProject, "dev", []string{"send", "read", "admin"}, time.Time{})
	if err != nil {
		return "", err
	}
	if err := replaceFile(path, []byte(key+"\n")); err != nil {
		return "", fmt.Errorf("write key: %w", err)
	}
	return key, nil
}
