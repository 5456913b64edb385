// Package app wires a process from a configuration: the one place that knows
// every other package. It runs inside a test as it does in production.
package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/hooks"
	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/stream"
	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

// Mode says which parts of the service a process is.
type Mode string

// The modes.
const (
	ModeAll    Mode = "all"    // API and workers
	ModeAPI    Mode = "api"    // accepts and shows; sends nothing
	ModeWorker Mode = "worker" // sends; serves health and metrics only
)

// Options are what a process is made of.
type Options struct {
	Config config.Config
	Mode   Mode // default ModeAll
	// Hold starts a worker that sends nothing, for a restored backup.
	Hold    bool
	Logger  *slog.Logger // default discards
	Version string
	// Listener, if not nil, is listened on in place of http.listen. Run closes it.
	Listener net.Listener
}

// App is one process of the service.
type App struct {
	o          Options
	log        *slog.Logger
	store      *store.Store
	dispatcher *dispatch.Dispatcher
	member     *resilience.Member
	pacer      *resilience.Pacer
	metrics    *telemetry.Metrics
	guard      *panics.Guard
	api        *httpapi.API
	callers    *callers
	events     *stream.Hub
	hooks      *hooks.Service
	links      *ackLinks
	listener   net.Listener
	draining   atomic.Bool
	schemaSeen atomic.Bool
	current    atomic.Pointer[dispatch.Registry]
}

// New makes the process and takes its address, so that a busy port is known at
// once. It does not wait for the database. The caller must call Run, which also
// gives everything back.
func New(o Options) (_ *App, err error) {
	if o.Mode == "" {
		o.Mode = ModeAll
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	a := &App{o: o, log: o.Logger, metrics: telemetry.New(o.Version)}
	a.guard = panics.New(a.log, a.metrics.Panicked)
	a.store, err = store.Open(context.Background(), o.Config.Database.URL.Reveal(), store.Options{
		MaxConnections: o.Config.Database.MaxConnections, SuppressionsChanged: a.countSuppressions,
	})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			a.store.Close()
		}
	}()
	a.links = newAckLinks(a.store, o.Config.HTTP.PublicURL)
	registry, err := a.buildRegistry(o.Config)
	if err != nil {
		return nil, err
	}
	a.current.Store(registry)
	if a.listener, err = listen(o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = a.listener.Close()
		}
	}()
	node := uuid.New()
	a.pacer = resilience.NewPacer(resilience.LimiterConfig{Source: a.store, Prefix: "pace/", Report: a.reportPacing})
	a.member = resilience.NewMember(a.store.Scopes(node), rand.Float64)
	a.dispatcher, err = dispatch.New(a.store, dispatch.Config{
		Node: node, Registry: registry, PublicURL: string(o.Config.HTTP.PublicURL), Links: a.links, Admission: dispatch.NewCluster(a.member, a.pacer), Metrics: a.metrics, Logger: o.Logger, Guard: a.guard,
		Work: o.Mode != ModeAPI, Hold: o.Hold, SoftStop: o.Config.HTTP.ShutdownTimeout,
		KeepFinal: o.Config.Retention.Final, KeepKeys: o.Config.Retention.IdempotencyKeys,
	})
	if err != nil {
		return nil, err
	}
	a.member.SetAlternatives(func(scope string) []string { return a.dispatcher.Registry().Alternatives(scope) })
	a.addAccounts(registry)
	a.metrics.CollectQueues(a.queues)
	a.events = stream.New(a.store, stream.Config{Log: o.Logger, Guard: a.guard})
	a.callers = newCallers(a.store, a.metrics, o.Logger, a.guard)
	a.member.SetNodes(a.callers.liveNodes)
	a.hooks = a.newHooks()
	a.api = httpapi.New(a.apiConfig())
	return a, nil
}

