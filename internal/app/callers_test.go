package app

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

// ledger is a limitStore that keeps nothing but refusals.
type ledger struct {
	mu         sync.Mutex
	away       error
	panics     int // so many calls
	statements int
	counts     map[store.Refusals]int64 // by key and class
	old        int                      // rows to be pruned, of each kind
}

func (l *ledger) TakeTokens(context.Context, []resilience.Ask) ([]resilience.Grant, error) {
	return nil, l.fault()
}

func (l *ledger) fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.away
}

func (l *ledger) fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.away = err
}

func (l *ledger) AddRefusals(_ context.Context, refusals []store.Refusals) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.panics > 0 {
		l.panics--
		panic("the secret of somebody")
	}
	if l.away != nil {
		return l.away
	}
	l.statements++
	for _, r := range refusals {
		l.counts[store.Refusals{Key: r.Key, Class: r.Class}] += r.Count
	}
	return nil
}

func (l *ledger) LiveNodes(context.Context) (int, error) { return 3, l.fault() }

func (l *ledger) PruneRateLimits(_ context.Context, limit int) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := min(limit, l.old)
	l.old -= n
	return n, nil
}

func (l *ledger) PruneRefusals(context.Context, int) (int, error) { return 0, nil }

func TestRefusalsAreWrittenOnceASecondAndNoneIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{counts: map[store.Refusals]int64{}, old: 2500}
		var said strings.Builder
		log := slog.New(slog.NewTextHandler(&said, nil))
		c := newCallers(l, telemetry.New("test"), log, panics.New(log, nil))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); c.run(ctx) }()
		synctest.Wait()
		if l.old != 0 || c.nodes.Load() != 3 {
			t.Errorf("%d rows are left to prune; %d nodes", l.old, c.nodes.Load())
		}
		loud, other := &store.APIKey{ID: uuid.New()}, &store.APIKey{ID: uuid.New()}
		for range 100 {
			c.note(store.ClassWrite, loud, 2)
			c.note(store.ClassRead, other, 1)
			c.note("unauthenticated", nil, 1)
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if l.statements != 1 {
			t.Errorf("%d statements, want 1", l.statements)
		}
		l.fail(errors.New("the database is away"))
		c.note(store.ClassWrite, loud, 5)
		time.Sleep(3 * time.Second)
		l.fail(nil)
		time.Sleep(time.Second)
		c.note(store.ClassWrite, loud, 7)
		cancel() // the last ones are written on the way out
		<-done
		want := map[store.Refusals]int64{{Key: loud.ID, Class: store.ClassWrite}: 212, {Key: other.ID, Class: store.ClassRead}: 100}
		if diff := cmp.Diff(want, l.counts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
		if n := strings.Count(said.String(), `msg="failed and will be tried again" task="count refusals"`); n != 1 {
			t.Errorf("told %d times, want once:\n%s", n, said.String())
		}
	})
}

func TestRefusalsOutliveAPanic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &ledger{counts: map[store.Refusals]int64{}, panics: 1}
		var caught []panics.Part
		c := newCallers(l, telemetry.New("test"), slog.New(slog.DiscardHandler), panics.New(nil, func(p panics.Part) { caught = append(caught, p) }))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); c.run(ctx) }()
		key := &store.APIKey{ID: uuid.New()}
		synctest.Wait()
		c.note(store.ClassWrite, key, 3)
		time.Sleep(2*time.Second + panics.Pause)
		synctest.Wait()
		if got := l.counts[store.Refusals{Key: key.ID, Class: store.ClassWrite}]; got != 3 || len(caught) != 1 {
			t.Errorf("%d refusals written after %d panics, want 3 after one", got, len(caught))
		}
		cancel()
		<-done
	})
}

// A node as it is in production, down to what an operator sees of refusals.
func TestANodeLimitsItsCallersAndShowsWhoWasRefused(t *testing.T) {
	t.Parallel()
	c := config.Default()
	c.Database.URL, c.HTTP.Listen = secret.New(pgtest.URL(t)), "127.0.0.1:0"
	c.HTTP.Limits.Read = config.Rate{PerSecond: resilience.MinPerSecond, Burst: 3}
	a, err := New(Options{Config: c, Mode: ModeAPI, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	text, _, err := a.Store().CreateKey(t.Context(), "acme", "loud", []string{"read"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run: %v", err)
		}
	})
	get := func(path string) (int, string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.Addr().String()+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+text)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close() //nolint:errcheck // read to its end
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	refused := 0
	for range 40 { // some may be let through by the node alone, before its limiter runs
		if code, _ := get("/v1/channels"); code == http.StatusTooManyRequests {
			refused++
		}
	}
	if refused < 30 || refused > 37 {
		t.Errorf("%d of 40 were refused, want 37 or a few less", refused)
	}
	deadline := time.NewTimer(time.Minute) // a second, on an idle machine
	defer deadline.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		keys, err := a.Store().ListKeys(t.Context(), "acme")
		if err != nil || len(keys) != 1 {
			t.Fatalf("%d keys, %v", len(keys), err)
		}
		if keys[0].RefusedLastHour == int64(refused) && !keys[0].LastRefusedAt.IsZero() {
			break
		}
		select {
		case <-again.C:
		case <-deadline.C:
			t.Fatalf("%d refusals are shown, want %d", keys[0].RefusedLastHour, refused)
		}
	}
	if _, metrics := get("/metrics"); !strings.Contains(metrics, `dispatcher_rate_limited_total{class="read"} `) {
		t.Error("the metrics do not tell of it")
	}
}
