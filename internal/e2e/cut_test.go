//go:build unix

package e2e_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// trust is how long after its last confirmed beat a node may start calls, and the
// time that one takes to arrive on a busy machine.
const trust = 4*time.Second + time.Second

// otherNumber is what nodes behind a link send from.
const otherNumber = "+14155559876"

// behind makes a cluster's nodes reach its database over a link, and their texts
// come from a number by which the sandbox tells them apart.
func (c *cluster) behind(t *testing.T, l *link) *cluster {
	t.Helper()
	text, err := os.ReadFile(c.config)
	if err != nil {
		t.Fatal(err)
	}
	far := *c
	far.database, far.config = l.url, filepath.Join(c.folder, "behind.yaml")
	if err := os.WriteFile(far.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	far.edit(t, func(file object) {
		for _, a := range file["channels"].(object)["sms"].(object)["accounts"].([]any) {
			a.(account)["from"] = otherNumber
		}
	})
	return &far
}

// claims counts what a node has claimed since an instant and not settled.
func (c *cluster) claims(t *testing.T, n *node, since time.Time) int {
	t.Helper()
	return c.count(t, "select count(*) from dispatcher.deliveries where claimed_by = $1 and claimed_at > $2 and not final", n.id, since)
}

// fromBehind returns the calls of nodes behind a link.
func (c *cluster) fromBehind() []sandbox.Message {
	return slices.DeleteFunc(c.received("twilio"), func(m sandbox.Message) bool { return m.From != otherNumber })
}

func TestANodeThatIsCutOffFromPostgresLeavesItsWorkAndComesBack(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		cut   func(*link)
		load  time.Duration // how long posts go on
		after time.Duration // of the last beat: when the others may take over
	}{
		// The server sees its connections alive, and the node's lock held.
		{"by a network that keeps silent", (*link).silence, 20 * time.Second, 15 * time.Second},
		{"by a network that ends connections", (*link).breakOff, 10 * time.Second, 5 * time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, quick, resending)
			c.slow(t, 10*callTime) // which is less than the accounts' timeout: what was called first is under way still at the cut
			way := newLink(t, c.database)
			cut, other := c.behind(t, way).serve(t), c.serve(t)
			n := notifications(t, 400)
			pace := time.NewTicker(4 * test.load / time.Duration(n))
			defer pace.Stop()
			l := begin(t, []*node{other}, 0, n, func(i int) object {
				if i > 3*n/4 { // most at once, so that much is under way
					select {
					case <-pace.C:
					case <-t.Context().Done():
					}
				}
				return c.alone("sms", i)
			})
			eventually(t, 20*time.Second, "the node calls", func() bool { return len(c.fromBehind()) > n/20 })
			// What it claimed and has not heard of tempts a node to call late.
			// On a busy machine the load may be over before that comes about.
			var deaf time.Time // zero when it hears
			tempting := time.Now()
			eventually(t, 20*time.Second, "it claims and does not hear of it, or was tempted long enough", func() bool {
				if deaf.IsZero() {
					way.answers.shut()
					deaf = time.Now()
				}
				claimed := c.claims(t, cut, deaf) > 0
				if !claimed && time.Since(deaf) > 100*time.Millisecond {
					way.answers.open() // what comes through lets it claim
					deaf = time.Time{}
				}
				if !claimed && time.Since(tempting) > 500*time.Millisecond {
					t.Log("the node claimed nothing that it did not hear of")
					way.answers.open()
					return true
				}
				return claimed
			})
			test.cut(way)
			begun := time.Now()
			cut.await(t, "/readyz", http.StatusServiceUnavailable)
			eventually(t, 25*time.Second, "the node is taken for dead", func() bool { return !c.isRegistered(t, cut) })
			buried := time.Since(begun)
			eventually(t, 20*time.Second, "what it had claimed is done", func() bool { return c.claims(t, cut, time.Time{}) == 0 })
			var left []string // what it had claimed, done by the other one
			for _, s := range c.stories(t) {
				if died([]*story{s}) > 0 {
					left = append(left, s.reference)
				}
			}
			eventually(t, 20*time.Second, "what it left is done", func() bool {
				return c.count(t, `select count(*) from dispatcher.deliveries d join dispatcher.notifications n on n.id = d.notification_id
					where n.reference = any($1) and not d.final`, left) == 0
			})

			way.heal()
			healed := time.Now()
			eventually(t, 20*time.Second, "the node is registered again", func() bool { return c.isRegistered(t, cut) })
			cut.await(t, "/readyz", http.StatusOK)
			back := time.Since(healed)
			l.wait(t)
			c.settled(t, n)
			// The other node might be quicker to fetch what comes now.
			other.signal(t, syscall.SIGTERM)
			other.exit(t, 20*time.Second)
			begin(t, []*node{cut}, n, n+50, func(i int) object { return c.alone("sms", i) }).wait(t)
			c.settled(t, n+50)

			stories := c.stories(t)
			during, after := 0, 0
			for _, m := range c.fromBehind() {
				switch at := m.ReceivedAt; {
				case at.After(begun.Add(trust)) && at.Before(healed):
					t.Errorf("a node that was cut off called %s after the cut", at.Sub(begun))
				case at.After(healed):
					after++
					if slices.Contains(left, referenceOf(m)) {
						t.Errorf("%s was called again by the node that it had been taken from", referenceOf(m))
					}
				case at.After(begun):
					during++
				}
			}
			t.Logf("buried after %.1f s with %d claims, back after %.1f s; %d calls from it after the cut, %d after its end; %s",
				buried.Seconds(), len(left), back.Seconds(), during, after, outcomes(stories))
			if early, late := test.after-2*time.Second, test.after+20*time.Second; buried < early || buried > late {
				t.Errorf("it was taken for dead %s after the cut, want %s", buried, test.after)
			}
			if len(left) == 0 {
				t.Error("it had claimed nothing: nothing was tested")
			}
			if after == 0 {
				t.Error("it does not call again")
			}
			wantNothingLostOrUnmarked(t, stories)
		})
	}
}