func listen(o Options) (net.Listener, error) {
	if o.Listener != nil {
		return o.Listener, nil
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", o.Config.HTTP.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return l, nil
}

// Addr is the address that the API listens on, with its real port.
func (a *App) Addr() net.Addr { return a.listener.Addr() }

// Guard is what the process's panics are told to, for those who run it inside
// theirs.
func (a *App) Guard() *panics.Guard { return a.guard }

// Store is the process's database, for those who run it inside theirs.
func (a *App) Store() *store.Store { return a.store }

// Run works until ctx ends, then answers "not ready", stops listening, lets
// calls under way finish, and returns when everything is down.
func (a *App) Run(ctx context.Context) error {
	defer a.store.Close()
	h := a.o.Config.HTTP
	server := httpapi.NewServer(a.handler(), httpapi.Limits{Read: h.ReadTimeout, Write: h.WriteTimeout, Idle: h.IdleTimeout}, a.log)
	server.RegisterOnShutdown(a.events.Close) // an open stream would hold up the end
	// Workers outlive the API, since a request in its last moments needs them.
	workCtx, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	failed, fail := context.WithCancelCause(ctx)
	defer fail(nil)

	var parts sync.WaitGroup
	parts.Go(func() {
		if err := server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
			fail(fmt.Errorf("serve: %w", err))
		}
	})
	parts.Go(func() {
		if err := a.dispatcher.Run(workCtx); err != nil {
			fail(err)
		}
	})
	parts.Go(func() { a.watchBreakers(workCtx) })
	if a.o.Mode != ModeAPI {
		parts.Go(func() { a.watchHeld(workCtx) })
		parts.Go(func() { a.hooks.Run(workCtx) })
	}
	scopes := dispatch.Scopes{Member: a.member, Store: a.store, Logger: a.log, Guard: a.guard}
	parts.Go(func() { scopes.Run(workCtx) })
	parts.Go(func() { a.guard.Keep(workCtx, "pace calls", a.pacer.Run) })
	parts.Go(func() { a.callers.run(workCtx) })
	parts.Go(func() { a.events.Run(workCtx) })
	a.log.InfoContext(ctx, "started", slog.String("listen", a.Addr().String()), slog.String("mode", string(a.o.Mode)),
		slog.String("version", a.o.Version), slog.String("node", a.dispatcher.Node().String()), slog.Bool("hold", a.o.Hold))
	<-failed.Done()

	err := a.drain(ctx, server)
	stopWork()
	parts.Wait()
	a.closeProviders(a.current.Load())
	if cause := context.Cause(failed); cause != nil && !errors.Is(cause, context.Canceled) && ctx.Err() == nil {
		err = errors.Join(cause, err)
	}
	a.log.InfoContext(context.WithoutCancel(ctx), "stopped")
	return err
}

// drain stops the API: first it says that it is not ready, then it finishes what
// it has.
func (a *App) drain(ctx context.Context, server *http.Server) error {
	a.draining.Store(true)
	ctx = context.WithoutCancel(ctx)
	a.log.InfoContext(ctx, "stopping")
	if delay := a.o.Config.HTTP.DrainDelay; delay > 0 {
		<-time.After(delay)
	}
	ctx, cancel := context.WithTimeout(ctx, a.o.Config.HTTP.ShutdownTimeout)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close()
		return fmt.Errorf("stop the API: %w", err)
	}
	return nil
}

// Reload puts another configuration's accounts into effect, for calls that start
// from now on. Everything else of it needs a restart. With an error nothing has
// changed.
func (a *App) Reload(c config.Config) error {
	registry, err := a.buildRegistry(c)
	if err != nil {
		return err
	}
	a.addAccounts(registry)
	a.dispatcher.SetRegistry(registry)
	old := a.current.Swap(registry)
	// Calls under way keep what they use; idle connections are what is closed.
	a.closeProviders(old)
	return nil
}

// closeProviders gives back what providers keep, such as idle connections.
func (a *App) closeProviders(r *dispatch.Registry) {
	for _, account := range r.Accounts() {
		if c, ok := account.Provider.(interface{ Close() }); ok {
			c.Close()
		}
	}
}

func (a *App) addAccounts(r *dispatch.Registry) {
	for _, info := range r.Accounts() {
		a.metrics.AddAccount(info.Provider.Info().Account)
	}
}
