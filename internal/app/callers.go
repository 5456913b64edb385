package app

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

// Intervals of what is done for the limits on callers.
const (
	refusalsInterval = time.Second
	nodesInterval    = 5 * time.Second
	pruneInterval    = time.Minute
	pruneBatch       = 1000
	// maxLease is large, since one key may send thousands of requests a second, and
	// they wait for the database each time that what is leased has been spent.
	maxLease = 512
	// maxRefusals bounds the keys whose refusals wait for the database.
	maxRefusals = 10_000
)

// limitStore is what the limits keep in the database.
type limitStore interface {
	resilience.TokenSource
	AddRefusals(ctx context.Context, refusals []store.Refusals) error
	LiveNodes(ctx context.Context) (int, error)
	PruneRateLimits(ctx context.Context, limit int) (int, error)
	PruneRefusals(ctx context.Context, limit int) (int, error)
}

// callers limits what callers ask for, and notes what is refused to them.
type callers struct {
	store   limitStore
	metrics *telemetry.Metrics
	log     *slog.Logger
	guard   *panics.Guard
	keys    *resilience.Limiter
	nodes   atomic.Int64 // that live; they share the limits while the database is away

	mu      sync.Mutex
	refused map[refusal]int64 // not written yet
}

type refusal struct {
	key   uuid.UUID
	class store.RouteClass
}

func newCallers(s limitStore, metrics *telemetry.Metrics, log *slog.Logger, guard *panics.Guard) *callers {
	c := &callers{store: s, metrics: metrics, log: log, guard: guard, refused: map[refusal]int64{}}
	c.keys = resilience.NewLimiter(resilience.LimiterConfig{
		Source: s, Prefix: "api/", Lease: resilience.LeaseConfig{Max: maxLease}, Nodes: c.liveNodes, Report: c.report,
	})
	metrics.CollectLimits(func() telemetry.Limits {
		stats := c.keys.Stats()
		return telemetry.Limits{Local: stats.Local, Exchanges: stats.Statements, Failures: stats.Failures}
	})
	return c
}

// liveNodes is how many nodes live, as last counted; 0 before that.
func (c *callers) liveNodes() int { return int(c.nodes.Load()) }

// limits are those of a configuration.
func (c *callers) limits(h config.HTTP) *httpapi.RateLimits {
	return &httpapi.RateLimits{
		Keys: c.keys,
		Classes: map[store.RouteClass]resilience.Limit{
			store.ClassWrite: h.Limits.Write.Limit(), store.ClassRead: h.Limits.Read.Limit(), store.ClassAdmin: h.Limits.Admin.Limit(),
		},
		Addresses: resilience.NewLimiter(resilience.LimiterConfig{}), Address: h.Limits.Unauthenticated.Limit(),
		TrustedProxies: h.TrustedProxies.Prefixes(), Refused: c.note,
	}
}

// report tells when limits are kept to by this process alone, because the
// database does not answer, and when they are shared again.
func (c *callers) report(err error) {
	if err != nil {
		c.log.Warn("limits on callers are kept to by this process alone", slog.Any("error", err))
		return
	}
	c.log.Info("limits on callers are shared again")
}

// note counts what was refused, for the metrics and for the key's row.
func (c *callers) note(class store.RouteClass, key *store.APIKey, count int) {
	c.metrics.Limited(string(class), count)
	if key == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := refusal{key.ID, class}
	if _, ok := c.refused[of]; ok || len(c.refused) < maxRefusals {
		c.refused[of] += int64(count)
	}
}

// run works until ctx ends.
func (c *callers) run(ctx context.Context) {
	var parts sync.WaitGroup
	parts.Go(func() { c.guard.Keep(ctx, "share limits", c.keys.Run) })
	parts.Go(func() { c.every(ctx, refusalsInterval, "count refusals", c.flush) })
	parts.Go(func() { c.every(ctx, nodesInterval, "count nodes", c.countNodes) })
	parts.Go(func() { c.every(ctx, pruneInterval, "prune limits", c.prune) })
	parts.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := c.guard.Do(last, panics.Background, "count refusals", func() error { return c.flush(last) }); err != nil {
		c.log.WarnContext(last, "the last refusals are not counted", slog.Any("error", err))
	}
}

// every does something at once and then at intervals. It logs when that begins to
// fail, not each time.
func (c *callers) every(ctx context.Context, interval time.Duration, task string, do func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	failing := false
	for {
		err := c.guard.Round(ctx, task, do)
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failing {
			c.log.WarnContext(ctx, "failed and will be tried again", slog.String("task", task), slog.Any("error", err))
		}
		failing = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// flush writes what was refused since the last time, in one statement. What
// cannot be written waits for the next one; where the database took it and its
// answer was lost, it counts twice.
func (c *callers) flush(ctx context.Context) error {
	c.mu.Lock()
	counts := c.refused
	c.refused = map[refusal]int64{}
	c.mu.Unlock()
	if len(counts) == 0 {
		return nil
	}
	rows := make([]store.Refusals, 0, len(counts))
	for of, n := range counts {
		rows = append(rows, store.Refusals{Key: of.key, Class: of.class, Count: n})
	}
	written := false
	defer func() {
		if !written {
			c.putBack(counts)
		}
	}()
	err := c.store.AddRefusals(ctx, rows)
	written = err == nil
	return err
}

func (c *callers) putBack(counts map[refusal]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for of, n := range counts {
		c.refused[of] += n
	}
}

func (c *callers) countNodes(ctx context.Context) error {
	n, err := c.store.LiveNodes(ctx)
	if err == nil { // else the last count is the best there is
		c.nodes.Store(int64(n))
	}
	return err
}

// prune forgets limits that are whole again and refusals that are old.
func (c *callers) prune(ctx context.Context) error {
	for _, step := range []func(context.Context, int) (int, error){c.store.PruneRateLimits, c.store.PruneRefusals} {
		for {
			n, err := step(ctx, pruneBatch)
			if err != nil {
				return err
			}
			if n < pruneBatch {
				break
			}
		}
	}
	return nil
}
