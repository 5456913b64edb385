package config

import (
	"cmp"
	"fmt"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/config/strict"
)

// day bounds times that only a slip of the pen makes longer.
const day = 24 * time.Hour

func (a *Account) checkTimes(problems *strict.Problems) {
	between(problems, a.Path+".timeout", a.Timeout, 100*time.Millisecond, 2*time.Minute)
	between(problems, a.Path+".weight", a.Weight, 0, 1000)
	between(problems, a.Path+".retry.base", a.Retry.Base, time.Millisecond, day)
	between(problems, a.Path+".retry.cap", a.Retry.Cap, a.Retry.Base, day)
	between(problems, a.Path+".retry.recipient_base", a.Retry.RecipientBase, time.Millisecond, day)
	between(problems, a.Path+".retry.recipient_cap", a.Retry.RecipientCap, a.Retry.RecipientBase, day)
	between(problems, a.Path+".retry.budget", a.Retry.Budget, 0.01, 20)
	between(problems, a.Path+".max_per_second", a.MaxPerSecond, 0, 10000)
	if a.ReceiptWindow != 0 {
		between(problems, a.Path+".receipt_window", a.ReceiptWindow, time.Second, 30*day)
	}
	between(problems, a.Path+".breaker.min_calls", a.Breaker.MinCalls, 1, 100_000)
	between(problems, a.Path+".breaker.failure_rate", a.Breaker.FailureRate, 0, 1)
	between(problems, a.Path+".breaker.slow_rate", a.Breaker.SlowRate, 0, 1)
	between(problems, a.Path+".breaker.slow_call", a.Breaker.SlowCall, 0, 2*time.Minute)
	between(problems, a.Path+".breaker.failures", a.Breaker.Failures, 1, 1000)
	between(problems, a.Path+".breaker.open", a.Breaker.Open, time.Millisecond, day)
	between(problems, a.Path+".breaker.max_open", a.Breaker.MaxOpen, a.Breaker.Open, day)
	between(problems, a.Path+".breaker.successes", a.Breaker.Successes, 1, 100)
}

func (c *Config) check(problems *strict.Problems) {
	if c.Database.URL.Empty() {
		problems.Add("database.url", 0, "must be given, here or as DATABASE_URL")
	}
	between(problems, "database.max_connections", c.Database.MaxConnections, 4, 1000)
	if c.HTTP.Listen == "" {
		problems.Add("http.listen", 0, `must be an address such as ":8080"`)
	}
	between(problems, "http.max_body", c.HTTP.MaxBody, 1<<10, 64<<20)
	between(problems, "http.max_batch_body", c.HTTP.MaxBatchBody, 1<<10, 256<<20)
	between(problems, "http.read_timeout", c.HTTP.ReadTimeout, time.Second, time.Hour)
	between(problems, "http.write_timeout", c.HTTP.WriteTimeout, time.Second, time.Hour)
	between(problems, "http.idle_timeout", c.HTTP.IdleTimeout, time.Second, time.Hour)
	between(problems, "http.drain_delay", c.HTTP.DrainDelay, 0, 10*time.Minute)
	between(problems, "http.shutdown_timeout", c.HTTP.ShutdownTimeout, time.Second, 10*time.Minute)
	c.HTTP.Limits.check(problems)
	c.StatusWebhooks.check(problems)
	switch c.Log.Format {
	case LogAuto, LogJSON, LogText:
	default:
		problems.Add("log.format", 0, "must be one of auto, json, text")
	}
	const never = 100 * 365 * day
	between(problems, "retention.final", c.Retention.Final, time.Hour, never)
	between(problems, "retention.idempotency_keys", c.Retention.IdempotencyKeys, time.Minute, never)
	c.checkNames(problems)
}

// checkNames reports accounts that share a name: receipts, metrics and chains
// know an account by its name alone.
func (c *Config) checkNames(problems *strict.Problems) {
	first := map[string]string{StatusWebhooksAccount: "the account of status webhooks"}
	for _, a := range c.Accounts() {
		if at, taken := first[a.Name]; taken && a.Name != "" {
			problems.Add(a.Path+".name", 0, "is the name of "+at+" too; names are unique over all channels")
			continue
		}
		first[a.Name] = a.Path
	}
}

func between[T cmp.Ordered](problems *strict.Problems, path string, v, low, high T) {
	if v < low || v > high {
		problems.Add(path, 0, fmt.Sprintf("must be from %v to %v", low, high))
	}
}
