package dispatch_test

import (
	"context"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

func onlyAccept(s *setup) { s.Work = false }

func hold(s *setup) { s.Hold = true }

func TestANodeThatOnlyAcceptsLeavesTheWorkToOthers(t *testing.T) {
	t.Parallel()
	url, sms := pgURL(t), newScript(notify.SMS, ok)
	api, worker := start(t, url, registry(account(sms)), onlyAccept), start(t, url, registry(account(sms)))
	eventually(t, "both work", func() bool { return api.Working() && worker.Working() })
	begun := time.Now()
	_, r := worker.final(t, api.accept(t, notification(both, step(notify.SMS))))
	if r.Attempts[0].Node != worker.Node() {
		t.Errorf("sent by %v", r.Attempts[0].Node)
	}
	if took := sms.sent()[0].at.Sub(begun); took > soon {
		t.Errorf("the worker was woken after %v", took)
	}
}

func TestANodeOnHoldSendsNothingUntilItIsReleased(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, ok)
	n := start(t, pgURL(t), registry(account(sms)), hold)
	eventually(t, "it is up", n.Working)
	id := n.accept(t, notification(both, step(notify.SMS)))
	late := notification(both, step(notify.SMS))
	late.SendAt = late.CreatedAt.Add(time.Millisecond)
	n.accept(t, late)
	// Nothing is fetched, so nothing is put back again and again either.
	eventually(t, "the sweep has been there", func() bool { return n.Sweep(t.Context()) == nil })
	if got := n.count(t, "select count(*) from dispatcher.river_job where state = 'available' and attempt = 0"); got != 1 || len(sms.sent()) != 0 {
		t.Errorf("%d untouched jobs, %d calls", got, len(sms.sent()))
	}
	n.Release()
	n.Release() // does no harm
	n.final(t, id)
	n.final(t, late.ID)
	if !n.Working() {
		t.Error("it does not say that it works")
	}
}

// deadNode makes it look as if a node had fetched the jobs of the given
// notifications, claimed some of them and died.
func (n *node) deadNode(t *testing.T, claimed ...uuid.UUID) uuid.UUID {
	t.Helper()
	id := uuid.New()
	n.exec(t, `insert into dispatcher.nodes (id, lock_key, name, started_at, beat_at)
		values ($1::uuid, hashtextextended($1::uuid::text, 0), 'dead', now() - interval '1 hour', now() - interval '6 seconds')`, id)
	n.exec(t, `update dispatcher.river_job set state = 'running', attempted_at = now(), attempt = 1, attempted_by = array[$1::uuid::text]`, id)
	for _, c := range claimed {
		n.exec(t, `update dispatcher.deliveries set status = 'sending', claimed_by = $1, claim_id = gen_random_uuid(), claimed_at = now(),
			account = channel || '-main', calls = calls + 1 where notification_id = $2`, id, c)
	}
	return id
}

func TestADeadNodesWorkIsTakenOver(t *testing.T) {
	t.Parallel()
	url := pgURL(t)
	sms, email := newScript(notify.SMS, ok), newScript(notify.Email, ok)
	r := registry(account(sms), account(email))
	api := start(t, url, r, onlyAccept)
	unclaimed := api.accept(t, notification(both, step(notify.SMS)))
	resent := api.accept(t, notification(both, step(notify.Email)))
	reconciled := api.accept(t, notification(both, step(notify.SMS)))
	dead := api.deadNode(t, resent, reconciled)
	begun := time.Now()
	worker := start(t, url, r)
	if status, r := worker.final(t, unclaimed); status != notify.Sent || len(r.Attempts) != 1 || r.Attempts[0].PossibleDuplicate {
		t.Errorf("not claimed: status %s, attempts %+v", status, r.Attempts)
	}
	status, rec := worker.final(t, resent)
	if a := rec.Attempts; status != notify.Sent || len(a) != 2 || a[0].Outcome != notify.Unknown || a[0].Node != dead || !a[1].PossibleDuplicate {
		t.Errorf("claimed, to be sent again: status %s, attempts %+v", status, a)
	}
	rec = worker.waiting(t, reconciled, notify.WaitReconcile)
	if d := rec.Deliveries[0]; d.Status != notify.Uncertain || d.Crashes != 1 || rec.Attempts[0].Outcome != notify.Unknown {
		t.Errorf("claimed, to be reconciled: %+v", d)
	}
	if took := time.Since(begun); took > soon {
		t.Errorf("took %v", took)
	}
	if len(sms.sent()) != 1 || len(email.sent()) != 1 {
		t.Errorf("%d sms and %d email calls", len(sms.sent()), len(email.sent()))
	}
	eventually(t, "the dead node is forgotten", func() bool {
		return worker.count(t, "select count(*) from dispatcher.nodes where id = $1", dead) == 0
	})
}

