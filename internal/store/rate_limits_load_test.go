package store_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// timed is a source that remembers its slowest exchange.
type timed struct {
	resilience.TokenSource

	mu      sync.Mutex
	slowest time.Duration
}

func (s *timed) TakeTokens(ctx context.Context, asks []resilience.Ask) ([]resilience.Grant, error) {
	start := time.Now()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.slowest = max(s.slowest, time.Since(start))
	}()
	return s.TokenSource.TakeTokens(ctx, asks)
}

// span is between when a call asked and when it was let through.
type span struct{ from, to time.Time }

// worstExcess returns by how many calls the fullest window of all goes beyond
// burst + rate·(window + slack).
func worstExcess(calls []span, limit resilience.Limit, slack time.Duration) float64 {
	slices.SortFunc(calls, func(a, b span) int { return a.from.Compare(b.from) })
	worst := -float64(limit.Burst)
	for i, first := range calls {
		ends := make([]time.Time, 0, len(calls)-i)
		for _, c := range calls[i:] {
			ends = append(ends, c.to)
		}
		slices.SortFunc(ends, time.Time.Compare)
		for n, end := range ends {
			allowed := float64(limit.Burst) + limit.PerSecond*(end.Sub(first.from)+slack).Seconds()
			worst = max(worst, float64(n+1)-allowed)
		}
	}
	return worst
}

// cluster is some nodes that share one key of one database.
type cluster struct {
	limit    resilience.Limit
	limiters []*resilience.Limiter
	sources  []*timed

	mu      sync.Mutex
	offered int
	calls   []span
	locals  int
}

func newCluster(t *testing.T, nodes int, limit resilience.Limit) *cluster {
	t.Helper()
	c, url := &cluster{limit: limit}, pgtest.URL(t)
	for range nodes {
		pool, err := pgxpool.New(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		s := store.New(pool)
		t.Cleanup(s.Close)
		source := &timed{TokenSource: s}
		// A slow machine must not turn this into a test of local decisions.
		l := resilience.NewLimiter(resilience.LimiterConfig{Source: source, Prefix: "load/", Timeout: time.Minute})
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { l.Run(ctx) })
		t.Cleanup(run.Wait)
		t.Cleanup(cancel)
		c.limiters, c.sources = append(c.limiters, l), append(c.sources, source)
	}
	return c
}

// offer has some callers at every node ask once in every period for a while,
// one after the other.
func (c *cluster) offer(ctx context.Context, callers int, period, length time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	var all sync.WaitGroup
	for _, l := range c.limiters {
		for i := range callers {
			all.Go(func() { c.caller(ctx, l, period*time.Duration(i+1)/time.Duration(callers), period) })
		}
	}
	all.Wait()
}

func (c *cluster) caller(ctx context.Context, l *resilience.Limiter, first, period time.Duration) {
	tick := time.NewTicker(first)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Reset(period)
		}
		from := time.Now()
		d := l.Take(context.WithoutCancel(ctx), "key", c.limit, 1)
		to := time.Now()
		c.mu.Lock()
		c.offered++
		if d.OK {
			c.calls = append(c.calls, span{from, to})
		}
		if d.Local {
			c.locals++
		}
		c.mu.Unlock()
	}
}

func (c *cluster) statements() (n int64) {
	for _, l := range c.limiters {
		n += l.Stats().Statements
	}
	return n
}

// slack is for how long after it was leased a token was spent at most.
func (c *cluster) slack() time.Duration {
	slack := resilience.DefaultLeaseTTL
	for _, s := range c.sources {
		slack = max(slack, s.slowest+resilience.DefaultLeaseTTL/4)
	}
	return slack
}

func TestNodesTogetherKeepALimit(t *testing.T) {
	t.Parallel()
	for _, overload := range []int{1, 3, 10} {
		t.Run(fmt.Sprintf("offered %d times the rate", overload), func(t *testing.T) {
			t.Parallel()
			const nodes, callers, length = 4, 20, 1500 * time.Millisecond
			limit := resilience.Limit{PerSecond: 500, Burst: 100}
			c := newCluster(t, nodes, limit)
			start := time.Now()
			c.offer(t.Context(), callers, nodes*callers*time.Second/time.Duration(500*overload), length)
			bound := float64(limit.Burst) + limit.PerSecond*time.Since(start).Seconds()
			perCall := float64(c.statements()) / float64(c.offered)
			excess := worstExcess(c.calls, limit, c.slack())
			t.Logf("offered %d, let through %d (%.1f %% of the bound), %.3f statements a call, worst window %.1f beyond its bound, slack %v",
				c.offered, len(c.calls), 100*float64(len(c.calls))/bound, perCall, excess, c.slack())
			if c.locals > 0 {
				t.Fatalf("%d decisions were local", c.locals)
			}
			if excess > 1 {
				t.Errorf("a window let %.1f calls too many through", excess)
			}
			if overload >= 10 && perCall >= 0.25 {
				t.Errorf("%.2f statements a call, want less than 0.25", perCall)
			}
			if want := 0.5 * min(bound, float64(c.offered)); float64(len(c.calls)) < want {
				t.Errorf("let %d calls through, want at least %.0f", len(c.calls), want)
			}
		})
	}
}

func BenchmarkTakeTokens(b *testing.B) {
	s := store.New(pgtest.New(b))
	for _, keys := range []int{1, 25, 500} {
		b.Run(fmt.Sprintf("%d keys", keys), func(b *testing.B) {
			asks := make([]resilience.Ask, keys)
			for i := range asks {
				asks[i] = resilience.Ask{Key: fmt.Sprintf("bench/%d/%d", keys, i), Limit: resilience.Limit{PerSecond: 1000, Burst: 1000}, Want: 10, Least: 1}
			}
			b.ReportAllocs()
			for b.Loop() {
				take(b, s, asks...)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*keys), "ns/key")
		})
	}
}
