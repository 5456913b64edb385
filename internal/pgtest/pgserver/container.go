package pgserver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"
)

// Image is the server that containers run.
const Image = "postgres:17-alpine"

// containerLimit bounds the start of a container, the image's pull included.
const containerLimit = 3 * time.Minute

// startContainer starts a throwaway server whose data is in memory.
func startContainer(ctx context.Context) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, containerLimit)
	defer cancel()
	if err := dockerAnswers(ctx); err != nil {
		return nil, fmt.Errorf("docker does not answer: %w", err)
	}
	container, err := postgres.Run(ctx, Image,
		testcontainers.WithLogger(silent{}),
		postgres.BasicWaitStrategies(),
		testcontainers.WithTmpfs(map[string]string{"/var/lib/postgresql/data": "rw"}),
		testcontainers.WithCmd("postgres", "-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "full_page_writes=off",
			"-c", "autovacuum=off", "-c", "jit=off", "-c", "max_connections=300"),
	)
	end := func() error {
		if container == nil {
			return nil
		}
		return testcontainers.TerminateContainer(container)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start a PostgreSQL container: %w", err), end())
	}
	url, err := container.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find the PostgreSQL container: %w", err), end())
	}
	return &Server{URL: url, end: end}, nil
}

func dockerAnswers(ctx context.Context) (err error) {
	// The library panics where it cannot make sense of the environment.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("testcontainers: %v", r)
		}
	}()
	provider, err := testcontainers.ProviderDefault.GetProvider(testcontainers.WithLogger(silent{}))
	if err != nil {
		return err
	}
	return errors.Join(provider.Health(ctx), provider.Close())
}

// silent drops Testcontainers' progress lines, which would litter test output.
type silent struct{}

func (silent) Printf(string, ...any) {}
