package app

import (
	"context"
	"errors"
	"net/http"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func (a *App) apiConfig() httpapi.Config {
	checks := []httpapi.Check{
		{Name: "database", Do: a.store.Ready},
		{Name: "schema", Do: a.schemaCurrent},
		{Name: "draining", Do: func(context.Context) error {
			if a.draining.Load() {
				return errors.New("the process is stopping")
			}
			return nil
		}},
	}
	if a.o.Mode != ModeAPI {
		checks = append(checks, httpapi.Check{Name: "worker", Do: func(context.Context) error {
			if !a.dispatcher.Working() {
				return errors.New("the queue or the heartbeat does not run")
			}
			return nil
		}})
	}
	configured, settings := accounts{a.dispatcher, a.member}, a.o.Config
	return httpapi.Config{
		Accept: a.dispatcher, Store: a.store, Keys: a.store, Accounts: configured, Operations: operator{a.store, a.dispatcher, a.member}, Ready: checks,
		Retry: a.dispatcher, Plan: configured, Batches: a.store, Limits: a.callers.limits(settings.HTTP),
		MaxBatchBody: int64(settings.HTTP.MaxBatchBody), KeepKeys: settings.Retention.IdempotencyKeys,
		Webhooks: a.hooks, Suppressions: a.store, AckLinks: a.links, Receipts: a.newReceipts(), PublicURL: string(settings.HTTP.PublicURL),
		Events: &httpapi.Events{Hub: a.events, Store: a.store}, Metrics: a.metrics.Handler(), Observe: a.metrics.Request, Log: a.log, Guard: a.guard, MaxBody: int64(a.o.Config.HTTP.MaxBody),
	}
}

// handler is the API, or of a worker only what watches it.
func (a *App) handler() http.Handler {
	if a.o.Mode != ModeWorker {
		return a.api
	}
	mux := http.NewServeMux()
	for _, path := range []string{"GET /livez", "GET /readyz", "GET /metrics"} {
		mux.Handle(path, a.api)
	}
	return mux
}

// schemaCurrent reports whether the database has this build's schema. It does
// not go back, so that seeing it once is enough.
func (a *App) schemaCurrent(ctx context.Context) error {
	if a.schemaSeen.Load() {
		return nil
	}
	status, err := store.Status(ctx, a.o.Config.Database.URL.Reveal())
	if err != nil {
		return err
	}
	if !status.Current() {
		return errors.New("the schema is behind: run dispatcher migrate up")
	}
	a.schemaSeen.Store(true)
	return nil
}
