package resilience_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

func TestWindowCountsOneMinute(t *testing.T) {
	var w resilience.Window
	w.Add(resilience.Failure, true, start)
	w.Add(resilience.Neutral, true, start)
	w.Add(resilience.None, true, start)
	w.Add(resilience.Rejected, true, start)
	w.Add(resilience.Failure, false, start.Add(30*time.Second))
	want := resilience.Tally{Streak: 2, StreakAt: start.Add(30 * time.Second), Calls: 2, Failures: 2, Slow: 1}
	if got := w.Tally(start.Add(59 * time.Second)); got != want {
		t.Errorf("after 59 s %+v, want %+v", got, want)
	}
	want.Calls, want.Failures, want.Slow = 1, 1, 0
	if got := w.Tally(start.Add(time.Minute)); got != want {
		t.Errorf("after a minute %+v, want %+v", got, want)
	}
	if got := w.Tally(start.Add(90 * time.Second)); got != (resilience.Tally{}) {
		t.Errorf("after 90 s %+v, want nothing", got)
	}
	w.Add(resilience.Failure, false, start.Add(90*time.Second))
	if got := w.Tally(start.Add(90 * time.Second)); got.Streak != 1 {
		t.Errorf("a streak of %d goes on after a minute's pause", got.Streak)
	}
	w.Clear()
	if got := w.Tally(start.Add(90 * time.Second)); got != (resilience.Tally{}) {
		t.Errorf("cleared: %+v", got)
	}
}

func TestWindowForgetsWhatTheClockSetBackPutAhead(t *testing.T) {
	var w resilience.Window
	w.Add(resilience.Success, false, start)
	if got := w.Tally(start.Add(-time.Hour)); got.Calls != 0 {
		t.Errorf("%+v an hour before", got)
	}
	if got := w.Tally(start.Add(-time.Millisecond)); got.Calls != 1 {
		t.Errorf("%+v a moment before, as another goroutine may see it", got)
	}
}

// The window must never know less than the last 50 s nor more than the last 60 s.
func TestWindowHoldsWhatItIsTold(t *testing.T) {
	type told struct {
		v    resilience.Verdict
		slow bool
		at   time.Time
	}
	rapid.Check(t, func(t *rapid.T) {
		var w resilience.Window
		var all []told
		now := start
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			now = now.Add(time.Duration(rapid.IntRange(0, 25_000).Draw(t, "ms")) * time.Millisecond)
			c := told{rapid.SampledFrom([]resilience.Verdict{resilience.Success, resilience.Failure, resilience.Neutral}).Draw(t, "verdict"), rapid.Bool().Draw(t, "slow"), now}
			w.Add(c.v, c.slow, c.at)
			all = append(all, c)
		}
		count := func(within time.Duration) (calls, failures, slow int) {
			for _, c := range all {
				if c.v == resilience.Neutral || now.Sub(c.at) >= within {
					continue
				}
				calls++
				if c.v == resilience.Failure {
					failures++
				}
				if c.slow {
					slow++
				}
			}
			return calls, failures, slow
		}
		got := w.Tally(now)
		calls, failures, slow := count(50 * time.Second)
		if got.Calls < calls || got.Failures < failures || got.Slow < slow {
			t.Fatalf("%+v, want at least %d calls, %d failures, %d slow", got, calls, failures, slow)
		}
		calls, failures, slow = count(time.Minute)
		if got.Calls > calls || got.Failures > failures || got.Slow > slow {
			t.Fatalf("%+v, want at most %d calls, %d failures, %d slow", got, calls, failures, slow)
		}
	})
}

func TestBreakerOutlivesItsRecord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := resilience.BreakerConfig{Failures: 2}
		kept, straight := resilience.NewBreaker(cfg), resilience.NewBreaker(cfg)
		now := start
		var permit resilience.Permit
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 60).Draw(t, "seconds")) * time.Second)
			if straight.Record().State != resilience.Closed {
				// What is not evidence survives being kept.
				kept = resilience.RestoreBreaker(cfg, kept.Record())
			}
			if rapid.Bool().Draw(t, "admit") {
				p, ok, change := straight.Admit(now)
				if q, ok2, change2 := kept.Admit(now); q != p || ok2 != ok || change2 != change {
					t.Fatalf("admits %t, %+v; want %t, %+v", ok2, change2, ok, change)
				}
				if ok {
					permit = p
				}
				continue
			}
			e := rapid.SampledFrom([]resilience.Evidence{success, failure, neutral, none}).Draw(t, "evidence")
			if got, want := kept.Report(permit, e, now, middle), straight.Report(permit, e, now, middle); got != want {
				t.Fatalf("changes %+v, want %+v", got, want)
			}
		}
	})
}

func TestBreakerTripsOnEvidenceOfItsGenerationOnly(t *testing.T) {
	by := resilience.Override{Who: "ana", Until: start.Add(time.Minute)}
	tests := []struct {
		name   string
		before func(b *resilience.Breaker)
		seen   uint64
		now    time.Time
		trips  bool
	}{
		{"closed", func(*resilience.Breaker) {}, 0, start, true},
		{"another generation", func(*resilience.Breaker) {}, 1, start, false},
		{"open already", func(b *resilience.Breaker) { b.Trip(0, resilience.ReasonFailures, failure, start, middle) }, 1, start, false},
		{"half-open", func(b *resilience.Breaker) {
			b.Trip(0, resilience.ReasonFailures, failure, start, middle)
			b.Admit(start.Add(time.Minute))
		}, 2, start.Add(time.Minute), false},
		{"forced closed", func(b *resilience.Breaker) { b.ForceClosed(by, start) }, 1, start, false},
		{"no longer forced closed", func(b *resilience.Breaker) { b.ForceClosed(by, start) }, 1, by.Until, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := resilience.NewBreaker(resilience.BreakerConfig{})
			tt.before(b)
			if got := b.Trip(tt.seen, resilience.ReasonFailures, failure, tt.now, middle).Changed(); got != tt.trips {
				t.Errorf("trips %t, want %t", got, tt.trips)
			}
		})
	}
}
