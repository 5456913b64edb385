//go:build unix

package e2e_test

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// flood is what became of requests at a multiple of a limit.
type flood struct {
	asked   int
	shared  []string // the ids of those admitted with tokens that the nodes share
	alone   int      // admitted by a node that got no answer from the database in time
	begun   time.Time
	atFirst time.Time // when the first of shared was admitted, by its node's clock
	atLast  time.Time
}

// flooded posts at a rate for a time, over the nodes in turn. It makes up for what
// it was late for: on a busy machine it takes longer, but asks as often.
func (c *cluster) flooded(t *testing.T, nodes []*node, perSecond int, during time.Duration) flood {
	t.Helper()
	const callers = 25
	later := c.alone("sms", 1)
	later["send_at"] = time.Now().Add(time.Hour).Format(time.RFC3339) // the limit is what is tested
	body := encode(t, later)
	f := flood{begun: time.Now()}
	var mu sync.Mutex
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			due := time.NewTimer(0)
			defer due.Stop()
			for n := i; ; n += callers {
				at := time.Duration(n) * time.Second / time.Duration(perSecond)
				if at > during {
					return
				}
				due.Reset(time.Until(f.begun.Add(at)))
				<-due.C
				got, err := nodes[n%len(nodes)].call(t, http.MethodPost, "/v1/notifications", "", body)
				if err != nil || got.status != http.StatusAccepted && got.status != http.StatusTooManyRequests {
					t.Errorf("answered %d, %v: %s", got.status, err, got.body)
					return
				}
				mu.Lock()
				f.asked++
				switch {
				case got.status != http.StatusAccepted:
				case got.header.Get("X-RateLimit-Limit") == "":
					f.alone++
				default:
					var accepted struct{ ID string }
					got.decode(t, &accepted)
					f.shared = append(f.shared, accepted.ID)
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	err := c.pool.QueryRow(t.Context(), "select min(created_at), max(created_at) from dispatcher.notifications where id = any($1)", f.shared).
		Scan(&f.atFirst, &f.atLast)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// The share is counted over the time from the first to the last request that was
// let in, as the nodes saw it, so that nothing depends on how long this process
// waits for an answer. A process that the machine halts for as long as a leased
// token lasts loses the few that it holds, which is why less than the share is
// believed only when it is less each time; more than the share is wrong at once.
func TestACallerFarAboveItsLimitGetsItsShareFromAllNodesTogether(t *testing.T) {
	t.Parallel()
	const (
		rate, burst = 40, 80 // a pause of up to 2 s loses nothing that comes back
		during      = 8 * time.Second
		tries       = 5
		within      = 0.03
	)
	c := newCluster(t)
	nodes := c.three(t)
	for try := 1; ; try++ {
		key := c.makeKey(t, "greedy", "send", "--write", "40/s,80")
		f := c.flooded(t, withKey(nodes, key.Key), 10*rate, during)
		if t.Failed() {
			return
		}
		admitted := float64(len(f.shared))
		share := burst + rate*f.atLast.Sub(f.atFirst).Seconds()
		// The first token came back after the first request was sent, and one may be
		// spent as long as its lease lasts.
		most := burst + rate*(f.atLast.Sub(f.begun)+resilience.DefaultLeaseTTL).Seconds()
		t.Logf("%.0f of %d admitted in %s, which is %.1f %% of %.1f; %d more were decided by a node alone",
			admitted, f.asked, f.atLast.Sub(f.atFirst).Round(time.Millisecond), 100*admitted/share, share, f.alone)
		if float64(f.asked) < 9.9*rate*during.Seconds() {
			t.Errorf("only %d were asked for", f.asked)
		}
		if admitted > min(most, (1+within)*(burst+rate*f.atLast.Sub(f.begun).Seconds())) {
			t.Fatalf("%.0f were admitted, and at most %.1f may be", admitted, most)
		}
		// Each of three nodes that cannot ask gives its third.
		if float64(f.alone) > most {
			t.Fatalf("%d were admitted by nodes alone, and at most %.1f may be", f.alone, most)
		}
		switch {
		case admitted >= (1-within)*share:
			return
		case try == tries:
			t.Fatalf("%.0f were admitted, want %.1f within 3 %%, and it was too few %d times", admitted, share, tries)
		}
	}
}
