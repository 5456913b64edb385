//go:build unix

package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// load is notifications on their way in. Each is posted under an idempotency key
// of its own until a node answers 202, as a careful caller does, so that an
// answer that got lost with its node makes no second one.
type load struct {
	posted  atomic.Int64 // that got their 202
	refused atomic.Int64 // posts that got no 202
	wg      sync.WaitGroup
	stop    context.CancelFunc
}

const posters = 16

// patience is how long a load may take to get in, and how long to get out: seconds
// on an idle machine, far longer on a busy one.
const patience = 2 * time.Minute

// begin posts the notifications from one number to below another over the nodes in
// turn. message returns the i-th.
func begin(t *testing.T, nodes []*node, from, to int, message func(i int) object) *load {
	t.Helper()
	l := &load{}
	next := make(chan int, to-from)
	for i := from; i < to; i++ {
		next <- i
	}
	close(next)
	var ctx context.Context
	ctx, l.stop = context.WithCancel(t.Context())
	for range posters {
		l.wg.Go(func() {
			for i := range next {
				if !l.post(ctx, t, nodes, i, encode(t, message(i))) {
					return
				}
			}
		})
	}
	t.Cleanup(func() { l.stop(); l.wg.Wait() })
	return l
}

// post posts one until it is accepted; false means that the load was stopped.
func (l *load) post(ctx context.Context, t *testing.T, nodes []*node, i int, body []byte) bool {
	t.Helper()
	pause := time.NewTicker(50 * time.Millisecond)
	defer pause.Stop()
	for try := 0; ; try++ {
		got, err := nodes[(i+try)%len(nodes)].call(t, http.MethodPost, "/v1/notifications", fmt.Sprintf("load-%d", i), body)
		switch {
		case err == nil && got.status == http.StatusAccepted:
			l.posted.Add(1)
			return true
		case err == nil && got.status < http.StatusInternalServerError:
			t.Errorf("notification %d was answered %d: %s", i, got.status, got.body)
			return true
		}
		l.refused.Add(1)
		select {
		case <-ctx.Done():
			return false
		case <-pause.C:
		}
	}
}

// wait returns when all are accepted.
func (l *load) wait(t *testing.T) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); l.wg.Wait() }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatalf("only %d notifications were accepted within %s", l.posted.Load(), patience)
	}
}

// reference is what the i-th notification of a load is known by: it stands in
// its text and its address, so that the sandbox shows whose call it was.
func reference(i int) string { return fmt.Sprintf("e2e-%06d", i) }

// channels are all of them, in the order that a load goes through them.
var channels = []string{"push", "sms", "whatsapp", "email", "slack", "webhook"}

// message is the i-th notification of a load: first through its own channel, and
// then by another one.
func (c *cluster) message(i int) object {
	own := channels[i%len(channels)]
	other := "email"
	if own == "email" {
		other = "webhook"
	}
	return object{
		"reference": reference(i),
		"to":        object{own: c.address(own, i), other: c.address(other, i)},
		"chain":     []object{{"channel": own}, {"channel": other}},
		"content":   object{"title": "Test", "body": "This is " + reference(i)},
	}
}

// address is where the i-th notification goes on a channel.
func (c *cluster) address(channel string, i int) any {
	switch channel {
	case "push":
		return object{"provider": "fcm", "token": reference(i)}
	case "sms":
		return fmt.Sprintf("+1415%07d", i)
	case "whatsapp":
		return fmt.Sprintf("+1416%07d", i)
	case "email":
		return reference(i) + "@example.com"
	case "slack":
		return object{"channel": "#" + reference(i)}
	}
	return object{"url": c.sandbox.HTTPURL() + "/webhook/" + reference(i)}
}

const unfinished = `
select count(*) from dispatcher.notifications n
where not exists (select from dispatcher.deliveries d where d.notification_id = n.id)
   or exists (select from dispatcher.deliveries d where d.notification_id = n.id and not d.final)`

// settled waits until there are n notifications and all of them have ended.
func (c *cluster) settled(t *testing.T, n int) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(c.stuck())
		}
	})
	eventually(t, patience, fmt.Sprintf("%d notifications have ended", n), func() bool {
		return c.count(t, unfinished) == 0
	})
	if stored := c.count(t, "select count(*) from dispatcher.notifications"); stored != n {
		t.Errorf("%d notifications are stored, want the %d that were accepted", stored, n)
	}
}

// stuck tells of some deliveries that have not ended what holds them.
func (c *cluster) stuck() string {
	var rows []string
	err := c.pool.QueryRow(context.Background(), `
		select coalesce(array_agg(row_to_json(d)::text || ' wait ' || coalesce(row_to_json(w)::text, 'none') || ' job ' || coalesce(j.state::text, 'none')), '{}')
		from (select * from dispatcher.deliveries where not final limit 5) d
		left join dispatcher.waits w using (notification_id, step, target) left join dispatcher.river_job j on j.id = d.job_id`).Scan(&rows)
	return fmt.Sprint("not ended: ", strings.Join(rows, "\n"), err)
}
