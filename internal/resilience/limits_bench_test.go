package resilience_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// plenty grants whatever it is asked for, at once.
type plenty struct{}

func (plenty) TakeTokens(_ context.Context, asks []resilience.Ask) ([]resilience.Grant, error) {
	grants := make([]resilience.Grant, len(asks))
	for i, a := range asks {
		grants[i].Tokens = a.Want
	}
	return grants, nil
}

// nothing refuses for an hour.
type nothing struct{}

func (nothing) TakeTokens(_ context.Context, asks []resilience.Ask) ([]resilience.Grant, error) {
	grants := make([]resilience.Grant, len(asks))
	for i, a := range asks {
		grants[i].Debt = a.Limit.Window()
	}
	return grants, nil
}

// run has something run for as long as the benchmark does.
func run(b *testing.B, do func(context.Context)) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() { defer close(done); do(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
}

func BenchmarkLimiterTake(b *testing.B) {
	limit := resilience.Limit{PerSecond: resilience.MaxPerSecond, Burst: resilience.MaxBurst}
	for _, c := range []struct {
		name   string
		source resilience.TokenSource
		limit  resilience.Limit
		keys   int
	}{
		{"leased", plenty{}, limit, 1},
		{"leased/1000 keys", plenty{}, limit, 1000},
		{"refused", nothing{}, resilience.Limit{PerSecond: resilience.MinPerSecond, Burst: 1}, 1},
		{"local", nil, limit, 1},
	} {
		b.Run(c.name, func(b *testing.B) {
			l := resilience.NewLimiter(resilience.LimiterConfig{Source: c.source, Lease: resilience.LeaseConfig{Max: resilience.MaxBurst}})
			run(b, l.Run)
			keys := make([]string, c.keys)
			for i := range keys {
				keys[i] = strconv.Itoa(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				l.Take(b.Context(), keys[i%len(keys)], c.limit, 1)
			}
			s := l.Stats()
			b.ReportMetric(float64(s.Statements)/float64(s.Taken+s.Refused), "statements/op")
		})
	}
}

func BenchmarkPacerTake(b *testing.B) {
	p := resilience.NewPacer(resilience.LimiterConfig{Source: plenty{}, Lease: resilience.LeaseConfig{Max: resilience.MaxBurst}})
	run(b, p.Run)
	fast := resilience.Limit{PerSecond: resilience.MaxPerSecond, Burst: resilience.MaxBurst}
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		p.Take([]resilience.Pace{{Scope: "slack-main", Limit: fast}, {Scope: "slack-main/C1", Limit: fast}}, now)
	}
}

func BenchmarkBudgetRetry(b *testing.B) {
	budget, now := resilience.NewBudget(resilience.BudgetConfig{}), time.Now()
	b.ReportAllocs()
	for b.Loop() {
		budget.First()
		c, _, _ := budget.Retry(resilience.AfterFailure, now)
		budget.Refund(c)
	}
}
