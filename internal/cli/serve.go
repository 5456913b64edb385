package cli

import (
	"context"
	"flag"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/notification-dispatcher/dispatcher/internal/app"
	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

func serveCommand() command {
	return command{
		name: "serve", summary: "run the service: the API, the workers, or both",
		details: `Any number of processes work on one database. SIGHUP reads the configuration again and takes over the
accounts with their credentials; other settings need a restart. SIGTERM and SIGINT stop: requests and calls in flight
end first. A second one exits at once.`,
		setup: setupServe,
	}
}

// serveFlags are the flags of serve.
type serveFlags struct {
	database      databaseFlags
	listen, mode  *string
	migrate, hold *bool
}

func setupServe(f *flag.FlagSet) action {
	s := serveFlags{
		database: newDatabaseFlags(f),
		listen:   f.String("listen", "", "the `address` to listen on (default of http.listen: :8080)"),
		mode:     f.String("mode", "all", "`what` to run: all, api or worker"),
		migrate:  f.Bool("migrate", false, "bring the database to this version's schema first"),
		hold:     f.Bool("hold", false, "accept and show, but send nothing: for a restored backup"),
	}
	return func(ctx context.Context, e *env, _ []string) error { return s.run(ctx, e) }
}

// settings are the flags that stand for settings of the configuration.
func (s serveFlags) settings() map[string]string {
	out := map[string]string{}
	if *s.listen != "" {
		out["http.listen"] = *s.listen
	}
	if *s.database.url != "" {
		out["database.url"] = *s.database.url
	}
	return out
}

func (s serveFlags) run(ctx context.Context, e *env) error {
	mode := app.Mode(*s.mode)
	switch mode {
	case app.ModeAll, app.ModeAPI, app.ModeWorker:
	default:
		return usagef("--mode must be all, api or worker")
	}
	c, problems := e.check(*s.database.file, s.settings())
	if err := problems.Err(); err != nil {
		return err
	}
	log := newLogger(e, c)
	if *s.migrate {
		waiting := func(blockers string) {
			log.WarnContext(ctx, "migration waits for a lock", slog.String("held_by", blockers))
		}
		if err := (store.Migration{Waiting: waiting}).Up(ctx, c.Database.URL.Reveal()); err != nil {
			return err
		}
	}
	a, err := app.New(app.Options{Config: c, Mode: mode, Hold: *s.hold, Logger: log, Version: e.version})
	if err != nil {
		return err
	}
	defer s.reloadOnHangup(e, a, log)()
	return a.Run(ctx)
}

func newLogger(e *env, c config.Config) *slog.Logger {
	return telemetry.NewLogger(e.stderr, slog.Level(c.Log.Level), string(c.Log.Format))
}

// reload reads the configuration again. Its problems are in the log.
func (s serveFlags) reload(e *env, a *app.App, log *slog.Logger) error {
	c, problems := e.check(*s.database.file, s.settings())
	for _, p := range problems {
		log.Error("configuration not reloaded", slog.String("path", p.Path), slog.String("problem", p.Text))
	}
	if len(problems) > 0 {
		return nil
	}
	if err := a.Reload(c); err != nil {
		return err
	}
	log.Info("configuration reloaded", slog.Int("accounts", len(c.Accounts())))
	return nil
}

// reloadOnHangup reads the configuration again at each SIGHUP, until the function
// that it returns is called. A configuration with a problem changes nothing.
func (s serveFlags) reloadOnHangup(e *env, a *app.App, log *slog.Logger) (stop func()) {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range hangups {
			err := a.Guard().Do(context.Background(), panics.Background, "reload", func() error { return s.reload(e, a, log) })
			if err != nil {
				log.Error("configuration not reloaded", slog.Any("error", err))
			}
		}
	}()
	return func() {
		signal.Stop(hangups)
		close(hangups)
		<-done
	}
}
