package resilience_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// drain starts retries until one is refused, and counts them.
func drain(b *resilience.Budget, kind resilience.RetryKind, now time.Time) (n int) {
	for {
		if _, ok, _ := b.Retry(kind, now); !ok {
			return n
		}
		n++
	}
}

func TestBudget(t *testing.T) {
	t.Parallel()
	t.Run("starts full, with a hundred retries", func(t *testing.T) {
		t.Parallel()
		b := resilience.NewBudget(resilience.BudgetConfig{})
		if n := drain(b, resilience.AfterFailure, epoch); n != 100 {
			t.Errorf("%d retries, want 100", n)
		}
	})
	t.Run("asks less of retries after a throttle", func(t *testing.T) {
		t.Parallel()
		b := resilience.NewBudget(resilience.BudgetConfig{})
		if n := drain(b, resilience.AfterThrottle, epoch); n != 333 {
			t.Errorf("%d retries, want 333", n)
		}
	})
	t.Run("gains a retry with every seven first attempts", func(t *testing.T) {
		t.Parallel()
		b := resilience.NewBudget(resilience.BudgetConfig{})
		drain(b, resilience.AfterFailure, epoch)
		for i := range 7 {
			if _, ok, _ := b.Retry(resilience.AfterFailure, epoch); ok {
				t.Fatalf("a retry was let through after %d first attempts", i)
			}
			b.First()
		}
		if _, ok, _ := b.Retry(resilience.AfterFailure, epoch); !ok {
			t.Error("refused after 7 first attempts")
		}
	})
	t.Run("never holds more than its capacity", func(t *testing.T) {
		t.Parallel()
		b := resilience.NewBudget(resilience.BudgetConfig{Capacity: 2})
		for range 100 {
			b.First()
		}
		c, _, _ := b.Retry(resilience.AfterFailure, epoch)
		b.First()
		b.Refund(c)
		if n := drain(b, resilience.AfterFailure, epoch); n != 2 {
			t.Errorf("%d retries, want 2", n)
		}
	})
	t.Run("gets back what a retry that succeeded was charged", func(t *testing.T) {
		t.Parallel()
		b := resilience.NewBudget(resilience.BudgetConfig{})
		for range 1000 {
			c, ok, _ := b.Retry(resilience.AfterThrottle, epoch)
			if !ok {
				t.Fatal("refused, though every retry succeeded")
			}
			b.Refund(c)
			b.Refund(resilience.RetryCharge{}) // of a first attempt: nothing
		}
		if s := b.Stats(); s.Level != 100 || s.Retries != 1000 || s.Refused != 0 {
			t.Errorf("%+v, want a full budget after 1000 retries", s)
		}
	})
	t.Run("lets one retry in ten seconds through when it is empty, and says when", func(t *testing.T) {
		t.Parallel()
		b := resilience.NewBudget(resilience.BudgetConfig{})
		drain(b, resilience.AfterFailure, epoch)
		for i := range 5 {
			at := epoch.Add(time.Duration(i+1) * 10 * time.Second)
			if _, ok, until := b.Retry(resilience.AfterFailure, at.Add(-1)); ok || !until.Equal(at) {
				t.Errorf("a moment before: %v until %v, want refused until %v", ok, until, at)
			}
			c, ok, _ := b.Retry(resilience.AfterFailure, at)
			if !ok {
				t.Errorf("refused after 10 s")
			}
			b.Refund(c) // it was charged nothing, so this gives nothing
		}
		if s := b.Stats(); s.Level != 0 || s.Refused != 6 {
			t.Errorf("%+v, want an empty budget and 6 refusals", s)
		}
	})
	t.Run("keeps to its numbers over millions of calls", func(t *testing.T) {
		t.Parallel()
		b := resilience.NewBudget(resilience.BudgetConfig{Capacity: 1e6, PerFirst: 0.1})
		drain(b, resilience.AfterFailure, epoch)
		for range 2_000_000 {
			b.First()
		}
		if level := b.Stats().Level; level != 200_000 {
			t.Errorf("level %v, want exactly 200000", level)
		}
	})
}

func TestBudgetNeverLetsMoreRetriesThroughThanItsRatio(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 20).Draw(t, "capacity")
		b := resilience.NewBudget(resilience.BudgetConfig{Capacity: float64(capacity)})
		now := epoch
		var open []resilience.RetryCharge
		var firsts, throttled, failed, free int
		var refunded float64
		var last time.Time
		level := func() float64 { return b.Stats().Level }
		t.Repeat(map[string]func(*rapid.T){
			"time passes": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 15_000).Draw(t, "ms")) * ms)
			},
			"a first attempt": func(*rapid.T) { b.First(); firsts++ },
			"a retry": func(t *rapid.T) {
				kind := rapid.SampledFrom([]resilience.RetryKind{resilience.AfterFailure, resilience.AfterThrottle}).Draw(t, "kind")
				before := level()
				cost := map[resilience.RetryKind]float64{resilience.AfterFailure: 1, resilience.AfterThrottle: resilience.DefaultBudgetThrottled}[kind]
				rested := last.IsZero() || now.Sub(last) >= resilience.DefaultBudgetMinimum
				c, ok, until := b.Retry(kind, now)
				if want := before >= cost || rested; ok != want {
					t.Fatalf("let through %v with %v in hand, rested %v", ok, before, rested)
				}
				if !ok {
					if !until.Equal(last.Add(resilience.DefaultBudgetMinimum)) {
						t.Fatalf("refused until %v, the last retry was at %v", until, last)
					}
					return
				}
				last, open = now, append(open, c)
				switch {
				case before < cost:
					free++
				case kind == resilience.AfterThrottle:
					throttled++
				default:
					failed++
				}
			},
			"a retry succeeds": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("no retry is out")
				}
				before := level()
				b.Refund(open[0])
				open = open[1:]
				refunded += level() - before
			},
			"": func(t *rapid.T) {
				const rounding = 1e-6
				if l := level(); l < 0 || l > float64(capacity) {
					t.Fatalf("level %v of %d", l, capacity)
				}
				spent := float64(failed) + resilience.DefaultBudgetThrottled*float64(throttled)
				if allowed := float64(capacity) + resilience.DefaultBudgetPerFirst*float64(firsts) + refunded; spent > allowed+rounding {
					t.Fatalf("retries worth %v of %v", spent, allowed)
				}
				if allowed := 1 + int(now.Sub(epoch)/resilience.DefaultBudgetMinimum); free > allowed {
					t.Fatalf("%d retries beyond the budget, want at most %d", free, allowed)
				}
			},
		})
	})
}
