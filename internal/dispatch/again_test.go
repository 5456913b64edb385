package dispatch_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func (n *node) acknowledge(t *testing.T, id uuid.UUID) store.Acknowledgement {
	t.Helper()
	a, err := n.store.Acknowledge(t.Context(), "default", id, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (n *node) retry(t *testing.T, id uuid.UUID) store.Retry {
	t.Helper()
	r, err := n.Retry(t.Context(), "default", id, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// keys are the keys of the calls so far.
func (s *script) keysOf(id uuid.UUID) []uuid.UUID {
	var out []uuid.UUID
	for _, c := range s.sent() {
		if c.notification == id {
			out = append(out, c.key)
		}
	}
	return out
}

func TestAnAcknowledgementMeetsAStepThatWaitsForOne(t *testing.T) {
	t.Parallel()
	sms, email := newScript(notify.SMS, ok), newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	first := step(notify.SMS)
	first.Success = notify.UntilAcknowledged
	id := n.accept(t, notification(both, first, step(notify.Email)))
	n.waiting(t, id, notify.WaitReceipt)
	if a := n.acknowledge(t, id); a.Result != store.Acknowledged || a.Calling != 0 {
		t.Errorf("acknowledged: %+v", a)
	}
	status, r := n.final(t, id)
	if status != notify.Sent || r.AcknowledgedAt.IsZero() || len(r.Deliveries) != 1 || len(r.Waits) != 0 {
		t.Errorf("status %s, record %+v", status, r)
	}
	if again := n.acknowledge(t, id); again.Result != store.AcknowledgedBefore || !again.At.Equal(r.AcknowledgedAt) {
		t.Errorf("again: %+v", again)
	}
	if len(email.sent()) != 0 {
		t.Error("the next step was sent")
	}
	if got := story(n.events(t, id)); got != "accepted sent:acknowledged acknowledged finished:sent." {
		t.Errorf("events %q", got)
	}
}

func TestWhatHasEndedCanStillBeAcknowledged(t *testing.T) {
	t.Parallel()
	n := single(t, account(newScript(notify.SMS, ok)))
	id := n.accept(t, notification(both, step(notify.SMS)))
	n.final(t, id)
	if a := n.acknowledge(t, id); a.Result != store.AcknowledgedFinal {
		t.Errorf("acknowledged: %+v", a)
	}
	if r := n.retry(t, id); r.Result != store.RetryStopped {
		t.Errorf("retry: %+v", r)
	}
}

// A call that has begun cannot be stopped, and is told of; nothing follows it.
func TestAnAcknowledgementDuringACallStopsWhatWouldFollow(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	sms, email := newScript(notify.SMS, d.then(notify.ProviderUnavailable)), newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	id := n.accept(t, notification(both, step(notify.SMS), step(notify.Email)))
	eventually(t, "a call is under way", func() bool { now, _ := sms.flying(); return now == 1 })
	if a := n.acknowledge(t, id); a.Result != store.Acknowledged || a.Calling != 1 {
		t.Errorf("acknowledged: %+v", a)
	}
	d.open()
	_, r := n.final(t, id)
	if len(sms.sent()) != 1 || len(email.sent()) != 0 || r.Deliveries[0].Because != "acknowledged" {
		t.Errorf("%d and %d calls, delivery %+v", len(sms.sent()), len(email.sent()), r.Deliveries[0])
	}
}

// Acknowledgements race with workers that are about to send: where the answer is
// that nothing is being called, nothing is called afterwards.
func TestNothingIsCalledAfterAnAcknowledgementThatSaysSo(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, ok)
	n := single(t, account(sms))
	const count = 60
	said := make([]struct {
		id      uuid.UUID
		before  time.Time
		calling int
		result  store.AckResult
	}, count)
	var racing sync.WaitGroup
	for i := range said {
		said[i].id = n.accept(t, notification(both, step(notify.SMS)))
		racing.Go(func() {
			a, err := n.store.Acknowledge(t.Context(), "default", said[i].id, time.Now())
			if err != nil {
				t.Error(err)
			}
			said[i].before, said[i].calling, said[i].result = time.Now(), a.Calling, a.Result
		})
	}
	racing.Wait()
	for _, s := range said {
		n.final(t, s.id)
		for _, c := range sms.sent() {
			if c.notification == s.id && s.calling == 0 && c.at.After(s.before) {
				t.Errorf("called %s after the answer %q", c.at.Sub(s.before), s.result)
			}
		}
	}
	for _, s := range said { // and nothing is left to move
		if r := n.retry(t, s.id); r.Result != store.RetryStopped {
			t.Errorf("retry: %+v", r)
		}
	}
}

func TestARetryRunsTheChainAnew(t *testing.T) {
	t.Parallel()
	var mended sync.Map // by notification
	failing := func(_ int, m *channels.Message) channels.Result {
		if _, ok := mended.Load(m.NotificationID); ok {
			return channels.Ok("id-2")
		}
		return channels.Result{Outcome: notify.RecipientRejected}
	}
	sms := newScript(notify.SMS, always(notify.MessageRejected))
	email := newScript(notify.Email, failing)
	n := single(t, account(sms), account(email))
	what := notification(both, step(notify.SMS), step(notify.Email))
	id := n.accept(t, what)
	if status, _ := n.final(t, id); status != notify.Failed {
		t.Fatalf("status %s", status)
	}
	mended.Store(id, true)
	r := n.retry(t, id)
	if r.Result != store.Retried || r.Round != 1 || !r.ExpiresAt.After(what.ExpiresAt) {
		t.Fatalf("retry: %+v", r)
	}
	status, record := n.final(t, id)
	if status != notify.Sent || len(record.Attempts) != 4 || !record.Notification.ExpiresAt.Equal(r.ExpiresAt) || record.RetriedAt.IsZero() {
		t.Errorf("status %s, record %+v", status, record)
	}
	for i, want := range []int16{1, 2, 1, 2} { // numbers go on, by step
		if record.Attempts[i].N != want {
			t.Errorf("attempt %d has number %d", i, record.Attempts[i].N)
		}
	}
	for _, s := range []*script{sms, email} {
		keys := s.keysOf(id)
		if len(keys) != 2 || keys[0] == keys[1] {
			t.Errorf("keys %v: a retry must have another", keys)
		}
	}
	if d := record.Deliveries[1]; d.Round != 1 || d.Attempts != 1 || d.StartedWhy != "fallback: message_rejected" {
		t.Errorf("delivery %+v", d)
	}
	if events := n.events(t, id); !slices.Contains(events, "retried") || events[len(events)-1] != "sent." && events[len(events)-1] != "finished:sent." {
		t.Errorf("events %v", events)
	}
	if again := n.retry(t, id); again.Result != store.RetryNeedless {
		t.Errorf("again: %+v", again)
	}
}

// While the chain has not come to it again, a step that failed before is not
// what the notification failed by.
func TestARetriedChainBeginsAtItsFirstStep(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	var held sync.Map
	sms := newScript(notify.SMS, func(n int, m *channels.Message) channels.Result {
		if _, ok := held.Load(m.NotificationID); ok {
			return d.then(notify.RecipientRejected)(n, m)
		}
		return channels.Result{Outcome: notify.RecipientRejected}
	})
	email := newScript(notify.Email, always(notify.RecipientRejected))
	n := single(t, account(sms), account(email))
	id := n.accept(t, notification(both, step(notify.SMS), step(notify.Email)))
	n.final(t, id)
	held.Store(id, true)
	n.retry(t, id)
	eventually(t, "the first step is called again", func() bool { return len(sms.keysOf(id)) == 2 })
	r, err := n.store.Get(t.Context(), "default", id)
	if err != nil {
		t.Fatal(err)
	}
	if status, final := r.Overall(); status != notify.Sending || final || len(r.ByStep()[1]) != 0 {
		t.Errorf("status %s, steps %+v", status, r.ByStep())
	}
	if again := n.retry(t, id); again.Result != store.RetryMoving {
		t.Errorf("again: %+v", again)
	}
	if got, err := n.store.Cancel(t.Context(), "default", id, time.Now()); err != nil || got != store.TooLate {
		t.Errorf("cancel: %q, %v", got, err)
	}
	d.open()
	if status, _ := n.final(t, id); status != notify.Canceled || len(email.keysOf(id)) != 1 {
		t.Errorf("status %s, %d emails", status, len(email.keysOf(id)))
	}
}

func TestARetryOfAllSendsOnlyWhatFailed(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, ok)
	email := newScript(notify.Email, func(int, *channels.Message) channels.Result {
		return channels.Result{Outcome: notify.RecipientRejected}
	})
	n := single(t, account(sms), account(email))
	what := notification(both, step(notify.SMS), step(notify.Email))
	what.Mode = notify.All
	id := n.accept(t, what)
	if status, _ := n.final(t, id); status != notify.PartiallyFailed {
		t.Fatalf("status %s", status)
	}
	if r := n.retry(t, id); r.Result != store.Retried {
		t.Fatalf("retry: %+v", r)
	}
	if status, _ := n.final(t, id); status != notify.PartiallyFailed || len(sms.keysOf(id)) != 1 || len(email.keysOf(id)) != 2 {
		t.Errorf("status %s, %d sms, %d emails", status, len(sms.keysOf(id)), len(email.keysOf(id)))
	}
}

func TestOfManyRetriesAtOnceOneBegins(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	var held sync.Map
	sms := newScript(notify.SMS, func(n int, m *channels.Message) channels.Result {
		if _, ok := held.Load(m.NotificationID); ok {
			return d.then(notify.RecipientRejected)(n, m)
		}
		return channels.Result{Outcome: notify.RecipientRejected}
	})
	n := single(t, account(sms))
	id := n.accept(t, notification(both, step(notify.SMS)))
	n.final(t, id)
	held.Store(id, true)
	var mu sync.Mutex
	begun := 0
	var racing sync.WaitGroup
	for range 20 {
		racing.Go(func() {
			r, err := n.Retry(t.Context(), "default", id, time.Time{})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil:
				t.Error(err)
			case r.Result == store.Retried:
				begun++
			case r.Result != store.RetryMoving:
				t.Errorf("retry: %+v", r)
			}
		})
	}
	racing.Wait()
	d.open()
	n.final(t, id)
	if begun != 1 || len(sms.keysOf(id)) != 2 {
		t.Errorf("%d retries began, %d calls", begun, len(sms.keysOf(id)))
	}
}

func TestARepeatOfAnUnknownOutcomeIsMarkedAsPossibleDuplicate(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, func(int, *channels.Message) channels.Result { return channels.Result{Outcome: notify.Unknown} })
	n := single(t, account(sms))
	only := step(notify.SMS)
	only.OnUnknown = notify.FallBack
	id := n.accept(t, notification(both, only))
	n.final(t, id)
	n.retry(t, id)
	_, r := n.final(t, id)
	if len(r.Attempts) != 2 || r.Attempts[0].PossibleDuplicate || !r.Attempts[1].PossibleDuplicate {
		t.Errorf("attempts %+v", r.Attempts)
	}
}

