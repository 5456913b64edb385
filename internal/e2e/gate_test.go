//go:build unix

package e2e_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

func TestAnInstantThatOneNodeReadHoldsForAll(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name  string
		deaf  bool
		grace time.Duration // after the commit
	}{
		{"when it is announced", false, 250 * time.Millisecond},
		{"when nobody hears the announcement", true, lateNews},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, patient)
			nodes := c.three(t)
			if test.deaf {
				c.deafen(t)
			}
			const quiet, burst = 3 * time.Second, 500 * time.Millisecond
			n := max(notifications(t, 360), 360) // more than may come back at once
			pace := time.NewTicker(2 * time.Second / time.Duration(n))
			defer pace.Stop()
			l := begin(t, nodes, 0, n, func(i int) object { <-pace.C; return c.alone("sms", i) })
			c.midway(t, n/10)
			c.faults(t, sandbox.Rule{
				Provider: "twilio", Times: 1,
				Answer: sandbox.RuleAnswer{Status: http.StatusTooManyRequests, Headers: map[string]string{"Retry-After": "3"}},
			})
			l.wait(t)
			c.settled(t, n)

			committed, opens := c.gate(t, twilioScope)
			var refusal time.Time
			held, early, first, late := 0, 0, 0, time.Duration(0)
			for _, m := range c.received("twilio") {
				at := m.ReceivedAt
				switch {
				case m.Answer.Status == http.StatusTooManyRequests:
					refusal = at
					continue
				case refusal.IsZero():
					continue
				case at.Before(opens):
					late = max(late, at.Sub(committed))
					if at.After(committed.Add(test.grace)) {
						early++
					}
					continue
				case at.Before(opens.Add(burst)):
					first++
				}
				held++
			}
			t.Logf("the last call came %s after the commit; of %d that were held %d came within %s of the opening", late, held, first, burst)
			if refusal.IsZero() || opens.Before(refusal.Add(quiet)) {
				t.Errorf("refused at %s until %s later", refusal, opens.Sub(refusal))
			}
			if early > 0 {
				t.Errorf("%d calls came later than %s after the commit and before the gate opened", early, test.grace)
			}
			if held < n/3 || first > held/2 {
				t.Errorf("of %d that were held %d came within %s of the opening", held, first, burst)
			}
			wantEachOnce(t, c.stories(t))
		})
	}
}

// gate returns when a scope's gate was shut, and until when.
func (c *cluster) gate(t *testing.T, scope string) (committed, opens time.Time) {
	t.Helper()
	err := c.pool.QueryRow(t.Context(), "select updated_at, not_before from dispatcher.gates where scope = $1", scope).Scan(&committed, &opens)
	if err != nil {
		t.Fatalf("no gate was shut: %v", err)
	}
	return committed, opens
}

// deafen ends every connection that listens, as often as one is made, until the
// test ends.
func (c *cluster) deafen(t *testing.T) {
	t.Helper()
	deafen := func(ctx context.Context) int {
		ended, err := c.pool.Exec(ctx, `select pg_terminate_backend(pid) from pg_stat_activity
			where datname = current_database() and application_name = 'dispatcher-listen'`)
		if err != nil && ctx.Err() == nil {
			t.Error(err)
		}
		return int(ended.RowsAffected())
	}
	if deafen(t.Context()) == 0 {
		t.Fatal("nobody listens")
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			deafen(ctx)
			<-tick.C
		}
	}()
	t.Cleanup(func() { stop(); <-done })
}
