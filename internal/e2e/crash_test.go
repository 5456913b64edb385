//go:build unix

package e2e_test

import (
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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
	<-nodes[0].ended
	left := c.fetchedBy(t, nodes[0])
	eventually(t, 20*time.Second, "the dead node is buried", func() bool { return !c.isRegistered(t, nodes[0]) })
	buried := time.Since(killed)
	l.wait(t)
	c.settled(t, n)

	stories := c.stories(t)
	repeated, resumed := newest(stories).Sub(killed), lastOf(stories, left).Sub(killed)
	t.Logf("buried after %.1f s, the last repeat after %.1f s, the last of %d that it had fetched after %.1f s; %d posts were refused; %s",
		buried.Seconds(), repeated.Seconds(), len(left), resumed.Seconds(), l.refused.Load(), outcomes(stories))
	if died(stories) == 0 {
		t.Error("no call was under way on the node that was killed: nothing was tested")
	}
	if limit := 20 * time.Second; buried > limit || repeated > limit || resumed > limit {
		t.Errorf("the dead node's work was not done again within %s", limit)
	}
	wantNothingLostOrDoubled(t, stories)
	nodes[1].wantRepeatShown(t, stories)
}

// fetchedBy returns what a node has taken from the queue.
func (c *cluster) fetchedBy(t *testing.T, n *node) []storyKey {
	t.Helper()
	rows, err := c.pool.Query(t.Context(), `
		select n.reference, d.channel from dispatcher.river_job j
		join dispatcher.deliveries d on d.job_id = j.id and not d.final join dispatcher.notifications n on n.id = d.notification_id
		where j.state = 'running' and j.attempted_by[array_upper(j.attempted_by, 1)] = $1::text`, n.id)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (k storyKey, err error) {
		return k, row.Scan(&k.reference, &k.channel)
	})
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// lastOf returns the latest start of an attempt at one of these steps.
func lastOf(stories []*story, keys []storyKey) time.Time {
	var at time.Time
	for _, s := range stories {
		if n := len(s.attempts); n > 0 && slices.Contains(keys, storyKey{s.reference, s.channel}) && s.attempts[n-1].started.After(at) {
			at = s.attempts[n-1].started
		}
	}
	return at
}

// wantRepeatShown checks that the API tells of a call that may have been made
// twice: the one that nobody knows the outcome of, and the one that repeated it.
func (n *node) wantRepeatShown(t *testing.T, stories []*story) {
	t.Helper()
	for _, s := range stories {
		if len(s.attempts) < 2 || s.attempts[0].outcome != "unknown" || s.refused > 0 {
			continue
		}
		v := n.byReference(t, s.reference)
		if a := v.Steps[s.step].Attempts; len(a) != len(s.attempts) || a[0].Outcome != "unknown" || a[0].PossibleDuplicate || !a[1].PossibleDuplicate {
			t.Errorf("the API shows %s as %+v", s, a)
		}
		return
	}
	t.Error("no call was repeated")
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
