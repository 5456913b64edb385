package dispatch_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func within(c notify.Channel, d time.Duration) notify.Step {
	return notify.Step{Channel: c, Within: notify.Duration(d)}
}

func throttledFor(d time.Duration) func(int, *channels.Message) channels.Result {
	return func(int, *channels.Message) channels.Result {
		return channels.Result{Outcome: notify.Throttled, RetryAfter: d}
	}
}

func TestAScheduledNotificationStartsOnTime(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, ok)
	n := single(t, account(sms))
	what := notification(both, step(notify.SMS))
	what.SendAt = what.CreatedAt.Add(700 * time.Millisecond)
	id := n.accept(t, what)
	if r := n.waiting(t, id, notify.WaitScheduled); !r.Waits[0].Due.Equal(what.SendAt) || len(sms.sent()) != 0 {
		t.Errorf("waits %+v", r.Waits)
	}
	n.final(t, id)
	if late := sms.sent()[0].at.Sub(what.SendAt); late < 0 || late > 5*time.Second {
		t.Errorf("started %v after its time", late)
	}
}

func TestAnExpiredNotificationSaysWhatItHadWaitedFor(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, throttledFor(time.Hour))
	n := single(t, account(sms))
	what := notification(both, step(notify.SMS))
	n.accept(t, what)
	n.waiting(t, what.ID, notify.WaitThrottled)
	n.passSteps(t)
	status, r := n.final(t, what.ID)
	if d := r.Deliveries[0]; status != notify.Lapsed || d.Because != "expired: throttled" || len(sms.sent()) != 1 {
		t.Errorf("status %s because %q after %d calls", status, d.Because, len(sms.sent()))
	}
	if got := story(n.events(t, what.ID)); got != "accepted waiting:throttled expired:expired: throttled." {
		t.Errorf("events %s", got)
	}
}

func TestAStepWhoseTimeIsOverGivesWayToTheNext(t *testing.T) {
	t.Parallel()
	sms, email := newScript(notify.SMS, ok), newScript(notify.Email, ok)
	n := start(t, pgURL(t), registry(account(sms), account(email)), func(s *setup) { s.Hold = true })
	n.exec(t, "insert into dispatcher.pauses (channel, by, since) values ('sms', 'test', now())")
	n.Release()
	id := n.accept(t, notification(both, step(notify.SMS), step(notify.Email)))
	n.waiting(t, id, notify.WaitPaused)
	n.passSteps(t)
	status, r := n.final(t, id)
	if status != notify.Sent || r.Deliveries[0].Because != "overdue: paused" || len(sms.sent()) != 0 || len(email.sent()) != 1 {
		t.Errorf("status %s, deliveries %+v", status, r.Deliveries)
	}
	if why := r.Deliveries[1].StartedWhy; why != "fallback: overdue: paused" {
		t.Errorf("email started because %q", why)
	}
}

func TestAThrottleLongerThanTheStepFallsBackAtOnce(t *testing.T) {
	t.Parallel()
	sms, email := newScript(notify.SMS, throttledFor(time.Hour)), newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	status, r := n.final(t, n.accept(t, notification(both, within(notify.SMS, 10*time.Minute), step(notify.Email))))
	if d := r.Deliveries[0]; status != notify.Sent || d.Because != "throttled" || d.Attempts != 0 || len(email.sent()) != 1 {
		t.Errorf("status %s, deliveries %+v", status, r.Deliveries)
	}
}

func TestAnOpenBreaker(t *testing.T) {
	t.Parallel()
	t.Run("makes the last step wait, and uses no attempt", func(t *testing.T) {
		t.Parallel()
		sms := newScript(notify.SMS, ok)
		n := single(t, account(sms))
		n.operate(t, "sms-main", store.ActionOpen, time.Now().Add(time.Hour))
		id := n.accept(t, notification(both, step(notify.SMS)))
		r := n.waiting(t, id, notify.WaitBreakerOpen)
		if w, d := r.Waits[0], r.Deliveries[0]; w.Scope != "sms-main" || d.Attempts != 0 || d.Calls != 0 || d.Status != notify.Waiting {
			t.Errorf("wait %+v, delivery %+v", w, d)
		}
		until := time.Now().Add(500 * time.Millisecond)
		n.operate(t, "sms-main", store.ActionOpen, until)
		n.final(t, id)
		if calls := sms.sent(); len(calls) != 1 || calls[0].at.Before(until) {
			t.Errorf("calls %+v before %v", calls, until)
		}
	})
	t.Run("makes a step fall back whose time it outlasts", func(t *testing.T) {
		t.Parallel()
		sms, email := newScript(notify.SMS, ok), newScript(notify.Email, ok)
		n := single(t, account(sms), account(email))
		n.operate(t, "sms-main", store.ActionOpen, time.Now().Add(time.Hour))
		_, r := n.final(t, n.accept(t, notification(both, step(notify.SMS), step(notify.Email))))
		if d := r.Deliveries[0]; d.Because != "breaker_open" || d.Attempts != 0 || len(r.Attempts) != 1 || len(sms.sent()) != 0 {
			t.Errorf("delivery %+v, attempts %+v", d, r.Attempts)
		}
	})
	t.Run("lets one probe pass", func(t *testing.T) {
		t.Parallel()
		d := newDoor(t)
		sms := newScript(notify.SMS, func(n int, m *channels.Message) channels.Result {
			if m.Reference == "bad" && n == 1 {
				return channels.Result{Outcome: notify.ProviderUnavailable}
			}
			<-d.c
			return channels.Ok("id")
		})
		a := account(sms)
		a.Breaker = resilience.BreakerConfig{Failures: 1, OpenFor: 200 * time.Millisecond, Successes: 1, ProbeLease: 4 * time.Second}
		n := single(t, a)
		bad := notification(both, step(notify.SMS))
		bad.Reference = "bad"
		n.accept(t, bad)
		eventually(t, "the breaker has opened", func() bool {
			scopes := n.member.Snapshot(time.Now())
			return len(scopes) == 1 && scopes[0].Breaker.State != resilience.Closed
		})
		for range 20 {
			n.accept(t, notification(both, step(notify.SMS)))
		}
		eventually(t, "a probe is under way", func() bool { return len(sms.sent()) == 2 })
		eventually(t, "all others wait", func() bool { return n.count(t, "select count(*) from dispatcher.waits") == 20 })
		if now, _ := sms.flying(); now != 1 || len(sms.sent()) != 2 {
			t.Errorf("%d calls under way, %d made", now, len(sms.sent()))
		}
		d.open()
		eventually(t, "all are sent", func() bool { return len(sms.sent()) == 22 })
	})
}

