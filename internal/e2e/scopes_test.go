//go:build unix

package e2e_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// patient gives accounts times in which an observer can follow what breakers and
// gates do.
func patient(a account) {
	a["timeout"] = patientTimeout.String()
	a["retry"] = account{"base": "100ms", "cap": "500ms"}
	a["breaker"] = account{"open": "2s", "max_open": "2s"}
}

const patientTimeout = 2 * time.Second

// lateNews is after how long every node has learned of a breaker or a gate, also
// where its announcement was lost. Calls that had been started before are over
// then, too.
const lateNews = 1500 * time.Millisecond

// alone is the i-th notification of a load, for one channel and no other, with
// more attempts than any test uses up.
func (c *cluster) alone(channel string, i int) object {
	return object{
		"reference": reference(i),
		"to":        object{channel: c.address(channel, i)},
		"chain":     []object{{"channel": channel, "attempts": 20}},
		"content":   object{"title": "Test", "body": "This is " + reference(i)},
	}
}

// three starts as many nodes.
func (c *cluster) three(t *testing.T, args ...string) []*node {
	t.Helper()
	nodes := make([]*node, 3)
	for i := range nodes {
		nodes[i] = c.begin(t, args...)
	}
	for _, n := range nodes {
		n.await(t, "/readyz", http.StatusOK)
	}
	return nodes
}

// unavailable lets a provider answer nothing but 503, a moment after it was called.
func unavailable(provider string) sandbox.Rule {
	return sandbox.Rule{Provider: provider, Answer: sandbox.RuleAnswer{Status: http.StatusServiceUnavailable, Delay: notify.Duration(callTime)}}
}

// change is a row of breaker_events.
type change struct {
	at         time.Time
	generation int64
	from, to   string
	reason     string
	node       string
}

// changes returns what a breaker did, in order.
func (c *cluster) changes(t *testing.T, scope string) []change {
	t.Helper()
	rows, err := c.pool.Query(t.Context(), `
		select at, generation, from_state, to_state, reason, node from dispatcher.breaker_events where scope = $1 order by id`, scope)
	if err != nil {
		t.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (x change, err error) {
		return x, row.Scan(&x.at, &x.generation, &x.from, &x.to, &x.reason, &x.node)
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// opened counts how often a breaker opened.
func (c *cluster) opened(t *testing.T, scope string) int {
	t.Helper()
	return c.count(t, "select count(*) from dispatcher.breaker_events where scope = $1 and to_state = 'open'", scope)
}

// wantEachOnce checks that every notification was taken by its provider, and no
// more than once.
func wantEachOnce(t *testing.T, stories []*story) {
	t.Helper()
	wantEach(t, stories, func(s *story) string {
		taken := 0
		for _, m := range s.calls {
			if m.Answer.Accepted {
				taken++
			}
		}
		switch {
		case s.status != "sent" && s.status != "delivered":
			return "it was not delivered"
		case taken != 1:
			return "it was not taken exactly once"
		}
		return s.wrong()
	})
}
