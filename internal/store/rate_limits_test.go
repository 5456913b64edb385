package store_test

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// still is a limit under which nothing comes back while a test runs.
func still(burst int) resilience.Limit {
	return resilience.Limit{PerSecond: resilience.MinPerSecond, Burst: burst}
}

func take(t testing.TB, s *store.Store, asks ...resilience.Ask) []resilience.Grant {
	t.Helper()
	grants, err := s.TakeTokens(t.Context(), asks)
	if err != nil {
		t.Fatal(err)
	}
	return grants
}

func TestTakeTokens(t *testing.T) {
	t.Parallel()
	s := store.New(pgtest.New(t))

	t.Run("grants many keys at once, in the order of the asks", func(t *testing.T) {
		t.Parallel()
		asks := []resilience.Ask{
			{Key: "many/b", Limit: still(10), Want: 4, Least: 1},
			{Key: "many/\xff\x00", Limit: still(10), Want: 20, Least: 1},
			{Key: "many/" + strings.Repeat("k", 1000), Limit: still(3), Want: 3, Least: 3},
			{Key: "many/a", Limit: still(10), Want: 20, Least: 11},
		}
		for round, want := range [][]int{{4, 10, 3, 0}, {4, 0, 0, 0}, {2, 0, 0, 0}} {
			for i, g := range take(t, s, asks...) {
				if g.Tokens != want[i] {
					t.Errorf("round %d, ask %d: %d tokens, want %d", round, i, g.Tokens, want[i])
				}
			}
		}
	})
	t.Run("says how far from full a key is", func(t *testing.T) {
		t.Parallel()
		for _, want := range []time.Duration{2 * time.Hour, 4 * time.Hour, 4 * time.Hour} {
			got := take(t, s, resilience.Ask{Key: "debt", Limit: still(5), Want: 2, Least: 2})[0].Debt
			if got > want || got < want-time.Minute {
				t.Errorf("debt %v, want %v", got, want)
			}
		}
	})
	t.Run("fills a key at its rate", func(t *testing.T) {
		t.Parallel()
		ask := resilience.Ask{Key: "fills", Limit: resilience.Limit{PerSecond: 1000, Burst: 50}, Want: 50, Least: 50}
		start := time.Now()
		took := take(t, s, ask)[0].Tokens
		ask.Want, ask.Least = 1, 1
		for took < 150 {
			took += take(t, s, ask)[0].Tokens
		}
		if age := time.Since(start); age < 99*time.Millisecond {
			t.Errorf("100 tokens of 1000/s came back in %v", age)
		}
	})
	t.Run("holds a key that a smaller limit or a clock left far in debt for no longer than its window", func(t *testing.T) {
		t.Parallel()
		take(t, s, resilience.Ask{Key: "shrunk", Limit: still(100), Want: 100, Least: 1})
		small := resilience.Limit{PerSecond: 20, Burst: 2}
		g := take(t, s, resilience.Ask{Key: "shrunk", Limit: small, Want: 1, Least: 1})[0]
		if g.Tokens != 0 || g.Debt > small.Window() {
			t.Errorf("%+v, want nothing and a debt of at most %v", g, small.Window())
		}
	})
	t.Run("forgets only full keys", func(t *testing.T) {
		t.Parallel()
		quick := resilience.Limit{PerSecond: resilience.MaxPerSecond, Burst: 1}
		take(t, s, resilience.Ask{Key: "prune/full", Limit: quick, Want: 1, Least: 1}, resilience.Ask{Key: "prune/owing", Limit: still(1), Want: 1, Least: 1})
		if _, err := s.PruneRateLimits(t.Context(), 1000); err != nil {
			t.Fatal(err)
		}
		var left string
		if err := s.Pool().QueryRow(t.Context(), "select string_agg(key, ' ') from dispatcher.rate_limits where key like 'prune/%'").Scan(&left); err != nil {
			t.Fatal(err)
		}
		if left != "prune/owing" {
			t.Errorf("left are %q, want prune/owing alone", left)
		}
	})
	t.Run("reads a clock that stood still as the model does", func(t *testing.T) {
		t.Parallel()
		run := 0
		rapid.Check(t, func(t *rapid.T) {
			run++
			var models [3]resilience.GCRA
			now := time.Now()
			limit := still(rapid.IntRange(1, 20).Draw(t, "burst"))
			for range rapid.IntRange(1, 6).Draw(t, "statements") {
				var asks []resilience.Ask
				var want []int
				for k := range models {
					a := resilience.Ask{Key: fmt.Sprintf("model/%d/%d", run, k), Limit: limit, Want: rapid.IntRange(1, 20).Draw(t, "want")}
					a.Least = rapid.IntRange(1, a.Want).Draw(t, "least")
					asks, want = append(asks, a), append(want, models[k].Take(limit, a.Want, a.Least, now).Tokens)
				}
				grants, err := s.TakeTokens(context.Background(), asks)
				if err != nil {
					t.Fatal(err)
				}
				for i, g := range grants {
					if g.Tokens != want[i] {
						t.Fatalf("%+v: %d tokens, want %d", asks[i], g.Tokens, want[i])
					}
				}
			}
		})
	})
	t.Run("reads the clock when it has the row, not when it began to wait for it", func(t *testing.T) {
		t.Parallel()
		asks := []resilience.Ask{{Key: "held/a", Limit: still(4), Want: 1, Least: 1}, {Key: "held/b", Limit: still(4), Want: 1, Least: 1}}
		take(t, s, asks...)
		tx, err := s.Pool().Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		// Both keys are full again, and somebody is at them.
		if _, err := tx.Exec(t.Context(), "update dispatcher.rate_limits set tat = clock_timestamp() where key like 'held/%'"); err != nil {
			t.Fatal(err)
		}
		answer := make(chan []resilience.Grant, 1)
		go func() {
			grants, err := s.TakeTokens(t.Context(), asks)
			if err != nil {
				t.Error(err)
			}
			answer <- grants
		}()
		const hold = 200 * time.Millisecond
		for held := false; !held; {
			err := s.Pool().QueryRow(t.Context(), `select exists (select from pg_stat_activity
				where datname = current_database() and wait_event_type = 'Lock' and query_start < clock_timestamp() - $1::interval)`, hold).Scan(&held)
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, g := range <-answer {
			if g.Tokens != 1 || g.Debt < time.Hour-hold/2 {
				t.Errorf("ask %d: %+v, want 1 token and a debt of an hour", i, g)
			}
		}
	})
	t.Run("is not held up by nodes that take the same keys in other orders", func(t *testing.T) {
		t.Parallel()
		var nodes sync.WaitGroup
		for node := range 4 {
			nodes.Go(func() {
				for round := range 50 {
					var asks []resilience.Ask
					for k := range 20 {
						asks = append(asks, resilience.Ask{Key: fmt.Sprintf("circle/%d/%d", round/10, (k*(node+1)*3+round)%23), Limit: still(1000), Want: 1, Least: 1})
					}
					slices.SortFunc(asks, func(a, b resilience.Ask) int { return cmp.Compare(a.Key, b.Key) * (1 - 2*(node%2)) })
					asks = slices.CompactFunc(asks, func(a, b resilience.Ask) bool { return a.Key == b.Key })
					if _, err := s.TakeTokens(t.Context(), asks); err != nil {
						t.Errorf("node %d, round %d: %v", node, round, err)
						return
					}
				}
			})
		}
		nodes.Wait()
	})
}
