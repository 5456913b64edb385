package resilience_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// pacing runs a test in a bubble with pacers, one a node, over one source that
// takes 5 ms.
func pacing(t *testing.T, nodes int, test func(t *testing.T, s *source, pacers []*resilience.Pacer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &source{t: t, delay: 5 * ms, keys: map[string]*resilience.GCRA{}}
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		pacers := make([]*resilience.Pacer, nodes)
		for i := range pacers {
			pacers[i] = resilience.NewPacer(resilience.LimiterConfig{Source: s, Prefix: "pace/", Nodes: func() int { return nodes }})
			run.Go(func() { pacers[i].Run(ctx) })
		}
		synctest.Wait()
		test(t, s, pacers)
		cancel()
		run.Wait()
	})
}

var (
	workspace    = resilience.Pace{Scope: "slack-main", Limit: resilience.Limit{PerSecond: 50, Burst: 50}}
	conversation = resilience.Pace{Scope: "slack-main/C1", Limit: resilience.Limit{PerSecond: 1, Burst: 1}}
	whatsappPair = resilience.Pace{Scope: "meta-main/to:1", Limit: resilience.Limit{PerSecond: 1.0 / 6, Burst: 1}}
)

func TestPacerTake(t *testing.T) {
	t.Parallel()
	t.Run("never waits: it says not yet, and has the answer when the caller is back", func(t *testing.T) {
		t.Parallel()
		pacing(t, 1, func(t *testing.T, s *source, p []*resilience.Pacer) {
			start := time.Now()
			ok, until := p[0].Take([]resilience.Pace{workspace, conversation}, start)
			if ok || !time.Now().Equal(start) || until.Sub(start) > 50*ms || until.Sub(start) < s.delay {
				t.Fatalf("%v until %v, want a short not-yet at once", ok, until.Sub(start))
			}
			// A delivery that becomes a wait is back after the waker's turn.
			<-time.After(400 * ms)
			if ok, until := p[0].Take([]resilience.Pace{workspace, conversation}, time.Now()); !ok || !until.IsZero() {
				t.Errorf("%v until %v, want leave", ok, until)
			}
			if len(s.calls) != 1 || len(s.calls[0]) != 2 {
				t.Errorf("asked %v, want once for both scopes", s.calls)
			}
		})
	})
	t.Run("knows until when a scope is used up, without asking again", func(t *testing.T) {
		t.Parallel()
		pacing(t, 1, func(t *testing.T, s *source, p []*resilience.Pacer) {
			if ok, _ := p[0].Wait(t.Context(), []resilience.Pace{whatsappPair}, time.Second); !ok {
				t.Fatal("the first call was refused")
			}
			asked := len(s.calls)
			for range 100 {
				now := time.Now()
				ok, until := p[0].Take([]resilience.Pace{whatsappPair}, now)
				if ok || until.Sub(now) < 5*time.Second || until.Sub(now) > 6*time.Second {
					t.Fatalf("%v until %v, want a refusal for 6 s", ok, until.Sub(now))
				}
			}
			if len(s.calls) != asked {
				t.Errorf("asked %d times more", len(s.calls)-asked)
			}
		})
	})
	t.Run("takes from all scopes or from none", func(t *testing.T) {
		t.Parallel()
		pacing(t, 1, func(t *testing.T, s *source, p []*resilience.Pacer) {
			both := []resilience.Pace{workspace, conversation}
			if ok, _ := p[0].Wait(t.Context(), both, time.Second); !ok {
				t.Fatal("the first call was refused")
			}
			for range 200 {
				if ok, _ := p[0].Take(both, time.Now()); ok {
					t.Fatal("a used up scope let a call through")
				}
			}
			one := []resilience.Pace{workspace}
			n := 0
			for ok := true; ok; n++ {
				ok, _ = p[0].Wait(t.Context(), one, time.Second)
			}
			if n < 50 {
				t.Errorf("the account has %d calls left, want 49 and what came back: refused calls took some", n-1)
			}
		})
	})
	t.Run("paces at this node's part while the source fails", func(t *testing.T) {
		t.Parallel()
		pacing(t, 4, func(t *testing.T, s *source, p []*resilience.Pacer) {
			s.fail(errAway)
			p[0].Take([]resilience.Pace{conversation}, time.Now())
			<-time.After(50 * ms)
			if ok, _ := p[0].Take([]resilience.Pace{conversation}, time.Now()); !ok {
				t.Fatal("the node's first call was refused")
			}
			now := time.Now()
			if ok, until := p[0].Take([]resilience.Pace{conversation}, now); ok || until.Sub(now) != 4*time.Second {
				t.Errorf("%v until %v, want a refusal for 4 s", ok, until.Sub(now))
			}
		})
	})
}

