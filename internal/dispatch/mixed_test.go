package dispatch_test

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

var (
	mixedSeed  = flag.Uint64("mixed-seed", 1, "seed of the tests with mixed outcomes")
	mixedCount = flag.Int("mixed-count", 400, "notifications of each test with mixed outcomes")
)

// drawn is a source of randomness of its own for whatever words name.
func drawn(words ...any) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, words...) //nolint:errcheck // a hash takes everything
	return rand.New(rand.NewPCG(*mixedSeed, h.Sum64()))
}

// mixed answers as the seed says: a little more than half of the calls well.
func mixed(n int, m *channels.Message) channels.Result {
	r := drawn(m.Reference, m.To.Phone, m.To.Email != nil, n)
	pick := func(outcomes ...notify.Outcome) channels.Result {
		return channels.Result{Outcome: outcomes[r.IntN(len(outcomes))]}
	}
	switch p := r.IntN(100); {
	case p < 55:
		return channels.Ok(fmt.Sprintf("id-%d", r.Uint32()))
	case p < 70:
		return pick(notify.ProviderUnavailable, notify.RecipientUnavailable)
	case p < 80:
		return pick(notify.RecipientRejected, notify.MessageRejected, notify.Suppressed, notify.Expired)
	case p < 85:
		return channels.Result{Outcome: notify.Throttled, Scope: m.Reference, RetryAfter: time.Millisecond}
	case p < 86:
		panic("of the adapter")
	case p < 87:
		return channels.Result{Outcome: "nonsense"}
	case p < 88:
		return channels.Result{Outcome: notify.AccountRejected, Scope: m.Reference}
	}
	return pick(notify.Unknown)
}

// mixedNotification is the i-th of a test.
func mixedNotification(i int) notify.Notification {
	r := drawn(i)
	policies := []notify.UnknownPolicy{notify.Resend, notify.FallBack, notify.AssumeSent, notify.Reconcile, ""}
	some := func(c notify.Channel) notify.Step {
		return notify.Step{
			Channel: c, Within: notify.Duration(2 * time.Second), OnUnknown: policies[r.IntN(len(policies))], Attempts: r.IntN(4),
		}
	}
	chains := [][]notify.Step{
		{some(notify.SMS), some(notify.Email)},
		{some(notify.Email), some(notify.SMS)},
		{some(notify.SMS)},
		{some(notify.Email), some(notify.SMS), some(notify.WhatsApp)},
	}
	to := both
	to.WhatsApp = both.SMS
	n := notification(to, chains[r.IntN(len(chains))]...)
	n.Reference, n.Priority = strconv.Itoa(i), notify.Priority(1+r.IntN(4))
	n.ExpiresAt = n.CreatedAt.Add(30 * time.Second)
	if r.IntN(5) == 0 {
		n.Mode = notify.All
	}
	if r.IntN(10) == 0 {
		n.SendAt = n.CreatedAt.Add(time.Duration(r.IntN(500)) * time.Millisecond)
	}
	return n
}

func TestMixedOutcomesAllComeToTheirEnd(t *testing.T) {
	t.Parallel()
	t.Run("on a quiet day", func(t *testing.T) {
		t.Parallel()
		m := newMix(t)
		m.run(t, func(context.Context, *node) {})
	})
	t.Run("when much goes wrong", func(t *testing.T) {
		t.Parallel()
		m := newMix(t, func(s *setup) {
			s.prepare = func(d *dispatch.Dispatcher, s *store.Store) {
				s.SetQueue(twice{d.Queue()})
				d.LoseAnswers(func(string) bool { return rand.IntN(10) == 0 })
			}
		})
		m.run(t, func(ctx context.Context, n *node) {
			for _, sql := range []string{
				"delete from dispatcher.river_job",
				`select pg_terminate_backend(pid) from pg_stat_activity
					where datname = current_database() and pid <> pg_backend_pid() and random() < 0.5`,
			} {
				if _, err := n.store.Pool().Exec(ctx, sql); err != nil && ctx.Err() == nil {
					t.Log("fault not injected:", err)
				}
			}
		})
	})
}

