package resilience_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// epoch is when the tests of limits begin.
var epoch = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func TestLimitSaysWhatItMeans(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name             string
		limit            resilience.Limit
		interval, window time.Duration
		ok               bool
	}{
		{"one a second", resilience.Limit{PerSecond: 1, Burst: 1}, time.Second, time.Second, true},
		{"one in six seconds", resilience.Limit{PerSecond: 1.0 / 6, Burst: 2}, 6 * time.Second, 12 * time.Second, true},
		{"a rate without an exact interval is never exceeded", resilience.Limit{PerSecond: 3, Burst: 3}, 333333334, 1000000002, true},
		{"the slowest", resilience.Limit{PerSecond: resilience.MinPerSecond, Burst: resilience.MaxBurst}, time.Hour, resilience.MaxBurst * time.Hour, true},
		{"the fastest", resilience.Limit{PerSecond: 1e6, Burst: 10}, time.Microsecond, 10 * time.Microsecond, true},
		{"too slow", resilience.Limit{PerSecond: 1e-5, Burst: 1}, time.Hour, time.Hour, false},
		{"too fast", resilience.Limit{PerSecond: 1e9, Burst: 1}, time.Microsecond, time.Microsecond, false},
		{"nothing", resilience.Limit{}, time.Hour, time.Hour, false},
		{"no number", resilience.Limit{PerSecond: math.NaN(), Burst: 1}, time.Hour, time.Hour, false},
		{"too large a burst", resilience.Limit{PerSecond: 1, Burst: math.MaxInt}, time.Second, resilience.MaxBurst * time.Second, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := c.limit.Interval(); got != c.interval {
				t.Errorf("interval %v, want %v", got, c.interval)
			}
			if got := c.limit.Window(); got != c.window {
				t.Errorf("window %v, want %v", got, c.window)
			}
			if err := c.limit.Check(); (err == nil) != c.ok {
				t.Errorf("check says %v", err)
			}
		})
	}
}

func TestGCRA(t *testing.T) {
	t.Parallel()
	limit := resilience.Limit{PerSecond: 10, Burst: 5}
	var g resilience.GCRA
	now := epoch
	for _, step := range []struct {
		name        string
		after       time.Duration // the step before
		want, least int
		granted     int
		debt        time.Duration
	}{
		{"starts full and grants in part", 0, 8, 1, 5, 500 * time.Millisecond},
		{"is then empty", 0, 1, 1, 0, 500 * time.Millisecond},
		{"has no token a moment too early", 100*time.Millisecond - 1, 1, 1, 0, 400*time.Millisecond + 1},
		{"has one on time", 1, 1, 1, 1, 500 * time.Millisecond},
		{"grants nothing below the least", 250 * time.Millisecond, 5, 3, 0, 250 * time.Millisecond},
		{"grants the least", 0, 5, 2, 2, 450 * time.Millisecond},
		{"is never more than full", time.Hour, 6, 5, 5, 500 * time.Millisecond},
		{"refuses for no longer than a window after the clock was set back", -time.Minute, 1, 1, 0, 500 * time.Millisecond},
	} {
		now = now.Add(step.after)
		if got, want := g.Take(limit, step.want, step.least, now), (resilience.Grant{Tokens: step.granted, Debt: step.debt}); got != want {
			t.Errorf("%s: %+v, want %+v", step.name, got, want)
		}
	}
}

func TestGCRANeverGrantsMoreThanItsBurstAndRate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := drawLimit(t)
		var g resilience.GCRA
		var spent []spending
		now := epoch
		for range rapid.IntRange(1, 60).Draw(t, "takes") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(limit.Window())).Draw(t, "pause")))
			want := rapid.IntRange(1, 2*limit.Burst).Draw(t, "want")
			least := rapid.IntRange(1, want).Draw(t, "least")
			grant := g.Take(limit, want, least, now)
			if grant.Tokens != 0 && (grant.Tokens < least || grant.Tokens > want) {
				t.Fatalf("granted %d of %d to %d", grant.Tokens, least, want)
			}
			if grant.Debt < 0 || grant.Debt > limit.Window() {
				t.Fatalf("debt %v of a window of %v", grant.Debt, limit.Window())
			}
			spent = append(spent, spending{now, grant.Tokens})
		}
		checkWindows(t, spent, limit, 0)
	})
}

// spending is some tokens spent at an instant.
type spending struct {
	at time.Time
	n  int
}

func drawLimit(t *rapid.T) resilience.Limit {
	return resilience.Limit{
		PerSecond: rapid.SampledFrom([]float64{0.1, 1, 3, 50, 1000, 20_000}).Draw(t, "rate"),
		Burst:     rapid.SampledFrom([]int{1, 2, 10, 200}).Draw(t, "burst"),
	}
}

// checkWindows fails where any window holds more than burst + rate·(window +
// slack) tokens. Spendings are in the order of time.
func checkWindows(t *rapid.T, spent []spending, limit resilience.Limit, slack time.Duration) {
	for i, first := range spent {
		n := 0
		for _, s := range spent[i:] {
			n += s.n
			window := s.at.Sub(first.at)
			if allowed := limit.Burst + int((window+slack)/limit.Interval()); n > allowed {
				t.Fatalf("%d tokens within %v, want at most %d", n, window, allowed)
			}
		}
	}
}
