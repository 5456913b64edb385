package dispatch_test

import (
	"context"
	"strconv"
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

// devices is a recipient with three devices and a mailbox.
func devices() notify.To {
	return notify.To{
		Push:  notify.Devices{{Provider: "fcm", Token: "one"}, {Provider: "fcm", Token: "two"}, {Provider: "fcm", Token: "three"}},
		Email: both.Email,
	}
}

// pushScript answers each device by its token.
func pushScript(answer func(token string) channels.Result) *script {
	s := newScript(notify.Push, func(_ int, m *channels.Message) channels.Result { return answer(m.To.Device.Token) })
	s.info.Provider = "fcm"
	return s
}

func dead(string) channels.Result {
	return channels.Result{Outcome: notify.RecipientRejected, Suppress: true}
}

func TestAPushStepIsAcceptedWhenOneDeviceIs(t *testing.T) {
	t.Parallel()
	push := pushScript(func(token string) channels.Result {
		if token == "two" {
			return channels.Ok("id")
		}
		return dead(token)
	})
	email := newScript(notify.Email, ok)
	n := single(t, account(push), account(email))
	id := n.accept(t, notification(devices(), step(notify.Push), step(notify.Email)))
	status, r := n.final(t, id)
	if status != notify.Sent || len(r.Deliveries) != 3 || len(push.sent()) != 3 || len(email.sent()) != 0 {
		t.Errorf("status %s, %d deliveries, %d push and %d email calls", status, len(r.Deliveries), len(push.sent()), len(email.sent()))
	}
	if got := n.count(t, "select count(*) from dispatcher.suppressions where channel = 'push' and reason = 'recipient_rejected'"); got != 2 {
		t.Errorf("%d dead devices are suppressed, want 2", got)
	}
	n.endsOnce(t, id, "finished:sent.")
	// The next notification to the same person does not call the dead ones.
	n.final(t, n.accept(t, notification(devices(), step(notify.Push))))
	if got := len(push.sent()); got != 4 {
		t.Errorf("%d push calls, want 4", got)
	}
}

// endsOnce checks that a notification has one final event, its last.
func (n *node) endsOnce(t *testing.T, id uuid.UUID, last string) {
	t.Helper()
	events := n.events(t, id)
	finals := 0
	for _, e := range events {
		if e[len(e)-1] == '.' {
			finals++
		}
	}
	if finals != 1 || events[len(events)-1] != last {
		t.Errorf("events %v, want one end, %s", events, last)
	}
}

// apart puts every delivery of an envelope into a job of its own, so that nodes
// share them.
type apart struct{ store.Queue }

func (q apart) Insert(ctx context.Context, tx pgx.Tx, envelopes []store.Envelope) ([]int64, error) {
	ids := make([]int64, 0, len(envelopes))
	for _, e := range envelopes {
		var alone []store.Envelope
		for _, item := range e.Items {
			one := e
			one.Items = []store.Item{item}
			alone = append(alone, one)
		}
		jobs, err := q.Queue.Insert(ctx, tx, alone)
		if err != nil {
			return nil, err
		}
		ids = append(ids, jobs[0])
	}
	return ids, nil
}

func insertApart(s *setup) {
	s.prepare = func(d *dispatch.Dispatcher, s *store.Store) { s.SetQueue(apart{d.Queue()}) }
}

func TestAStepWhoseDevicesEndTogetherOnTwoNodesStartsTheNextOnce(t *testing.T) {
	t.Parallel()
	// All three calls of a notification end at the same instant.
	var mu sync.Mutex
	meeting := map[uuid.UUID]*sync.WaitGroup{}
	push := newScript(notify.Push, func(_ int, m *channels.Message) channels.Result {
		mu.Lock()
		if meeting[m.NotificationID] == nil {
			meeting[m.NotificationID] = new(sync.WaitGroup)
			meeting[m.NotificationID].Add(3)
		}
		together := meeting[m.NotificationID]
		mu.Unlock()
		together.Done()
		together.Wait()
		return dead("")
	})
	push.info.Provider = "fcm"
	email := newScript(notify.Email, ok)
	// With room for two calls, no node can make all three of them.
	url, r := pgURL(t), limited(2, account(push), account(email))
	first, second := start(t, url, r, insertApart), start(t, url, r, insertApart)
	const many = 5
	for i := range many {
		to := devices()
		for j := range to.Push {
			to.Push[j].Token += strconv.Itoa(i) // the dead ones before are suppressed
		}
		id := first.accept(t, notification(to, step(notify.Push), step(notify.Email)))
		_, r := second.final(t, id)
		second.endsOnce(t, id, "sent.")
		nodes := map[uuid.UUID]bool{}
		for _, a := range r.Attempts {
			nodes[a.Node] = nodes[a.Node] || a.Step == 0
		}
		if last := r.Deliveries[len(r.Deliveries)-1]; len(nodes) != 2 || last.StartedWhy != "fallback: recipient_rejected" {
			t.Errorf("devices were called by %v, last delivery %+v", nodes, last)
		}
	}
	if got := len(email.sent()); got != many {
		t.Errorf("%d emails for %d notifications", got, many)
	}
}

func TestModeAllEndsAsItsStepsDo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		sms, email notify.Outcome
		want       notify.Status
	}{
		"all accepted": {notify.Accepted, notify.Accepted, notify.Sent},
		"one failed":   {notify.RecipientRejected, notify.Accepted, notify.PartiallyFailed},
		"the other":    {notify.Accepted, notify.ProviderUnavailable, notify.PartiallyFailed},
		"all failed":   {notify.RecipientRejected, notify.MessageRejected, notify.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := single(t, account(newScript(notify.SMS, always(c.sms))), account(newScript(notify.Email, always(c.email))))
			what := notification(both, step(notify.SMS), step(notify.Email))
			what.Mode = notify.All
			status, _ := n.final(t, n.accept(t, what))
			if status != c.want {
				t.Errorf("status %s, want %s", status, c.want)
			}
			n.endsOnce(t, what.ID, "finished:"+string(c.want)+".")
		})
	}
}

