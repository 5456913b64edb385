package dispatch_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// tally counts as metrics do.
type tally struct {
	mu  sync.Mutex
	got map[string]int
}

func (m *tally) add(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.got[fmt.Sprintf(format, args...)]++
}

func (m *tally) Accepted(p notify.Priority, n int) { m.add("accepted %s %d", p, n) }

func (m *tally) Attempt(c notify.Channel, o notify.Outcome, took time.Duration) {
	if took < 0 || took > time.Minute {
		m.add("took %v", took)
	}
	m.add("attempt %s %s", c, o)
}

func (m *tally) FirstDelivery(c notify.Channel, after time.Duration) {
	if after < 0 || after > time.Minute {
		m.add("after %v", after)
	}
	m.add("first delivery %s", c)
}

func (m *tally) Fallback(from, to notify.Channel, because string) {
	m.add("fallback %s %s %s", from, to, because)
}

func (m *tally) Failover(from, to, because string) { m.add("failover %s %s %s", from, to, because) }

func (m *tally) AccountShare(string, float64) {}

func (m *tally) Finished(s notify.Status) { m.add("finished %s", s) }

func (m *tally) Suppressed(c notify.Channel, reason string) { m.add("suppressed %s %s", c, reason) }

func (m *tally) ReceiptApplied(c notify.Channel, s notify.Status) { m.add("receipt %s %s", c, s) }

func (m *tally) ReceiptsParked(n int) {
	if n > 0 {
		m.add("parked %d", n)
	}
}

func TestMetricsAreCounted(t *testing.T) {
	t.Parallel()
	retry := map[string]int{"attempt sms provider_unavailable": 1, "attempt sms accepted": 1, "accepted normal 1": 1, "finished sent": 1}
	for name, c := range map[string]struct {
		sms, email func(int, *channels.Message) channels.Result
		chain      []notify.Step
		mode       notify.Mode
		receipts   bool
		want       map[string]int
	}{
		"accepted at once": {
			sms: ok, chain: []notify.Step{step(notify.SMS)},
			want: map[string]int{"accepted normal 1": 1, "attempt sms accepted": 1, "first delivery sms": 1, "finished sent": 1},
		},
		"accepted when called again": {sms: first(notify.ProviderUnavailable), chain: []notify.Step{step(notify.SMS)}, want: retry},
		"a fallback": {
			sms: always(notify.RecipientRejected), email: ok, chain: []notify.Step{step(notify.SMS), step(notify.Email)},
			want: map[string]int{
				"accepted normal 1": 1, "attempt sms recipient_rejected": 1, "fallback sms email recipient_rejected": 1,
				"attempt email accepted": 1, "first delivery email": 1, "finished sent": 1,
			},
		},
		"all fail": {
			sms: always(notify.RecipientRejected), email: always(notify.MessageRejected),
			chain: []notify.Step{step(notify.SMS), step(notify.Email)},
			want: map[string]int{
				"accepted normal 1": 1, "attempt sms recipient_rejected": 1, "fallback sms email recipient_rejected": 1,
				"attempt email message_rejected": 1, "finished failed": 1,
			},
		},
		"mode all": {
			sms: always(notify.RecipientRejected), email: ok, chain: []notify.Step{step(notify.SMS), step(notify.Email)}, mode: notify.All,
			want: map[string]int{
				"accepted normal 1": 1, "attempt sms recipient_rejected": 1, "attempt email accepted": 1, "first delivery email": 1,
				"finished partially_failed": 1,
			},
		},
		"no receipt, three days later": {
			sms: ok, chain: []notify.Step{step(notify.SMS)}, receipts: true,
			want: map[string]int{"accepted normal 1": 1, "attempt sms accepted": 1, "first delivery sms": 1, "finished sent": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sms, email := newScript(notify.SMS, c.sms), newScript(notify.Email, c.email)
			if c.receipts {
				sms.info.MaxObservable = notify.Delivered
			}
			m := &tally{got: map[string]int{}}
			n := start(t, pgURL(t), registry(account(sms), account(email)), func(s *setup) { s.Metrics = m })
			what := notification(both, c.chain...)
			if c.mode != "" {
				what.Mode = c.mode
			}
			id := n.accept(t, what)
			if c.receipts {
				n.waiting(t, id, notify.WaitReceipt)
				n.pass(t)
			}
			n.final(t, id)
			n.stop() // what is counted after the commit is counted by now
			if diff := cmp.Diff(c.want, m.got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestDevicesAreCountedAsOneNotification(t *testing.T) {
	t.Parallel()
	m := &tally{got: map[string]int{}}
	n := start(t, pgURL(t), registry(account(pushScript(dead)), account(newScript(notify.Email, ok))), func(s *setup) { s.Metrics = m })
	n.final(t, n.accept(t, notification(devices(), step(notify.Push), step(notify.Email))))
	n.stop()
	want := map[string]int{
		"accepted normal 1": 1, "attempt push recipient_rejected": 3, "fallback push email recipient_rejected": 1,
		"attempt email accepted": 1, "first delivery email": 1, "finished sent": 1,
	}
	if diff := cmp.Diff(want, m.got); diff != "" {
		t.Error(diff)
	}
}

func TestADeliveryThatTheListBarsIsCountedByTheReasonThere(t *testing.T) {
	t.Parallel()
	m := &tally{got: map[string]int{}}
	sms, email := newScript(notify.SMS, ok), newScript(notify.Email, ok)
	n := start(t, pgURL(t), registry(account(sms), account(email)), func(s *setup) { s.Metrics = m })
	target := both.Targets(notify.SMS)[0]
	err := n.store.Suppress(t.Context(), []store.Suppression{{
		Project: notification(both).Project, Channel: notify.SMS, Address: target.Hash(notify.SMS), Reason: store.ReasonStop, Source: "sms-main", At: time.Now(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	n.final(t, n.accept(t, notification(both, step(notify.SMS), step(notify.Email))))
	n.stop()
	want := map[string]int{
		"accepted normal 1": 1, "suppressed sms stop": 1, "fallback sms email suppressed: stop": 1,
		"attempt email accepted": 1, "first delivery email": 1, "finished sent": 1,
	}
	if diff := cmp.Diff(want, m.got); diff != "" {
		t.Error(diff)
	}
}
