//go:build unix

package e2e_test

import (
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"
)

// resending lets every account repeat a call whose outcome is unknown, so that
// the end of a crash does not take minutes.
func resending(a account) { a["on_unknown"] = "resend" }

// callTime is how long the providers of these tests take.
const callTime = 150 * time.Millisecond

// midway waits until the sandbox has received a share of a load.
func (c *cluster) midway(t *testing.T, calls int) {
	t.Helper()
	eventually(t, 30*time.Second, "the load is midway", func() bool { return len(c.received("")) >= calls })
}

func (c *cluster) isRegistered(t *testing.T, n *node) bool {
	t.Helper()
	return c.count(t, "select count(*) from dispatcher.nodes where id = $1", n.id) > 0
}

// died counts the attempts whose worker died before it knew the outcome.
func died(stories []*story) int {
	count := 0
	for _, s := range stories {
		for _, a := range s.attempts {
			if strings.Contains(a.detail, "worker died") {
				count++
			}
		}
	}
	return count
}

func TestAKilledNodesWorkIsDoneByTheOthers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick, resending)
	c.slow(t, callTime)
	nodes := []*node{c.serve(t), c.serve(t), c.serve(t)}
	n := notifications(t, 2000)
	l := begin(t, nodes, 0, n, c.message)
	c.midway(t, n/5)
	nodes[0].signal(t, syscall.SIGKILL)
	killed := time.Now()
	eventually(t, 20*time.Second, "the dead node is buried", func() bool { return !c.isRegistered(t, nodes[0]) })
	buried := time.Since(killed)
	l.wait(t)
	c.settled(t, n)

	stories := c.stories(t)
	last := newest(stories).Sub(killed)
	t.Logf("buried after %.1f s, the last repeat after %.1f s; %d posts were refused; %s",
		buried.Seconds(), last.Seconds(), l.refused.Load(), outcomes(stories))
	if died(stories) == 0 {
		t.Error("no call was under way on the node that was killed: nothing was tested")
	}
	if limit := 12 * time.Second; buried > limit || last > limit {
		t.Errorf("the dead node's work was not done again within %s", limit)
	}
	wantNothingLostOrDoubled(t, stories)
}

func TestAFrozenNodeThatWakesDoublesNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick, resending)
	c.slow(t, callTime)
	frozen, other := c.serve(t), c.serve(t)
	n := notifications(t, 1000)
	l := begin(t, []*node{other}, 0, n, c.message) // a frozen node answers nobody
	c.midway(t, n/5)
	frozen.signal(t, syscall.SIGSTOP)
	stopped := time.Now()
	l.wait(t)
	// Its connection lives, so that only the heartbeat's silence tells.
	eventually(t, 25*time.Second, "the frozen node is taken for dead", func() bool { return !c.isRegistered(t, frozen) })
	t.Logf("taken for dead after %.1f s", time.Since(stopped).Seconds())
	c.settled(t, n)
	stories := c.stories(t)
	if died(stories) == 0 {
		t.Error("no call was under way on the node that was stopped: nothing was tested")
	}
	wantNothingLostOrDoubled(t, stories)

	frozen.signal(t, syscall.SIGCONT)
	eventually(t, 20*time.Second, "the node is registered again", func() bool { return c.isRegistered(t, frozen) })
	frozen.await(t, "/readyz", http.StatusOK)
	other.signal(t, syscall.SIGTERM)
	if code := other.exit(t, 20*time.Second); code != 0 {
		t.Errorf("the other node's exit code is %d", code)
	}
	if v := frozen.finished(t, frozen.post(t, c.message(n))); v.Status != "sent" && v.Status != "delivered" {
		t.Errorf("the node that woke does not send: %+v", v)
	}
	c.settled(t, n+1)
	stories = c.stories(t)
	t.Log(outcomes(stories))
	wantNothingLostOrUnmarked(t, stories)
}
