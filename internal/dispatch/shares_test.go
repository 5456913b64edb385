package dispatch_test

import (
	"slices"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestAFloodOfOneProjectDoesNotHoldUpAnother(t *testing.T) {
	t.Parallel()
	const flood, share = 400, 200
	sms := newScript(notify.SMS, func(int, *channels.Message) channels.Result {
		time.Sleep(20 * time.Millisecond) //nolint:forbidigo // the flood takes a second
		return channels.Ok("id")
	})
	n := start(t, pgURL(t), limited(8, account(sms)), func(c *setup) { c.Hold, c.QueueShare = true, share })
	for range flood {
		what := notification(both, step(notify.SMS))
		what.Project = "flood"
		n.accept(t, what)
	}
	// A count of the queue may miss the last ones, or have them twice.
	if held := n.count(t, "select count(*) from dispatcher.waits where held and scope = 'queue:sms' and project = 'flood'"); held < share/2 || held > flood-share/2 {
		t.Errorf("%d of the flood are held, want about %d", held, flood-share)
	}
	other := n.accept(t, notification(both, step(notify.SMS)))
	if waits := n.count(t, "select count(*) from dispatcher.waits where project = 'default'"); waits != 0 {
		t.Error("the other project has to wait for its share")
	}
	n.Release()
	eventually(t, "the flood is sent too", func() bool {
		return n.count(t, "select count(*) from dispatcher.deliveries where final and status = 'sent'") == flood+1
	})
	// Behind the share that was there before it, and not behind what is held.
	ahead := slices.IndexFunc(sms.sent(), func(c call) bool { return c.notification == other })
	if t.Logf("%d calls of the flood came first", ahead); ahead > share+flood/4 {
		t.Errorf("%d calls of the flood came first, want about %d", ahead, share)
	}
}

func TestASlowDestinationHoldsOnlyItsShareOfTheCalls(t *testing.T) {
	t.Parallel()
	slow := newDoor(t)
	hook := newScript(notify.Webhook, func(_ int, m *channels.Message) channels.Result {
		if m.To.Webhook.URL == "https://slow.example/" {
			<-slow.c
		}
		return channels.Ok("id")
	})
	n := start(t, pgURL(t), limited(16, account(byHost{hook})))
	to := func(url string) notify.To { return notify.To{Webhook: &notify.WebhookTarget{URL: url}} }
	for range 60 {
		n.accept(t, notification(to("https://slow.example/"), step(notify.Webhook)))
	}
	eventually(t, "the slow destination has its share", func() bool { now, _ := hook.flying(); return now == 4 })
	begun := time.Now()
	for range 20 {
		n.final(t, n.accept(t, notification(to("https://well.example/"), step(notify.Webhook))))
	}
	t.Logf("20 healthy ones, one after the other, took %v", time.Since(begun))
	if held := n.count(t, "select count(*) from dispatcher.waits where held and reason = 'capacity'"); held < 40 {
		t.Errorf("%d wait for the slow destination", held)
	}
	if now, _ := hook.flying(); now != 4 {
		t.Errorf("%d calls to the slow destination are under way", now)
	}
	slow.open()
	eventually(t, "all are sent", func() bool {
		return n.count(t, "select count(*) from dispatcher.deliveries where final and status = 'sent'") == 80
	})
}

// byHost is a script with a scope for each host of a webhook.
type byHost struct{ *script }

func (byHost) Scopes(t notify.Target) []string { return []string{"host:" + t.Webhook.URL[8:12]} }
