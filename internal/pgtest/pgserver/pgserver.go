// Package pgserver finds or starts the PostgreSQL server that tests use.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/notification-dispatcher/dispatcher/internal/localpg"
)

const (
	// URLVariable names a running server, whose user may create databases.
	URLVariable = "TEST_DATABASE_URL"
	// ChoiceVariable set to "docker" insists on a container.
	ChoiceVariable = "PGTEST"
)

// ErrNone says that this machine offers no server. Its message tells a person
// what to do.
var ErrNone = errors.New("no PostgreSQL for tests")

// Server is a server for tests.
type Server struct {
	// URL connects to a database of the server as a user who may create others.
	URL string
	end func() error
}

// Stop ends the server if [Start] started it. It may be called again.
func (s *Server) Stop() error {
	if s.end == nil {
		return nil
	}
	return s.end()
}

// Start returns the first of: the server that TEST_DATABASE_URL names, a
// throwaway one from PostgreSQL programs of this machine, a throwaway one in a
// container. PGTEST=docker takes the container at once. Where none of them can be
// had, the error wraps [ErrNone].
func Start(ctx context.Context) (*Server, error) {
	switch choice := os.Getenv(ChoiceVariable); choice {
	case "":
	case "docker":
		return startContainer(ctx)
	default:
		return nil, fmt.Errorf("%s=%s: must be docker or unset", ChoiceVariable, choice)
	}
	if url := os.Getenv(URLVariable); url != "" {
		return &Server{URL: url}, nil
	}
	cluster, err := localpg.Start(ctx, localpg.Config{})
	if err == nil {
		return &Server{URL: cluster.URL("postgres"), end: cluster.Stop}, nil
	}
	// Programs that do not work are to be mended, not passed over.
	if !errors.Is(err, localpg.ErrNoPrograms) {
		return nil, err
	}
	server, containerErr := startContainer(ctx)
	if containerErr != nil {
		return nil, fmt.Errorf("%w: %w; set %s to its URL; or run Docker: %w", ErrNone, err, URLVariable, containerErr)
	}
	return server, nil
}
