//go:build unix

package e2e_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// trickle is how many notifications come one by one beside a load, and pace how
// far apart.
const (
	trickle = 25
	pace    = 100 * time.Millisecond
)

func TestASlowEndpointDelaysNoOther(t *testing.T) {
	t.Parallel()
	healthy, err := sandbox.New(sandbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	healthy.Start(t.Context())
	t.Cleanup(func() { _ = healthy.Close() })
	u, err := url.Parse(healthy.HTTPURL())
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, func(a account) {
		if a["name"] == "webhook-main" {
			a["allow_private"] = append(a["allow_private"].([]any), u.Host)
		}
	})
	c.setChannel(t, "webhook", "max_in_flight", 64) // so that the slow endpoint would fill it for long
	nodes := c.three(t)
	c.faults(t, sandbox.Rule{Provider: "webhook", Answer: sandbox.RuleAnswer{Delay: notify.Duration(4 * time.Second)}})
	n := notifications(t, 1000)
	begin(t, nodes, 0, n, func(i int) object { return c.alone("webhook", i) }).wait(t)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	begin(t, nodes, n, n+trickle, func(i int) object {
		<-tick.C
		m := c.alone("webhook", i)
		m["to"] = object{"webhook": object{"url": healthy.HTTPURL() + "/webhook/" + reference(i)}}
		return m
	}).wait(t)
	eventually(t, patience, "the healthy endpoint has its messages", func() bool { return len(healthy.Messages(sandbox.Filter{})) >= trickle })
	// Three times sixteen places of four seconds: a minute and a half for all of it.
	left := c.count(t, unfinished)
	if t.Logf("%d of %d for the slow endpoint are left", left, n); left < n/4 {
		t.Errorf("only %d for the slow endpoint were left when the healthy one had its messages", left)
	}
	c.wantPrompt(t, healthy.Messages(sandbox.Filter{}), trickle)
}

// Twelve places of 300 ms each are forty calls a second. The flood is far more
// than that, so whoever had to share with it, or to queue behind it, would have to
// wait for longer than the test allows.
func TestAFloodDelaysNoCriticalMessage(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		projects int // that flood; 0 is the one that the critical ones are of
		priority string
	}{
		"of another project":                      {6, "normal"},
		"of its own project, which floods itself": {0, "low"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			floodAndTrickle(t, c.projects, c.priority)
		})
	}
}

// floodAndTrickle floods the SMS channel from so many projects and sends critical
// messages through it one by one meanwhile.
func floodAndTrickle(t *testing.T, projects int, priority string) {
	t.Helper()
	c := newCluster(t)
	c.setChannel(t, "sms", "max_in_flight", 4)
	c.slow(t, 2*callTime)
	nodes := c.three(t)
	flooding := nodes
	for p := range projects {
		made := run(t, command{args: []string{"keys", "create", "--project", fmt.Sprintf("flood-%d", p), "--scopes", "send,read"}, env: c.env()})
		made.want(t, 0)
		if p == 0 {
			flooding = nil
		}
		for _, n := range nodes {
			of := *n
			of.key = strings.TrimSpace(made.stdout)
			flooding = append(flooding, &of)
		}
	}
	n := notifications(t, 2000)
	begin(t, flooding, 0, n, func(i int) object {
		m := c.alone("sms", i)
		m["priority"] = priority
		return m
	}).wait(t)
	tick := time.NewTicker(pace)
	defer tick.Stop()
	begin(t, nodes, n, n+trickle, func(i int) object {
		<-tick.C
		m := c.alone("sms", i)
		m["priority"] = "critical"
		return m
	}).wait(t)
	var calls []sandbox.Message
	eventually(t, patience, "the critical ones are sent", func() bool {
		calls = slices.DeleteFunc(c.received("twilio"), func(m sandbox.Message) bool { return referenceOf(m) < reference(n) })
		return len(calls) >= trickle
	})
	left := c.count(t, unfinished)
	if t.Logf("%d of the flood are left", left); left < n/4 {
		t.Errorf("only %d of the flood were left when the critical ones had been sent", left)
	}
	c.wantPrompt(t, calls, trickle)
}

// wantPrompt checks that calls came soon after their notifications were accepted:
// half of them within seconds, where a flood takes most of a minute.
func (c *cluster) wantPrompt(t *testing.T, calls []sandbox.Message, want int) {
	t.Helper()
	rows, err := c.pool.Query(t.Context(), "select reference, created_at from dispatcher.notifications")
	if err != nil {
		t.Fatal(err)
	}
	accepted := map[string]time.Time{}
	var name string
	var at time.Time
	if _, err := pgx.ForEachRow(rows, []any{&name, &at}, func() error { accepted[name] = at; return nil }); err != nil {
		t.Fatal(err)
	}
	var took []time.Duration
	for _, m := range calls {
		took = append(took, m.ReceivedAt.Sub(accepted[referenceOf(m)]))
	}
	if len(took) != want {
		t.Fatalf("%d calls, want %d", len(took), want)
	}
	slices.Sort(took)
	median := took[want/2]
	t.Logf("from accepted to called: median %s, p99 %s", median, took[(want*99-1)/100])
	if limit := 3 * time.Second; median > limit {
		t.Errorf("half of the calls came later than %s, want %s", median, limit)
	}
}

// referenceOf names the notification that a call is of.
func referenceOf(m sandbox.Message) string { return referencePattern.FindString(m.To + " " + m.Text) }

// setChannel changes a setting of a channel in the configuration file.
func (c *cluster) setChannel(t *testing.T, channel, setting string, value any) {
	t.Helper()
	c.edit(t, func(file object) { file["channels"].(object)[channel].(object)[setting] = value })
}
