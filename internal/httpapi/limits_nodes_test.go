package httpapi_test

import (
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// limitedNode is an API node whose keys and limits are in Postgres.
func limitedNode(t *testing.T, url string, limit resilience.Limit) (*service, *store.Store, *resilience.Limiter) {
	t.Helper()
	db, err := store.Open(t.Context(), url, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	limiter := running(t, db)
	s := newService(t, func(c *httpapi.Config) {
		c.Keys, c.Limits = db, limitsOf(limiter, 1000)
		c.Limits.Classes[store.ClassWrite] = limit
	})
	return s, db, limiter
}

func TestTwoNodesTogetherLetThroughWhatTheLimitSays(t *testing.T) {
	t.Parallel()
	limit := resilience.Limit{PerSecond: 100, Burst: 200}
	url := pgtest.URL(t)
	one, db, limiterOne := limitedNode(t, url, limit)
	two, _, limiterTwo := limitedNode(t, url, limit)
	key := keyFor(t, db, "acme")

	local := func() int64 { return limiterOne.Stats().Local + limiterTwo.Stats().Local }
	before := local()
	var passed, asked atomic.Int64
	var callers sync.WaitGroup
	begin := time.Now()
	end := begin.Add(time.Second)
	for _, node := range []*service{one, two} {
		for range 8 {
			callers.Go(func() {
				for time.Now().Before(end) {
					asked.Add(1)
					switch a := node.do(t, "POST", "/v1/notifications", good, key); a.Code {
					case http.StatusAccepted:
						passed.Add(1)
					case http.StatusTooManyRequests:
					default:
						t.Errorf("status %d: %s", a.Code, a.Body)
						return
					}
				}
			})
		}
	}
	callers.Wait()
	took := time.Since(begin)

	most := int64(float64(limit.Burst) + limit.PerSecond*(took+resilience.DefaultLeaseTTL).Seconds())
	statements := limiterOne.Stats().Statements + limiterTwo.Stats().Statements
	t.Logf("%d of %d passed in %v with %d statements", passed.Load(), asked.Load(), took.Round(time.Millisecond), statements)
	if n := local() - before; n > 0 {
		t.Errorf("%d decisions were local", n)
	}
	if passed.Load() > most {
		t.Errorf("%d passed, at most %d may", passed.Load(), most)
	}
	if passed.Load() < int64(limit.Burst)*8/10 {
		t.Errorf("%d passed, which is not even most of the burst", passed.Load())
	}
	if asked.Load() < 3*most {
		t.Skipf("only %d were asked for, too few to show anything", asked.Load())
	}
	if statements > asked.Load()/4 {
		t.Errorf("%d statements for %d requests", statements, asked.Load())
	}
}

func TestAKeysLimitTakesEffectOnEveryNode(t *testing.T) {
	t.Parallel()
	limit := resilience.Limit{PerSecond: 10, Burst: 1000}
	url := pgtest.URL(t)
	one, db, _ := limitedNode(t, url, limit)
	two, _, _ := limitedNode(t, url, limit)
	key := keyFor(t, db, "acme")
	keys, err := db.ListKeys(t.Context(), "acme")
	if err != nil || len(keys) != 1 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	shown := func(node *service) string {
		return node.do(t, "POST", "/v1/notifications", good, key).want(202).Header().Get("X-RateLimit-Limit")
	}
	for _, node := range []*service{one, two} {
		if got := shown(node); got != "1000" {
			t.Fatalf("limit %s, want 1000", got)
		}
	}
	one.do(t, "PATCH", "/v1/keys/"+keys[0].ID.String(), `{"limits":{"write":{"per_second":100,"burst":5000}}}`, key).want(200)
	deadline := time.NewTimer(time.Minute) // a second, on an idle machine
	defer deadline.Stop()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for shown(two) != "5000" || shown(one) != "5000" {
		select {
		case <-again.C:
		case <-deadline.C:
			t.Fatal("the new limit does not take effect")
		}
	}
}

func TestAnInterruptedBatchGoesOnWhenTheLimitAllows(t *testing.T) {
	t.Parallel()
	source := &tokens{keys: map[string]*resilience.GCRA{}}
	var limits *httpapi.RateLimits
	s, db := overPostgres(t, func(c *httpapi.Config) {
		c.Limits = limitsOf(running(t, source), 400)
		limits = c.Limits
	})
	key := keyFor(t, db, "acme")
	body := strings.Join(rowsOf(0, 600), "\n")
	post := func() (statuses map[int]int, replayed int) {
		statuses = map[int]int{}
		for _, r := range lines(t, s.do(t, "POST", batchPath, body, key, asLines, header{"Idempotency-Key", "import"}).want(200).Body) {
			statuses[r.Status]++
			if r.Replayed {
				replayed++
			}
		}
		return statuses, replayed
	}
	// Parts of 250 are let in whole, so that each repetition gets further.
	if got, _ := post(); got[202] != 250 || got[429] != 350 {
		t.Fatalf("results %v, want 250 accepted", got)
	}
	// The second part was not kept and is paid for in the next try; the first is free.
	source.forget()
	limits.Classes[store.ClassWrite] = resilience.Limit{PerSecond: never, Burst: 350}
	if got, replayed := post(); got[202] != 600 || replayed != 0 {
		t.Fatalf("results %v with %d rows accepted before, want 600 accepted", got, replayed)
	}
	limits.Classes[store.ClassWrite] = resilience.Limit{PerSecond: never, Burst: 1}
	source.forget()
	if got, _ := post(); got[202] != 600 { // only the request itself costs
		t.Errorf("results %v of a batch that was finished", got)
	}
}