func TestPacerWait(t *testing.T) {
	t.Parallel()
	t.Run("returns when the answer is there", func(t *testing.T) {
		t.Parallel()
		pacing(t, 1, func(t *testing.T, s *source, p []*resilience.Pacer) {
			start := time.Now()
			if ok, _ := p[0].Wait(t.Context(), []resilience.Pace{workspace, conversation}, time.Second); !ok || time.Since(start) != s.delay {
				t.Errorf("%v after %v, want leave after one exchange", ok, time.Since(start))
			}
		})
	})
	t.Run("serves all who wait with few exchanges", func(t *testing.T) {
		t.Parallel()
		pacing(t, 1, func(t *testing.T, s *source, p []*resilience.Pacer) {
			ok := together(t, 40, func(int) resilience.Decision {
				ok, _ := p[0].Wait(t.Context(), []resilience.Pace{workspace}, time.Second)
				return resilience.Decision{OK: ok}
			})
			if ok != 40 || len(s.calls) > 3 {
				t.Errorf("%d of 40 let through with %d exchanges, want all with at most 3", ok, len(s.calls))
			}
		})
	})
	t.Run("gives up after its time, and with its caller", func(t *testing.T) {
		t.Parallel()
		pacing(t, 1, func(t *testing.T, s *source, p []*resilience.Pacer) {
			s.delay = 200 * ms
			start := time.Now()
			if ok, until := p[0].Wait(t.Context(), []resilience.Pace{workspace}, 20*ms); ok || until.IsZero() || time.Since(start) != 20*ms {
				t.Errorf("%v until %v after %v, want not yet after 20 ms", ok, until, time.Since(start))
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if ok, _ := p[0].Wait(ctx, []resilience.Pace{workspace}, time.Hour); ok || time.Since(start) != 20*ms {
				t.Errorf("%v after %v, want not yet at once", ok, time.Since(start))
			}
		})
	})
}

func TestPacersKeepARateTogether(t *testing.T) {
	t.Parallel()
	pacing(t, 4, func(t *testing.T, s *source, pacers []*resilience.Pacer) {
		const length = 30 * time.Second
		start := time.Now()
		var mu sync.Mutex
		var calls []time.Time
		var all sync.WaitGroup
		for _, p := range pacers {
			for range 5 {
				all.Go(func() {
					for time.Since(start) < length {
						now := time.Now()
						ok, until := p.Take([]resilience.Pace{workspace, conversation}, now)
						if ok {
							mu.Lock()
							calls = append(calls, now)
							mu.Unlock()
							continue
						}
						<-time.After(until.Sub(now)) // as a wait does
					}
				})
			}
		}
		all.Wait()
		for i := range calls {
			for j := i; j < len(calls); j++ {
				window := calls[j].Sub(calls[i]) + resilience.DefaultPaceTTL
				if n := j - i + 1; n > 1+int(window/time.Second) {
					t.Fatalf("%d calls within %v", n, calls[j].Sub(calls[i]))
				}
			}
		}
		if len(calls) < 27 {
			t.Errorf("%d calls in 30 s at one a second", len(calls))
		}
	})
}