// mix is two nodes that send many notifications with mixed outcomes.
type mix struct {
	nodes   [2]*node
	scripts map[notify.Channel]*script
}

func newMix(t *testing.T, adapt ...func(*setup)) *mix {
	t.Helper()
	m := &mix{scripts: map[notify.Channel]*script{}}
	var accounts []*dispatch.Account
	for _, c := range []notify.Channel{notify.SMS, notify.Email, notify.WhatsApp} {
		m.scripts[c] = newScript(c, mixed)
		a := account(m.scripts[c])
		a.Breaker.Failures = 1_000_000
		accounts = append(accounts, a)
	}
	url := pgURL(t)
	for i := range m.nodes {
		m.nodes[i] = start(t, url, registry(accounts...), adapt...)
	}
	return m
}

// faults is for how long a mix is disturbed, and how often.
const faults, faultEvery = 3 * time.Second, 200 * time.Millisecond

// run accepts all notifications through both nodes, while it calls disturb again
// and again, waits until all have ended, and checks what must hold.
func (m *mix) run(t *testing.T, disturb func(context.Context, *node)) {
	t.Helper()
	todo := make(chan int)
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := range todo {
				what := store.Accept{Notification: mixedNotification(i)}
				// A caller whose answer was lost repeats its request.
				for try := range 10 {
					_, err := m.nodes[w%2].Accept(t.Context(), what)
					if err == nil {
						break
					}
					if try == 9 {
						t.Errorf("accept: %v", err)
					}
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	wg.Go(func() {
		defer close(todo)
		for i := range *mixedCount {
			todo <- i
		}
	})
	began := time.Now()
	next, moved, last := began, began, progress{}
	for {
		switch now := m.progress(t); {
		case now.left == 0:
			wg.Wait()
			m.check(t)
			return
		case now != last:
			last, moved = now, time.Now()
		case time.Since(moved) > liveness:
			t.Fatalf("%d are left and nothing moves: %s", now.left, m.left(t))
		}
		if time.Now().After(next) && time.Since(began) < faults {
			next = time.Now().Add(faultEvery)
			disturb(ctx, m.nodes[1])
		}
		tick(t)
	}
}

// progress is how many have not ended, and how often anything has been decided.
type progress struct{ left, turns int }

func (m *mix) progress(t *testing.T) progress {
	t.Helper()
	var p progress
	err := m.nodes[0].store.Pool().QueryRow(t.Context(), `select $1 - (select count(*) from dispatcher.notifications)
		+ count(*) filter (where not final), coalesce(sum(turn), 0) from dispatcher.deliveries`, *mixedCount).Scan(&p.left, &p.turns)
	if err != nil {
		return progress{-1, 0} // a fault that was injected
	}
	return p
}

// left tells what has not ended.
func (m *mix) left(t *testing.T) string {
	t.Helper()
	rows, err := m.nodes[0].store.Pool().Query(t.Context(), `select row_to_json(d)::text
			|| coalesce((select ' job ' || j.state || ' ' || j.scheduled_at || ' ' || j.attempted_by::text
				from dispatcher.river_job j where j.id = d.job_id), '')
			|| coalesce((select ' wait ' || row_to_json(w) from dispatcher.waits w
				where (w.notification_id, w.step, w.target) = (d.notification_id, d.step, d.target)), '')
		from dispatcher.deliveries d where not final`)
	if err != nil {
		return err.Error()
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	return fmt.Sprintf("%s at %v (%v)", strings.Join(lines, "\n"), time.Now(), err)
}

// check reads what was written and holds it against what was called.
func (m *mix) check(t *testing.T) {
	t.Helper()
	called := map[uuid.UUID][]call{}
	for _, s := range m.scripts {
		for _, c := range s.sent() {
			called[c.key] = append(called[c.key], c)
		}
	}
	stories := m.stories(t)
	calls := 0
	rows, err := m.nodes[0].store.Pool().Query(t.Context(), "select id from dispatcher.notifications")
	if err != nil {
		t.Fatal(err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		r, err := m.nodes[0].store.Get(t.Context(), "default", id)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range r.Deliveries {
			key := notify.DeliveryKey(id, int(d.Step), int(d.Target), int(d.Round))
			checkCalls(t, r, d, called[key])
			calls += len(called[key])
			delete(called, key)
		}
		checkOrder(t, r)
		checkStory(t, r, stories[id])
	}
	if len(called) != 0 {
		t.Errorf("%d calls were made for no delivery", len(called))
	}
	t.Logf("%d notifications, %d calls", len(ids), calls)
}

// checkCalls checks that a delivery's attempts are its calls, and that none was
// made after one that may have been accepted, unless the policy says so.
func checkCalls(t *testing.T, r record, d store.Delivery, calls []call) {
	t.Helper()
	var attempts []store.Attempt
	for _, a := range r.Attempts {
		if a.DeliveryID == d.DeliveryID {
			attempts = append(attempts, a)
		}
	}
	if len(attempts) != len(calls) || int(d.Calls) != len(calls) {
		t.Errorf("%d attempts and %d claims of %d calls: %+v", len(attempts), d.Calls, len(calls), d)
		return
	}
	step := r.Notification.Chain[d.Step]
	policy := step.OnUnknown
	if policy == "" {
		policy = notify.DefaultUnknownPolicy(step.Channel)
	}
	for i, c := range calls {
		outcome := c.outcome
		if !outcome.Valid() {
			outcome = notify.Unknown
		}
		if attempts[i].Outcome != outcome {
			t.Errorf("call %d was %s and is kept as %s", i, outcome, attempts[i].Outcome)
		}
		if last := i == len(calls)-1; !last && (outcome == notify.Accepted || outcome == notify.Unknown && policy != notify.Resend && policy != notify.Reconcile) {
			t.Errorf("called again after %s under %s: %+v", outcome, policy, attempts)
		}
	}
}

// checkOrder checks that no step of a chain began before the one before it had
// ended without success.
func checkOrder(t *testing.T, r record) {
	t.Helper()
	if r.Notification.Mode == notify.All {
		return
	}
	for i, d := range r.Deliveries[:len(r.Deliveries)-1] {
		next := r.Deliveries[i+1]
		if next.Step != d.Step+1 || notify.UntilAccepted.MetBy(d.Status) || next.StartedAt.Before(d.FinishedAt) {
			t.Errorf("step %d ended %s at %v, step %d began at %v", d.Step, d.Status, d.FinishedAt, next.Step, next.StartedAt)
		}
	}
}

// told is an event as it is checked.
type told struct {
	kind  string
	step  int16
	whole bool
	final bool
}

func (m *mix) stories(t *testing.T) map[uuid.UUID][]told {
	t.Helper()
	rows, err := m.nodes[0].store.Pool().Query(t.Context(),
		"select notification_id, type, coalesce(step, 0), step is null, final from dispatcher.events order by id")
	if err != nil {
		t.Fatal(err)
	}
	out := map[uuid.UUID][]told{}
	var id uuid.UUID
	var e told
	if _, err := pgx.ForEachRow(rows, []any{&id, &e.kind, &e.step, &e.whole, &e.final}, func() error {
		out[id] = append(out[id], e)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// checkStory checks that a story begins with the acceptance, tells each end once,
// and ends once, with its last event and as the notification did.
func checkStory(t *testing.T, r record, story []told) {
	t.Helper()
	seen := map[told]int{}
	for i, e := range story {
		if (i == 0) != (e.kind == store.EventAccepted) || (i == len(story)-1) != e.final {
			t.Errorf("story %+v", story)
		}
		if e.kind != string(notify.Waiting) && e.kind != string(notify.Uncertain) {
			if seen[e]++; seen[e] > 1 {
				t.Errorf("told twice: %+v in %+v", e, story)
			}
		}
	}
	status, _ := r.Overall()
	if last := story[len(story)-1]; last.kind != dispatch.EventFinished && last.kind != string(status) {
		t.Errorf("ended %s, and told as %s", status, last.kind)
	}
}
