package resilience_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

var errAway = errors.New("away")

// source is a TokenSource that answers after a while, as a database would.
type source struct {
	t *testing.T

	mu    sync.Mutex
	delay time.Duration
	err   error
	keys  map[string]*resilience.GCRA
	calls [][]resilience.Ask
}

func (s *source) TakeTokens(ctx context.Context, asks []resilience.Ask) ([]resilience.Grant, error) {
	s.mu.Lock()
	delay := s.delay
	s.calls = append(s.calls, asks)
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(delay):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	grants, seen := make([]resilience.Grant, len(asks)), map[string]bool{}
	for i, a := range asks {
		if seen[a.Key] {
			s.t.Errorf("one exchange asks twice for %s", a.Key)
		}
		if a.Least < 1 || a.Want < a.Least || a.Want > a.Limit.Burst {
			s.t.Errorf("an ask for %d to %d of %d", a.Least, a.Want, a.Limit.Burst)
		}
		seen[a.Key] = true
		if s.keys[a.Key] == nil {
			s.keys[a.Key] = &resilience.GCRA{}
		}
		grants[i] = s.keys[a.Key].Take(a.Limit, a.Want, a.Least, time.Now())
	}
	return grants, nil
}

func (s *source) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// asks counts how often a key was asked for.
func (s *source) asks(key string) (n int) {
	for _, asks := range s.calls {
		for _, a := range asks {
			if a.Key == key {
				n++
			}
		}
	}
	return n
}

// limiting runs a test in a bubble with a limiter over a source that takes 5 ms.
func limiting(t *testing.T, cfg resilience.LimiterConfig, test func(t *testing.T, l *resilience.Limiter, s *source)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &source{t: t, delay: 5 * ms, keys: map[string]*resilience.GCRA{}}
		cfg.Source, cfg.Prefix = s, "test/"
		l := resilience.NewLimiter(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { l.Run(ctx) })
		synctest.Wait()
		test(t, l, s)
		cancel()
		run.Wait()
	})
}

var (
	hundred = resilience.Limit{PerSecond: 100, Burst: 100}
	slowly  = resilience.Limit{PerSecond: 1, Burst: 4}
)

// together makes n calls at once and counts those let through.
func together(t *testing.T, n int, take func(i int) resilience.Decision) (ok int) {
	t.Helper()
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if take(i).OK {
				mu.Lock()
				defer mu.Unlock()
				ok++
			}
		})
	}
	all.Wait()
	return ok
}

func TestLimiterSharesExchanges(t *testing.T) {
	t.Parallel()
	t.Run("between callers of one key", func(t *testing.T) {
		t.Parallel()
		limiting(t, resilience.LimiterConfig{}, func(t *testing.T, l *resilience.Limiter, s *source) {
			ok := together(t, 150, func(int) resilience.Decision { return l.Take(t.Context(), "k", hundred, 1) })
			if ok < 100 || ok > 102 {
				t.Errorf("%d of 150 were let through, want the burst", ok)
			}
			if len(s.calls) > 3 {
				t.Errorf("%d exchanges, want at most 3", len(s.calls))
			}
		})
	})
	t.Run("for all who wait, and for nobody who no longer does", func(t *testing.T) {
		t.Parallel()
		cfg := resilience.LimiterConfig{Lease: resilience.LeaseConfig{Max: 1}}
		limiting(t, cfg, func(t *testing.T, l *resilience.Limiter, s *source) {
			ok := together(t, 80, func(int) resilience.Decision { return l.Take(t.Context(), "k", hundred, 1) })
			if ok != 80 || len(s.calls) > 3 {
				t.Errorf("%d of 80 were let through with %d exchanges, want all with at most 3", ok, len(s.calls))
			}
			<-time.After(time.Minute)
			l.Take(t.Context(), "k", hundred, 1)
			if a := s.calls[len(s.calls)-1][0]; a.Want != 1 {
				t.Errorf("then one asks for %d, want 1", a.Want)
			}
		})
	})
	t.Run("between keys", func(t *testing.T) {
		t.Parallel()
		limiting(t, resilience.LimiterConfig{}, func(t *testing.T, l *resilience.Limiter, s *source) {
			ok := together(t, 1200, func(i int) resilience.Decision { return l.Take(t.Context(), strconv.Itoa(i), hundred, 1) })
			if ok != 1200 {
				t.Errorf("%d were let through, want all", ok)
			}
			if len(s.calls) > 5 {
				t.Errorf("%d exchanges, want at most 5", len(s.calls))
			}
			for _, asks := range s.calls {
				if len(asks) > 500 || !strings.HasPrefix(asks[0].Key, "test/") {
					t.Errorf("an exchange for %d keys, the first %q", len(asks), asks[0].Key)
				}
			}
		})
	})
	t.Run("and makes none while tokens are leased or a refusal is known", func(t *testing.T) {
		t.Parallel()
		limiting(t, resilience.LimiterConfig{}, func(t *testing.T, l *resilience.Limiter, s *source) {
			for range 50 {
				l.Take(t.Context(), "k", hundred, 1)
				l.Take(t.Context(), "slow", slowly, 1)
			}
			for _, key := range []string{"test/k", "test/slow"} {
				if n := s.asks(key); n > 8 {
					t.Errorf("%s was asked for %d times in 50 calls", key, n)
				}
			}
		})
	})
}