func TestADeliveryThatKeepsKillingItsWorkerEnds(t *testing.T) {
	t.Parallel()
	url, email := pgURL(t), newScript(notify.Email, ok)
	n := start(t, url, registry(account(email)), onlyAccept)
	id := n.accept(t, notification(both, step(notify.Email)))
	n.exec(t, "update dispatcher.deliveries set crashes = 2")
	n.deadNode(t, id)
	worker := start(t, url, registry(account(email)))
	if status, r := worker.final(t, id); status != notify.Failed || r.Deliveries[0].Because != "crashed_worker" || len(email.sent()) != 0 {
		t.Errorf("status %s, delivery %+v", status, r.Deliveries[0])
	}
}

func TestANodeWithoutAHeartbeatStartsNoCall(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, ok)
	n := single(t, account(sms))
	eventually(t, "it works", n.Working)
	tx, err := n.store.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.WithoutCancel(t.Context())) //nolint:errcheck // it is rolled back below
	// No beat can be written now, and this transaction may idle.
	for _, sql := range []string{"set local idle_in_transaction_session_timeout = 0", "select from dispatcher.nodes for update"} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "it has noticed", func() bool { return !n.Working() })
	id := n.accept(t, notification(both, step(notify.SMS)))
	eventually(t, "its job was put back", func() bool {
		return n.count(t, "select count(*) from dispatcher.river_job where metadata ? 'snoozes'") == 1
	})
	if len(sms.sent()) != 0 {
		t.Error("called without a heartbeat")
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if status, r := n.final(t, id); status != notify.Sent || len(r.Attempts) != 1 {
		t.Errorf("status %s, attempts %+v", status, r.Attempts)
	}
}

func TestASoftStopRecordsWhatIsUnderWayAndLeavesTheRest(t *testing.T) {
	t.Parallel()
	url, d := pgURL(t), newDoor(t)
	sms := newScript(notify.SMS, d.then(notify.Accepted))
	r := limited(1, account(sms))
	stopping := start(t, url, r)
	ids := make([]uuid.UUID, 5)
	for i := range ids {
		ids[i] = stopping.accept(t, notification(both, step(notify.SMS)))
	}
	eventually(t, "one call is under way", func() bool { return len(sms.sent()) == 1 })
	stopped := make(chan struct{})
	go func() { defer close(stopped); stopping.stop() }()
	other := start(t, url, limited(64, account(sms)))
	eventually(t, "the other node has taken the rest", func() bool { return len(sms.sent()) == len(ids) })
	d.open()
	<-stopped
	of := map[uuid.UUID]int{}
	for _, id := range ids {
		status, r := other.final(t, id)
		if status != notify.Sent || len(r.Attempts) != 1 {
			t.Fatalf("status %s, attempts %+v", status, r.Attempts)
		}
		of[r.Attempts[0].Node]++
	}
	if of[stopping.Node()] != 1 || of[other.Node()] != 4 || len(sms.sent()) != len(ids) {
		t.Errorf("calls by node %v, %d in all", of, len(sms.sent()))
	}
	if got := other.count(t, "select count(*) from dispatcher.nodes"); got != 1 {
		t.Errorf("%d nodes are registered after one has left", got)
	}
}

func TestRunThatIsStoppedBeforeItBeganReturns(t *testing.T) {
	t.Parallel()
	s, err := store.Open(context.WithoutCancel(t.Context()), pgURL(t), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, held := range []bool{false, true} {
		d, err := dispatch.New(s, dispatch.Config{
			Registry: registry(), Admission: dispatch.NewCluster(resilience.NewMember(s.Scopes(uuid.New()), rand.Float64), nil),
			Metrics: (*telemetry.Metrics)(nil), Work: true, Hold: held,
		})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.Run(ctx); err != nil {
			t.Errorf("held %v: %v", held, err)
		}
		if _, err := d.Accept(t.Context(), store.Accept{Notification: notification(both, step(notify.SMS))}); err == nil {
			t.Error("accepted after the end")
		}
	}
}

// It runs alone, so that every goroutine of a dispatcher is its own.
func TestRunLeavesNoGoroutineBehind(t *testing.T) {
	sms := newScript(notify.SMS, ok)
	n := single(t, account(sms))
	n.final(t, n.accept(t, notification(both, step(notify.SMS))))
	n.stop()
	left := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(left)
		}
	})
	eventually(t, "all goroutines have ended", func() bool {
		all := make([]byte, 1<<20)
		all = all[:runtime.Stack(all, true)]
		for stack := range strings.SplitSeq(string(all), "\n\n") {
			if !strings.Contains(stack, "testing.tRunner") && (strings.Contains(stack, "internal/dispatch.") || strings.Contains(stack, "riverqueue")) {
				left = stack
				return false
			}
		}
		return true
	})
}
