package dispatch_test

import (
	"context"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// polled is a script that can be asked what became of its messages.
type polled struct {
	*reported
	tell func(n int, messageID string) (channels.Receipt, channels.Result) // n counts from 1
	asks []string
}

func newPolled(tell func(int, string) (channels.Receipt, channels.Result)) *polled {
	return &polled{reported: newReported(notify.SMS, accepts), tell: tell}
}

func (p *polled) Poll(_ context.Context, messageID string) (channels.Receipt, channels.Result) {
	p.mu.Lock()
	p.asks = append(p.asks, messageID)
	n := len(p.asks)
	p.mu.Unlock()
	return p.tell(n, messageID)
}

func (p *polled) asked() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.asks)
}

var answeredPoll = channels.Result{Outcome: notify.Accepted}

func tells(status notify.Status) func(int, string) (channels.Receipt, channels.Result) {
	return func(int, string) (channels.Receipt, channels.Result) {
		return channels.Receipt{Status: status, Code: "30005", Outcome: notify.RecipientRejected}, answeredPoll
	}
}

// ask lets it be time to ask, of messages that have just been sent.
func (n *node) ask(t *testing.T) {
	t.Helper()
	n.exec(t, "update dispatcher.waits set ask_at = now(), since = now() where ask_at is not null")
}

func TestALostCallbackIsAskedFor(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ told, sms, whole notify.Status }{
		{notify.Delivered, notify.Delivered, notify.Delivered},
		{notify.Failed, notify.Failed, notify.Sent},
	} {
		t.Run(string(c.told), func(t *testing.T) {
			t.Parallel()
			sms, email := newPolled(tells(c.told)), newScript(notify.Email, ok)
			sms.info.MaxObservable = notify.Delivered
			n := single(t, account(sms), account(email))
			id := n.accept(t, notification(both, until(notify.SMS, notify.UntilDelivered), step(notify.Email)))
			w := n.waiting(t, id, notify.WaitReceipt).Waits[0]
			ask := n.count(t, "select extract(epoch from ask_at - since)::int from dispatcher.waits")
			if w.Due.Sub(w.Since) > time.Minute || ask < 45 || ask > 50 || sms.asked() != 0 {
				t.Errorf("asks after %d s of %v, %d times at once", ask, w.Due.Sub(w.Since), sms.asked())
			}
			n.ask(t)
			status, r := n.final(t, id)
			if status != c.whole || r.Deliveries[0].Status != c.sms || sms.asked() != 1 || sms.asks[0] != r.Attempts[0].ProviderMessageID {
				t.Errorf("status %s, %+v, asked for %v", status, r.Deliveries[0], sms.asks)
			}
			if got := n.history(t, id).Receipts; len(got) != 1 || got[0].Attempt != r.Attempts[0].ID || got[0].AppliedAt.IsZero() {
				t.Errorf("receipts %+v", got)
			}
		})
	}
}

func TestAProviderIsAskedAgainWhereItHadNothingNew(t *testing.T) {
	t.Parallel()
	sms := newPolled(func(n int, _ string) (channels.Receipt, channels.Result) {
		switch n {
		case 1:
			return channels.Receipt{}, answeredPoll
		case 2:
			return channels.Receipt{}, channels.Result{Outcome: notify.ProviderUnavailable}
		case 3:
			panic("of the adapter")
		case 4:
			return channels.Receipt{Status: notify.Sent}, answeredPoll
		}
		return channels.Receipt{Status: notify.Read}, answeredPoll
	})
	a := account(sms)
	a.Breaker.Failures = 1
	n := single(t, a)
	id := n.accept(t, notification(both, step(notify.SMS)))
	n.waiting(t, id, notify.WaitReceipt)
	for i := range 4 {
		n.ask(t)
		eventually(t, "asked, and set down for another time", func() bool {
			return sms.asked() == i+1 && !n.Asking() && n.count(t, "select count(*) from dispatcher.waits where ask_at > now() + interval '31 seconds' or $1 in (2, 3) and ask_at > now()", i+1) == 1
		})
	}
	n.ask(t)
	if status, _ := n.final(t, id); status != notify.Read {
		t.Errorf("status %s", status)
	}
	if got := n.history(t, id).Receipts; len(got) != 2 {
		t.Errorf("receipts %+v", got)
	}
}

func TestNobodyIsAskedThroughAnOpenBreakerOrAboutWhatHasNoID(t *testing.T) {
	t.Parallel()
	sms := newPolled(tells(notify.Delivered))
	n := single(t, account(sms))
	id := n.accept(t, notification(both, step(notify.SMS)))
	n.waiting(t, id, notify.WaitReceipt)
	n.operate(t, smsMain, store.ActionOpen, time.Time{})
	n.ask(t)
	eventually(t, "it is set down for later", func() bool {
		return n.count(t, "select count(*) from dispatcher.waits where ask_at > now() and ask_at < now() + interval '31 seconds'") == 1
	})
	n.exec(t, "update dispatcher.attempts set provider_message_id = null")
	eventually(t, "it is not asked about any more", func() bool {
		n.ask(t) // the answer before may still have to be noted
		return n.count(t, "select count(*) from dispatcher.waits where ask_at is null") == 1
	})
	if sms.asked() != 0 {
		t.Errorf("asked %d times", sms.asked())
	}
}
