package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/app"
	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/localpg"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func devCommand() command {
	return command{
		name: "dev", summary: "run everything on this machine, with stand-ins for the providers",
		details: `It starts a private PostgreSQL from the programs that are installed here, the sandbox, and the service with
every channel pointed at it; it prints an API key and a request to begin with. The data stays in the folder of
--data; remove it to start empty.`,
		setup: setupDev,
	}
}

// devFlags are the flags of dev.
type devFlags struct{ listen, sandbox, smtp, data, databaseURL *string }

func setupDev(f *flag.FlagSet) action {
	d := devFlags{
		listen:      f.String("listen", "127.0.0.1:8080", "the API's `address`"),
		sandbox:     f.String("sandbox-listen", "127.0.0.1:8090", "the sandbox's HTTP `address`"),
		smtp:        f.String("smtp-listen", "127.0.0.1:8025", "the sandbox's SMTP `address`"),
		data:        f.String("data", ".dispatcher", "the `folder` for the database and the key"),
		databaseURL: f.String("database-url", "", "use the database at this `url` in place of a private one"),
	}
	return func(ctx context.Context, e *env, _ []string) error { return d.run(ctx, e) }
}

func (d devFlags) run(ctx context.Context, e *env) (err error) {
	if err := free("API's address", *d.listen, "--listen"); err != nil {
		return err
	}
	providers, err := openSandbox(e, sandboxAddresses{*d.sandbox, "--sandbox-listen", *d.smtp, "--smtp-listen"}, "")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, providers.Close()) }()
	if err := prepareFolder(*d.data); err != nil {
		return err
	}
	database, stop, err := d.database(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := store.Migrate(ctx, database); err != nil {
		return err
	}
	key, err := devKey(ctx, database, filepath.Join(*d.data, "key"))
	if err != nil {
		return err
	}
	databaseFile := filepath.Join(*d.data, "database")
	if err := replaceFile(databaseFile, []byte(database+"\n")); err != nil {
		return fmt.Errorf("write the database's URL: %w", err)
	}
	// The stand-ins outlive the service, whose last calls they answer.
	providers.Start(context.WithoutCancel(ctx))
	return d.serve(ctx, e, providers, database, welcome{
		program: calledAs(), sandbox: providers.HTTPURL(), smtp: providers.SMTPAddr(),
		key: key, keyFile: filepath.Join(*d.data, "key"), databaseFile: databaseFile,
	})
}

// database returns the URL of the database and what ends it.
func (d devFlags) database(ctx context.Context) (url string, stop func() error, err error) {
	if *d.databaseURL != "" {
		return *d.databaseURL, func() error { return nil }, nil
	}
	folder, err := filepath.Abs(filepath.Join(*d.data, "pg"))
	if err != nil {
		return "", nil, fmt.Errorf("find data folder: %w", err)
	}
	cluster, err := localpg.Start(ctx, localpg.Config{Folder: folder})
	if err != nil {
		return "", nil, err
	}
	return cluster.URL("postgres"), cluster.Stop, nil
}

// configuration has every channel pointed at the sandbox, and the service at api
// told by it.
func (d devFlags) configuration(e *env, providers *sandbox.Server, database, api string) (config.Config, error) {
	text, err := config.Example(config.ExampleOptions{Sandbox: providers.HTTPURL(), SMTP: providers.SMTPAddr(), PublicURL: api})
	if err != nil {
		return config.Config{}, err
	}
	return config.Parse(text, e.vars, map[string]string{"database.url": database, "http.listen": *d.listen})
}

// serve runs the service until ctx ends and says when it is ready.
func (d devFlags) serve(ctx context.Context, e *env, providers *sandbox.Server, database string, w welcome) error {
	// Its address has to be known, port included, before the configuration names it.
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *d.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer listener.Close() //nolint:errcheck // the service has closed it
	api := "http://" + dialable(listener.Addr().String())
	c, err := d.configuration(e, providers, database, api)
	if err != nil {
		return err
	}
	reportTo(providers, api)
	a, err := app.New(app.Options{Config: c, Mode: app.ModeAll, Logger: newLogger(e, c), Version: e.version, Listener: listener})
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	if err := awaitReady(ctx, api+"/readyz", ended); err != nil {
		return err
	}
	w.api = api
	w.print(e.stdout)
	return <-ended
}

// readyWithin bounds how long dev waits for its own service.
const readyWithin = 30 * time.Second

// awaitReady asks until the service is ready. A service that ends before that
// gives the error it ended with.
func awaitReady(ctx context.Context, url string, ended chan error) error {
	limit, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if healthcheck(limit, url) == nil {
			return nil
		}
		select {
		case err := <-ended:
			ended <- err
			return err
		case <-limit.Done():
			if ctx.Err() != nil {
				return <-ended
			}
			return fmt.Errorf("the service was not ready within %s; %s says no", readyWithin, url)
		case <-tick.C:
		}
	}
}

// prepareFolder makes the data folder, closed to others and to version control.
func prepareFolder(folder string) error {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return fmt.Errorf("the data folder cannot be made: %w", err)
	}
	ignore := filepath.Join(folder, ".gitignore")
	if err := os.WriteFile(ignore, []byte("*\n"), 0o600); err != nil {
		return fmt.Errorf("the data folder cannot be written: %w", err)
	}
	return nil
}
