package dispatch_test

import (
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestNoMoreCallsAreUnderWayThanTheChannelMayHave(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	sms, email := newScript(notify.SMS, d.then(notify.Accepted)), newScript(notify.Email, ok)
	n := start(t, pgURL(t), limited(8, account(sms), account(email)))
	const many = 60
	for range many {
		n.accept(t, notification(both, step(notify.SMS)))
	}
	eventually(t, "8 calls are under way and the others wait", func() bool {
		now, _ := sms.flying()
		return now == 8 && n.count(t, "select count(*) from dispatcher.waits where reason = 'capacity'") > many/2
	})
	// Another channel has its own places.
	n.final(t, n.accept(t, notification(both, step(notify.Email))))
	d.open()
	eventually(t, "all are sent", func() bool {
		return n.count(t, "select count(*) from dispatcher.deliveries where final") == many+1
	})
	if _, peak := sms.flying(); peak != 8 || len(sms.sent()) != many {
		t.Errorf("%d calls were under way at once, and %d made", peak, len(sms.sent()))
	}
	if got := n.count(t, "select count(*) from dispatcher.deliveries where attempts <> 1 or calls <> 1"); got != 0 {
		t.Errorf("%d deliveries have more than one attempt: stepping aside must use none", got)
	}
	if got := n.count(t, "select count(*) from dispatcher.events where type = 'waiting'"); got != 0 {
		t.Errorf("%d events about stepping aside", got)
	}
}

// few is a provider that can have only so many calls under way at once.
type few struct {
	*script
	calls int
}

func (f few) MaxCalls() int { return f.calls }

func TestNothingIsClaimedThatItsAccountCannotCallYet(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	email := newScript(notify.Email, d.then(notify.Accepted))
	n := start(t, pgURL(t), limited(64, account(few{email, 2})))
	const many = 20
	for range many {
		n.accept(t, notification(both, step(notify.Email)))
	}
	eventually(t, "2 calls are under way and the others wait for their account", func() bool {
		now, _ := email.flying()
		return now == 2 && n.count(t, "select count(*) from dispatcher.waits where reason = 'capacity' and scope = 'email-main'") == many-2
	})
	if got := n.count(t, "select count(*) from dispatcher.deliveries where claimed_by is not null"); got != 2 {
		t.Errorf("%d are claimed, want the 2 that are called", got)
	}
	d.open()
	eventually(t, "all are sent", func() bool {
		return n.count(t, "select count(*) from dispatcher.deliveries where final and attempts = 1 and calls = 1") == many
	})
	if _, peak := email.flying(); peak != 2 || len(email.sent()) != many {
		t.Errorf("%d calls were under way at once, and %d made", peak, len(email.sent()))
	}
}

func TestASlowDestinationTiesUpAQuarter(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	slow := newScript(notify.Webhook, d.then(notify.Accepted))
	hook := scoped{slow, func(t notify.Target) []string { return []string{t.Webhook.URL} }}
	n := start(t, pgURL(t), limited(8, account(hook)))
	to := func(url string) notify.To { return notify.To{Webhook: &notify.WebhookTarget{URL: url}} }
	for range 10 {
		n.accept(t, notification(to("slow"), step(notify.Webhook)))
	}
	eventually(t, "the slow one has its share", func() bool { return len(slow.sent()) == 2 })
	n.accept(t, notification(to("other"), step(notify.Webhook)))
	eventually(t, "the other one is called", func() bool { return len(slow.sent()) == 3 })
	if calls := slow.sent(); calls[2].to.Webhook.URL != "other" {
		t.Errorf("calls %+v", calls)
	}
	d.open()
	eventually(t, "all are sent", func() bool { return len(slow.sent()) == 11 })
}