// A node that is slow to come back after a restart is no dead one, although its
// lock is free and its beat is old.
func TestARestartOfPostgresRepeatsNoCallOfALivingNode(t *testing.T) {
	t.Parallel()
	const away, head = 6 * time.Second, 3 * time.Second
	server := startPostgres(t)
	database := server.cluster.URL("postgres")
	if err := store.Migrate(context.WithoutCancel(t.Context()), database); err != nil {
		t.Fatal(err)
	}
	c := newClusterOn(t, database, quick, resending)
	c.slow(t, 6*callTime)
	way := newLink(t, database)
	slow, soon := c.behind(t, way).serve(t), c.serve(t)
	nodes := []*node{soon, slow}
	n := notifications(t, 400)
	l := begin(t, nodes, 0, n, func(i int) object { return c.alone("sms", i) })
	eventually(t, 20*time.Second, "calls of both nodes are under way", func() bool {
		return c.claims(t, slow, time.Time{}) > 0 && c.claims(t, soon, time.Time{}) > 0
	})
	way.breakOff()
	server.stopFast(t)
	stopped := time.Now()
	eventually(t, 2*away, "all beats are old", func() bool { return time.Since(stopped) > away })
	server.start(t)
	begun := time.Now()
	soon.await(t, "/readyz", http.StatusOK)
	eventually(t, 20*time.Second, "the first node that is back has had its time to judge the other", func() bool {
		return c.count(t, "select count(*) from dispatcher.nodes where id = $1 and beat_at > $2", soon.id, begun.Add(head)) > 0
	})
	if c.count(t, "select count(*) from dispatcher.nodes where id = $1 and beat_at < clock_timestamp() - interval '5 seconds'", slow.id) != 1 {
		t.Error("the other node is not registered, or not late")
	}
	left := c.claims(t, slow, time.Time{})
	way.heal()
	slow.await(t, "/readyz", http.StatusOK)
	l.wait(t)
	c.settled(t, n)

	stories := c.stories(t)
	t.Logf("%d claims of the node that came back late; %d posts were refused; %s", left, l.refused.Load(), outcomes(stories))
	if left == 0 {
		t.Error("it had no call under way: nothing was tested")
	}
	if repeats := newest(stories); died(stories) > 0 || !repeats.IsZero() {
		t.Errorf("%d calls of nodes that live count as unknown", died(stories))
	}
	wantEachOnce(t, stories)
}
