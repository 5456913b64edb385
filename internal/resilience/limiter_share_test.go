package resilience_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// A caller at ten times its limit, over three nodes whose source takes from 1 to 40
// ms to answer, gets what the limit says: neither more, nor less because tokens are
// stranded on a node or die unspent. The clock is the bubble's, so the numbers are
// the same on every machine.
func TestThreeNodesTogetherGiveExactlyTheShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit resilience.Limit
		delay time.Duration
		cost  int
	}{
		{resilience.Limit{PerSecond: 20, Burst: 20}, ms, 1},
		{resilience.Limit{PerSecond: 50, Burst: 50}, 5 * ms, 1},
		{resilience.Limit{PerSecond: 50, Burst: 50}, 40 * ms, 1},
		{resilience.Limit{PerSecond: 50, Burst: 200}, 5 * ms, 7},
		{resilience.Limit{PerSecond: 1000, Burst: 1000}, 5 * ms, 1},
	} {
		t.Run(fmt.Sprintf("%g a second, %d at once, cost %d, %s", c.limit.PerSecond, c.limit.Burst, c.cost, c.delay), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const during = 10 * time.Second
				s := &source{t: t, delay: c.delay, keys: map[string]*resilience.GCRA{}}
				ctx, cancel := context.WithCancel(t.Context())
				var run, callers sync.WaitGroup
				var nodes [3]*resilience.Limiter
				for i := range nodes {
					nodes[i] = resilience.NewLimiter(resilience.LimiterConfig{Source: s})
					run.Go(func() { nodes[i].Run(ctx) })
				}
				synctest.Wait()
				burst, rate := float64(c.limit.Burst), c.limit.PerSecond
				offered := int(10 * (burst + rate*during.Seconds()) / float64(c.cost))
				tick := time.NewTicker(during / time.Duration(offered))
				var through atomic.Int64
				for i := range offered {
					callers.Go(func() {
						if nodes[i%len(nodes)].Take(ctx, "greedy", c.limit, c.cost).OK {
							through.Add(int64(c.cost))
						}
					})
					<-tick.C
				}
				tick.Stop()
				callers.Wait()
				cancel()
				run.Wait()
				share, got := burst+rate*during.Seconds(), float64(through.Load())
				t.Logf("%.0f of %.0f went through, %.2f %%", got, share, 100*got/share)
				if got < 0.97*share || got > 1.03*share {
					t.Errorf("%.0f went through, want %.0f within 3 %%", got, share)
				}
				for i, n := range nodes {
					if local := n.Stats().Local; local > 0 {
						t.Errorf("node %d decided %d times by itself", i, local)
					}
				}
			})
		})
	}
}