func TestFailedFindsWhatARetryWouldStart(t *testing.T) {
	t.Parallel()
	sms, email := newScript(notify.SMS, always(notify.RecipientRejected)), newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	bad := n.accept(t, notification(both, step(notify.SMS)))
	good := n.accept(t, notification(both, step(notify.Email)))
	stopped := n.accept(t, notification(both, step(notify.SMS)))
	for _, id := range []uuid.UUID{bad, good, stopped} {
		n.final(t, id)
	}
	n.acknowledge(t, stopped)
	for name, c := range map[string]struct {
		filter store.Failures
		want   int
	}{
		"all":              {store.Failures{}, 1},
		"by status":        {store.Failures{Filter: store.Filter{Status: notify.Failed}}, 1},
		"by other status":  {store.Failures{Filter: store.Filter{Status: notify.Lapsed}}, 0},
		"by channel":       {store.Failures{Filter: store.Filter{Channel: notify.SMS}}, 1},
		"by other channel": {store.Failures{Filter: store.Filter{Channel: notify.Email}}, 0},
		"by reason":        {store.Failures{Because: "recipient_rejected"}, 1},
		"by other reason":  {store.Failures{Because: "overdue"}, 0},
	} {
		c.filter.Project = "default"
		ids, more, err := n.store.Failed(t.Context(), c.filter, 10)
		if err != nil || more || len(ids) != c.want || c.want == 1 && ids[0] != bad {
			t.Errorf("%s: %v, %v, %v", name, ids, more, err)
		}
	}
	n.exec(t, "update dispatcher.deliveries set because = 'suppressed: stop' where notification_id = $1", bad)
	for because, want := range map[string]int{"suppressed": 1, "suppressed: stop": 1, "suppress": 0, "stop": 0} {
		ids, _, err := n.store.Failed(t.Context(), store.Failures{Filter: store.Filter{Project: "default"}, Because: because}, 10)
		if err != nil || len(ids) != want {
			t.Errorf("because %q: %v, %v", because, ids, err)
		}
	}
}
