package resilience_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// The fields of an answer, after the IETF draft on RateLimit header fields. Of a
// local decision only Retry-After is said, since the rest is one node's alone.
func ExampleDecision() {
	seconds := func(d time.Duration) int { return int(math.Ceil(d.Seconds())) }
	write := func(h http.Header, d resilience.Decision) {
		if !d.OK && !d.TooLarge {
			h.Set("Retry-After", strconv.Itoa(max(1, seconds(d.RetryAfter))))
		}
		if d.Local {
			return
		}
		h.Set("X-RateLimit-Limit", strconv.Itoa(d.Limit.Burst))
		h.Set("X-RateLimit-Remaining", strconv.Itoa(d.Remaining))
		h.Set("X-RateLimit-Reset", strconv.Itoa(seconds(d.Reset)))
		h.Set("RateLimit-Policy", fmt.Sprintf(`"burst";q=%d;w=%d`, d.Limit.Burst, seconds(d.Limit.Window())))
		h.Set("RateLimit", fmt.Sprintf(`"burst";r=%d;t=%d`, d.Remaining, seconds(d.Reset)))
	}
	h := http.Header{}
	write(h, resilience.Decision{
		Limit: resilience.Limit{PerSecond: 10, Burst: 100}, Reset: 9950 * time.Millisecond, RetryAfter: 50 * time.Millisecond,
	})
	for _, name := range []string{"Retry-After", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "RateLimit-Policy", "RateLimit"} {
		fmt.Printf("%s: %s\n", name, h.Get(name))
	}
	// Output:
	// Retry-After: 1
	// X-RateLimit-Limit: 100
	// X-RateLimit-Remaining: 0
	// X-RateLimit-Reset: 10
	// RateLimit-Policy: "burst";q=100;w=10
	// RateLimit: "burst";r=0;t=10
}

// A call that concerns an account and one of its conversations, each with a rate
// of its own. Without a source a pacer works for one process.
func ExamplePacer_Wait() {
	p := resilience.NewPacer(resilience.LimiterConfig{})
	paces := []resilience.Pace{
		{Scope: "slack-main", Limit: resilience.Limit{PerSecond: 50, Burst: 50}},
		{Scope: "slack-main/C0123", Limit: resilience.Limit{PerSecond: 1, Burst: 1}},
	}
	for range 2 {
		ok, until := p.Wait(context.Background(), paces, 20*time.Millisecond)
		fmt.Println(ok, until.IsZero() || time.Until(until) <= time.Second)
	}
	// Output:
	// true true
	// false true
}

// A source runs beside what it is for, and ends with it.
func ExampleLimiter_Run() {
	ctx, cancel := context.WithCancel(context.Background())
	l := resilience.NewLimiter(resilience.LimiterConfig{Source: plenty{}, Prefix: "api/"})
	ended := make(chan struct{})
	go func() { defer close(ended); l.Run(ctx) }()
	fmt.Println(l.Take(ctx, "send/key-1", resilience.Limit{PerSecond: 10, Burst: 100}, 1).OK)
	cancel()
	<-ended
	// Output: true
}