func TestACancelInModeAllStopsWhatIsNotUnderWay(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	sms, email := newScript(notify.SMS, d.then(notify.Accepted)), newScript(notify.Email, throttledFor(time.Hour))
	n := single(t, account(sms), account(email))
	what := notification(both, step(notify.SMS), step(notify.Email))
	what.Mode = notify.All
	n.accept(t, what)
	n.waiting(t, what.ID, notify.WaitThrottled)
	eventually(t, "the sms is under way", func() bool { return len(sms.sent()) == 1 })
	n.cancel(t, what.ID)
	d.open()
	status, r := n.final(t, what.ID)
	if status != notify.Canceled || r.Deliveries[0].Status != notify.Sent || r.Deliveries[1].Status != notify.Canceled {
		t.Errorf("status %s, deliveries %+v", status, r.Deliveries)
	}
	n.endsOnce(t, what.ID, "finished:canceled.")
}

// A chain whose last step fails ends as its best step, and says so.
func TestAChainEndsAsItsBestStep(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, ok)
	sms.info.MaxObservable = notify.Delivered
	n := single(t, account(sms), account(newScript(notify.Email, always(notify.RecipientRejected))))
	delivered := notify.Step{Channel: notify.SMS, Success: notify.UntilDelivered}
	id := n.accept(t, notification(both, delivered, step(notify.Email)))
	n.waiting(t, id, notify.WaitReceipt)
	n.pass(t)
	status, r := n.final(t, id)
	if status != notify.Sent || r.Deliveries[0].Because != "no_receipt" || r.Deliveries[1].Status != notify.Failed {
		t.Errorf("status %s, deliveries %+v", status, r.Deliveries)
	}
	n.endsOnce(t, id, "finished:sent.")
}
