//go:build unix

package e2e_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// shut is a way in which a channel comes to stand still.
type shut struct {
	channel      string
	reasons      []string // why its messages wait
	fault        *sandbox.Rule
	path, repair string // what an operator calls, the latter when all is well again; empty for nothing
	how, undo    object
}

func ways() []shut {
	refuse := func(provider string, status int, headers map[string]string) *sandbox.Rule {
		return &sandbox.Rule{Provider: provider, Answer: sandbox.RuleAnswer{Status: status, Headers: headers}}
	}
	const why = "a test"
	return []shut{
		{channel: "sms", reasons: []string{"breaker_open"}, fault: refuse("twilio", http.StatusServiceUnavailable, nil)},
		{channel: "whatsapp", reasons: []string{"throttled"}, fault: refuse("meta", http.StatusTooManyRequests, map[string]string{"Retry-After": "3"})},
		{
			channel: "push", reasons: []string{"breaker_open"}, path: "/v1/channels/fcm-main/breaker", how: object{"action": "open", "why": why},
			repair: "/v1/channels/fcm-main/breaker", undo: object{"action": "reset", "why": why},
		},
		{
			channel: "email", reasons: []string{"paused"}, path: "/v1/channels/email/pause", how: object{"why": why},
			repair: "/v1/channels/email/resume", undo: object{"why": why},
		},
		{
			channel: "slack", reasons: []string{"account_rejected", "breaker_open"}, fault: refuse("slack", http.StatusUnauthorized, nil),
			repair: "/v1/channels/slack-main/breaker", undo: object{"action": "reset", "why": why},
		},
	}
}

// What is shut by one node, or through one, is shut on all, and every node shows
// it.
func TestWhatAShutChannelHoldsIsShownAndDeliveredAfterTheRepair(t *testing.T) {
	t.Parallel()
	c := newCluster(t, patient)
	nodes := c.three(t)
	var rules []sandbox.Rule
	for i, w := range ways() {
		if w.fault != nil {
			rules = append(rules, *w.fault)
		}
		if w.path != "" {
			nodes[i%len(nodes)].operate(t, w.path, w.how)
		}
	}
	c.faults(t, rules...)
	const each = 30
	c.heard(t, nodes)
	n := each * len(ways())
	begin(t, nodes, 0, n, func(i int) object { return c.alone(ways()[i%len(ways())].channel, i) }).wait(t)

	for i, w := range ways() {
		showing := nodes[i%len(nodes)]
		eventually(t, 20*time.Second, fmt.Sprint(w.channel, " is shown to hold all because ", w.reasons), func() bool {
			held, backlog := 0, showing.backlog(t, w.channel)
			for _, reason := range w.reasons {
				held += backlog[reason]
			}
			return held == each
		})
		eventually(t, 20*time.Second, fmt.Sprint("a notification is shown to wait because ", w.reasons), func() bool {
			v := showing.byReference(t, reference(i))
			return v.FinishedAt == nil && v.Waiting != nil && slices.Contains(w.reasons, v.Waiting.Reason)
		})
	}
	for _, s := range c.stories(t) {
		for _, m := range s.calls {
			if m.Answer.Accepted {
				t.Errorf("it was sent while its channel was shut: %s", s)
			}
		}
	}

	c.faults(t)
	for i, w := range ways() {
		if w.repair != "" {
			nodes[(i+1)%len(nodes)].operate(t, w.repair, w.undo)
		}
	}
	c.settled(t, n)
	stories := c.stories(t)
	t.Log(outcomes(stories))
	wantEachOnce(t, stories)
	for _, w := range ways() {
		if left := nodes[0].backlog(t, w.channel); len(left) > 0 {
			t.Errorf("%s still shows as waiting %v", w.channel, left)
		}
	}
}

// heard waits until every node has been alive for as long as news may take.
func (c *cluster) heard(t *testing.T, nodes []*node) {
	t.Helper()
	said := time.Now()
	for _, n := range nodes {
		eventually(t, 20*time.Second, "every node has heard the news", func() bool { return c.lastBeat(t, n).Sub(said) > lateNews })
	}
}

// operate does as an operator does.
func (n *node) operate(t *testing.T, path string, body object) {
	t.Helper()
	got, err := n.call(t, http.MethodPost, path, "", encode(t, body))
	if err != nil {
		t.Fatal(err)
	}
	if got.status != http.StatusOK {
		t.Fatalf("%s answers %d: %s", path, got.status, got.body)
	}
}

// backlog returns how many deliveries of a channel wait, by reason.
func (n *node) backlog(t *testing.T, channel string) map[string]int {
	t.Helper()
	got, err := n.call(t, http.MethodGet, "/v1/channels", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	var page struct {
		Items []struct {
			Channel string
			Backlog struct{ Waiting map[string]int }
		}
	}
	got.decode(t, &page)
	for _, item := range page.Items {
		if item.Channel == channel {
			return item.Backlog.Waiting
		}
	}
	t.Fatalf("%s is not shown: %s", channel, got.body)
	return nil
}

// byReference shows the notification of a load that has this reference.
func (n *node) byReference(t *testing.T, reference string) notification {
	t.Helper()
	got, err := n.call(t, http.MethodGet, "/v1/notifications?reference="+reference, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	var page struct{ Items []notification }
	if got.decode(t, &page); len(page.Items) != 1 {
		t.Fatalf("%s is listed as %s", reference, got.body)
	}
	return n.show(t, page.Items[0].ID)
}