func TestLimiterDecides(t *testing.T) {
	t.Parallel()
	limiting(t, resilience.LimiterConfig{}, func(t *testing.T, l *resilience.Limiter, _ *source) {
		for _, step := range []struct {
			name  string
			after time.Duration
			cost  int
			want  resilience.Decision
		}{
			{"a first call", 0, 1, resilience.Decision{OK: true, Remaining: 3, Reset: time.Second}},
			{"no cost counts as one", 0, 0, resilience.Decision{OK: true, Remaining: 2, Reset: 1995 * ms}},
			{"a cost above what is left", 0, 3, resilience.Decision{Remaining: 2, Reset: 1990 * ms, RetryAfter: 990 * ms}},
			{"a cost above the burst", 0, 5, resilience.Decision{Remaining: 2, Reset: 1990 * ms, TooLarge: true}},
			{"the rest", 0, 2, resilience.Decision{OK: true, Remaining: 0, Reset: 3990 * ms}},
			{"one too many", 0, 1, resilience.Decision{Remaining: 0, Reset: 3985 * ms, RetryAfter: 985 * ms}},
			{"one that waited", 995 * ms, 1, resilience.Decision{OK: true, Remaining: 0, Reset: 3995 * ms}},
			{"a full key", time.Minute, 4, resilience.Decision{OK: true, Remaining: 0, Reset: 4 * time.Second}},
		} {
			<-time.After(step.after)
			step.want.Limit = slowly
			got := l.Take(t.Context(), "k", slowly, step.cost)
			// What a node tells is exact but for the time of its last exchange.
			if d := (got.Reset - step.want.Reset).Abs() + (got.RetryAfter - step.want.RetryAfter).Abs(); d > 40*ms {
				t.Errorf("%s: %+v, want %+v", step.name, got, step.want)
			}
			got.Reset, got.RetryAfter = step.want.Reset, step.want.RetryAfter
			if got != step.want {
				t.Errorf("%s: %+v, want %+v", step.name, got, step.want)
			}
		}
	})
}

func TestLimiterWithoutItsSource(t *testing.T) {
	t.Parallel()
	t.Run("enforces this node's part, and says once that it does and once that it need not", func(t *testing.T) {
		t.Parallel()
		var reports []error
		cfg := resilience.LimiterConfig{Nodes: func() int { return 4 }, Report: func(err error) { reports = append(reports, err) }}
		limiting(t, cfg, func(t *testing.T, l *resilience.Limiter, s *source) {
			s.fail(errAway)
			take := func() resilience.Decision { return l.Take(t.Context(), "k", hundred, 1) }
			if d := take(); !d.OK || !d.Local {
				t.Errorf("%+v, want a local leave", d)
			}
			if ok := together(t, 100, func(int) resilience.Decision { return take() }); ok != 24 {
				t.Errorf("%d more were let through, want 24", ok)
			}
			if len(s.calls) != 1 {
				t.Errorf("a failing source was called %d times", len(s.calls))
			}
			<-time.After(2 * time.Second)
			if ok := together(t, 100, func(int) resilience.Decision { return take() }); ok != 25 {
				t.Errorf("%d were let through after a rest, want 25", ok)
			}
			s.fail(nil)
			<-time.After(2 * time.Second)
			if d := take(); !d.OK || d.Local {
				t.Errorf("%+v, want a leave of the source", d)
			}
			synctest.Wait()
			if len(reports) != 2 || !errors.Is(reports[0], errAway) || reports[1] != nil {
				t.Errorf("reported %v, want the failure and its end", reports)
			}
		})
	})
	t.Run("lets a cost through that only the whole limit allows", func(t *testing.T) {
		t.Parallel()
		l := resilience.NewLimiter(resilience.LimiterConfig{Nodes: func() int { return 4 }})
		if d := l.Take(t.Context(), "k", hundred, 90); !d.OK {
			t.Errorf("%+v, want leave", d)
		}
		if d := l.Take(t.Context(), "k", hundred, 1); d.OK || d.RetryAfter <= 0 {
			t.Errorf("%+v, want a refusal", d)
		}
	})
	t.Run("waits no longer than its timeout", func(t *testing.T) {
		t.Parallel()
		limiting(t, resilience.LimiterConfig{}, func(t *testing.T, l *resilience.Limiter, s *source) {
			s.delay = time.Hour
			start := time.Now()
			d := l.Take(t.Context(), "k", hundred, 1)
			if age := time.Since(start); age != resilience.DefaultSourceTimeout || !d.OK || !d.Local {
				t.Errorf("after %v: %+v, want a local leave", age, d)
			}
		})
	})
	t.Run("waits no longer than its caller", func(t *testing.T) {
		t.Parallel()
		limiting(t, resilience.LimiterConfig{}, func(t *testing.T, l *resilience.Limiter, s *source) {
			s.delay = 100 * ms
			ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
			defer cancel()
			start := time.Now()
			d := l.Take(ctx, "k", hundred, 1)
			if age := time.Since(start); age != 10*ms || !d.Local {
				t.Errorf("after %v: %+v, want a local decision after 10 ms", age, d)
			}
		})
	})
	t.Run("decides by itself before and after it runs", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			s := &source{t: t, delay: time.Hour, keys: map[string]*resilience.GCRA{}}
			l := resilience.NewLimiter(resilience.LimiterConfig{Source: s, Timeout: 2 * time.Hour})
			if d := l.Take(t.Context(), "k", hundred, 1); !d.Local {
				t.Errorf("before: %+v, want a local decision", d)
			}
			ctx, cancel := context.WithCancel(t.Context())
			var all sync.WaitGroup
			all.Go(func() { l.Run(ctx) })
			synctest.Wait()
			all.Go(func() {
				if d := l.Take(t.Context(), "k", hundred, 1); !d.Local {
					t.Errorf("while it stops: %+v, want a local decision", d)
				}
			})
			synctest.Wait()
			start := time.Now()
			cancel()
			all.Wait()
			if d := l.Take(t.Context(), "k", hundred, 1); !d.Local || !time.Now().Equal(start) {
				t.Errorf("after %v: %+v, want a local decision at once", time.Since(start), d)
			}
		})
	})
}

func TestLimiterThatStopsKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		for range 50 { // what is ready first, the stop or the ask, is left to chance
			s := &source{t: t, delay: time.Hour, keys: map[string]*resilience.GCRA{}}
			l := resilience.NewLimiter(resilience.LimiterConfig{Source: s, Timeout: 2 * time.Hour})
			ctx, cancel := context.WithCancel(t.Context())
			var run sync.WaitGroup
			run.Go(func() { l.Run(ctx) })
			synctest.Wait()
			cancel()
			l.Take(t.Context(), "k", hundred, 1)
			run.Wait()
		}
		if age := time.Since(start); age != 0 {
			t.Errorf("waited %v", age)
		}
	})
}

func TestLimiterForgetsKeys(t *testing.T) {
	t.Parallel()
	t.Run("not used for longest, also while it asks for them", func(t *testing.T) {
		t.Parallel()
		limiting(t, resilience.LimiterConfig{MaxKeys: 64}, func(t *testing.T, l *resilience.Limiter, _ *source) {
			// Keys come back before their first ask was sent.
			together(t, 600, func(i int) resilience.Decision { return l.Take(t.Context(), strconv.Itoa(i%200), hundred, 1) })
			if s := l.Stats(); s.Keys > 64 || s.Taken != 600 {
				t.Errorf("%+v, want at most 64 keys and 600 taken", s)
			}
		})
	})
	t.Run("but none that is in use", func(t *testing.T) {
		t.Parallel()
		limiting(t, resilience.LimiterConfig{MaxKeys: 64}, func(t *testing.T, l *resilience.Limiter, s *source) {
			once := resilience.Limit{PerSecond: resilience.MinPerSecond, Burst: 1}
			for i := range 200 {
				l.Take(t.Context(), "kept", once, 1)
				l.Take(t.Context(), strconv.Itoa(i), hundred, 1)
			}
			if n := s.asks("test/kept"); n != 1 {
				t.Errorf("a key in use was asked for %d times, want once", n)
			}
		})
	})
	t.Run("when their limit changes", func(t *testing.T) {
		t.Parallel()
		limiting(t, resilience.LimiterConfig{}, func(t *testing.T, l *resilience.Limiter, _ *source) {
			for range 5 {
				l.Take(t.Context(), "k", slowly, 1)
			}
			if d := l.Take(t.Context(), "k", slowly, 1); d.OK {
				t.Fatalf("%+v, want a refusal", d)
			}
			if d := l.Take(t.Context(), "k", resilience.Limit{PerSecond: 10, Burst: 100}, 1); !d.OK || d.Limit.Burst != 100 {
				t.Errorf("%+v, want leave by the new limit", d)
			}
		})
	})
	t.Run("and tokens of a limit that changed while they were asked for", func(t *testing.T) {
		t.Parallel()
		limiting(t, resilience.LimiterConfig{}, func(t *testing.T, l *resilience.Limiter, _ *source) {
			gone, cancel := context.WithTimeout(t.Context(), ms)
			defer cancel()
			l.Take(gone, "k", hundred, 50)
			n := 0
			for l.Take(t.Context(), "k", slowly, 1).OK {
				n++
			}
			if n > slowly.Burst {
				t.Errorf("%d were let through of a burst of %d", n, slowly.Burst)
			}
		})
	})
}