func TestAPausedChannelHoldsAndResumes(t *testing.T) {
	t.Parallel()
	sms, email := newScript(notify.SMS, ok), newScript(notify.Email, ok)
	n := start(t, pgURL(t), registry(account(sms), account(email)), func(s *setup) { s.Hold = true })
	n.exec(t, "insert into dispatcher.pauses (channel, by, since) values ('sms', 'test', now())")
	n.Release()
	id := n.accept(t, notification(both, step(notify.SMS)))
	n.waiting(t, id, notify.WaitPaused)
	n.final(t, n.accept(t, notification(both, step(notify.Email)))) // the others go on
	if len(sms.sent()) != 0 {
		t.Error("called although paused")
	}
	n.exec(t, "delete from dispatcher.pauses")
	if status, r := n.final(t, id); status != notify.Sent || r.Deliveries[0].Attempts != 1 {
		t.Errorf("status %s, delivery %+v", status, r.Deliveries[0])
	}
}

func TestARejectedAccount(t *testing.T) {
	t.Parallel()
	t.Run("moves a middle step on at once", func(t *testing.T) {
		t.Parallel()
		sms, email := newScript(notify.SMS, always(notify.AccountRejected)), newScript(notify.Email, ok)
		n := single(t, account(sms), account(email))
		status, r := n.final(t, n.accept(t, notification(both, step(notify.SMS), step(notify.Email))))
		if status != notify.Sent || r.Deliveries[0].Because != "account_rejected" || len(sms.sent()) != 1 {
			t.Errorf("status %s, deliveries %+v", status, r.Deliveries)
		}
	})
	t.Run("makes the last step wait for its repair", func(t *testing.T) {
		t.Parallel()
		sms := newScript(notify.SMS, first(notify.AccountRejected))
		n := single(t, account(sms))
		id := n.accept(t, notification(both, step(notify.SMS)))
		if r := n.waiting(t, id, notify.WaitAccountRejected); r.Deliveries[0].Attempts != 0 {
			t.Errorf("delivery %+v", r.Deliveries[0])
		}
		n.operate(t, "sms-main", store.ActionReset, time.Time{})
		n.pass(t)
		if status, _ := n.final(t, id); status != notify.Sent || len(sms.sent()) != 2 {
			t.Errorf("status %s after %d calls", status, len(sms.sent()))
		}
	})
}

func TestASuppressedAddressIsNotCalled(t *testing.T) {
	t.Parallel()
	sms, email := newScript(notify.SMS, ok), newScript(notify.Email, ok)
	n := single(t, account(sms), account(email))
	hash := notify.Target{Phone: both.SMS}.Hash(notify.SMS)
	n.exec(t, `insert into dispatcher.suppressions (project, channel, address, reason, source, created_at)
		values ('default', 'sms', $1, 'test', 'test', now())`, hash[:])
	_, r := n.final(t, n.accept(t, notification(both, step(notify.SMS), step(notify.Email))))
	if d := r.Deliveries[0]; d.Status != notify.Blocked || d.Because != "suppressed: test" || r.Deliveries[1].StartedWhy != "fallback: suppressed: test" || d.Attempts != 0 || len(sms.sent()) != 0 || len(email.sent()) != 1 {
		t.Errorf("delivery %+v", d)
	}
	alone := n.accept(t, notification(both, step(notify.SMS)))
	if status, _ := n.final(t, alone); status != notify.Blocked {
		t.Errorf("status %s", status)
	}
	n.exec(t, "update dispatcher.suppressions set until = now()")
	if status, _ := n.final(t, n.accept(t, notification(both, step(notify.SMS)))); status != notify.Sent {
		t.Errorf("status %s after the suppression's end", status)
	}
}
