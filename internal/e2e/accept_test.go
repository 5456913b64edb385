//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRacingPostsWithOneKeyMakeOneNotification(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	nodes := c.three(t)
	const racers = 200
	body := encode(t, c.alone("sms", 1))
	answers := make([]answer, racers)
	var ready, done sync.WaitGroup
	ready.Add(racers)
	for i := range racers {
		done.Go(func() {
			ready.Done()
			ready.Wait()
			var err error
			if answers[i], err = nodes[i%len(nodes)].call(t, http.MethodPost, "/v1/notifications", "one-and-the-same", body); err != nil {
				t.Errorf("post %d: %v", i, err)
			}
		})
	}
	done.Wait()
	replayed := 0
	for i, a := range answers {
		if a.status != http.StatusAccepted || !bytes.Equal(a.body, answers[0].body) || a.header.Get("Location") != answers[0].header.Get("Location") {
			t.Fatalf("answer %d is %d %s, and the first %d %s", i, a.status, a.body, answers[0].status, answers[0].body)
		}
		if a.header.Get("Idempotent-Replayed") == "true" {
			replayed++
		}
	}
	if replayed != racers-1 {
		t.Errorf("%d answers are marked as replayed, want all but one of %d", replayed, racers)
	}
	c.settled(t, 1)
	wantEachOnce(t, c.stories(t))
}

// made is a new key with limits of its own.
type made struct{ ID, Key string }

func (c *cluster) makeKey(t *testing.T, project, scopes string, limits ...string) made {
	t.Helper()
	r := run(t, command{args: []string{"keys", "create", "--project", project, "--scopes", scopes, "--json"}, env: c.env()})
	r.want(t, 0)
	var k made
	if err := json.Unmarshal([]byte(r.stdout), &k); err != nil {
		t.Fatalf("keys create --json prints %s: %v", r.stdout, err)
	}
	run(t, command{args: append(append([]string{"keys", "limit"}, limits...), k.ID), env: c.env()}).want(t, 0)
	return k
}

// withKey is the nodes as another caller reaches them.
func withKey(nodes []*node, key string) []*node {
	out := make([]*node, len(nodes))
	for i, n := range nodes {
		of := *n
		of.key = key
		out[i] = &of
	}
	return out
}

// psql runs a script in a session of its own and returns what it prints.
func (c *cluster) psql(t *testing.T, script string) string {
	t.Helper()
	path, err := exec.LookPath("psql")
	if err != nil && os.Getenv("CI") == "" {
		t.Skip(err)
	}
	cmd := exec.CommandContext(t.Context(), path, "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", c.database)
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

const enqueueing = `
begin;
insert into orders values ('%s');
select dispatcher.enqueue('{"project":"default","reference":"%s","idempotency_key":"order",
  "to":{"sms":"+14155550100"},"chain":[{"channel":"sms"}],"content":{"body":"This is %s"}}') is not null;
select extract(epoch from clock_timestamp());
`

func TestWhatASQLSessionEnqueuesIsSentIfAndOnlyIfItCommits(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.three(t)
	role := c.psql(t, "create table orders (id text); select session_user")
	run(t, command{args: []string{"roles", "bind", role, "default"}, env: c.env()}).want(t, 0)
	stored := func() (n int) {
		for _, table := range []string{"notifications", "deliveries", "events", "enqueued", "idempotency_keys", "waits", "river_job"} {
			n += c.count(t, "select count(*) from dispatcher."+table)
		}
		return n + c.count(t, "select count(*) from orders")
	}
	session := func(i int, end string) time.Time {
		t.Helper()
		seen, at, _ := strings.Cut(c.psql(t, strings.ReplaceAll(enqueueing, "%s", reference(i))+end), "\n")
		seconds, err := strconv.ParseFloat(at, 64)
		if seen != "t" || err != nil {
			t.Fatalf("the session printed %q, %q", seen, at)
		}
		return time.UnixMicro(int64(seconds * 1e6))
	}

	session(1, "rollback;")
	if n := stored(); n != 0 {
		t.Errorf("a session that rolled back left %d rows", n)
	}
	committed := session(2, "commit;") // with the same key, which is free again
	c.settled(t, 1)
	stories := c.stories(t)
	wantEachOnce(t, stories)
	if calls := c.received(""); len(calls) != 1 || referenceOf(calls[0]) != reference(2) || c.count(t, "select count(*) from orders") != 1 {
		t.Fatalf("the providers received %+v, want one call for %s", calls, reference(2))
	}
	took := c.received("")[0].ReceivedAt.Sub(committed)
	t.Logf("from before the commit to the provider: %s", took)
	if took > 10*time.Second {
		t.Errorf("the provider was called %s after the commit", took)
	}
}
