package dispatch_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func TestAnAccountKeepsToItsRateOverAllNodes(t *testing.T) {
	t.Parallel()
	url := pgURL(t)
	const perSecond, burst, messages = 20.0, 20, 50
	sms := newScript(notify.SMS, ok)
	paced := func() *dispatch.Account {
		a := account(sms)
		a.MaxPerSecond = perSecond
		return a
	}
	a, b := start(t, url, registry(paced())), start(t, url, registry(paced()))
	for i := range messages {
		n := a
		if i%2 == 0 {
			n = b
		}
		n.accept(t, notification(both, step(notify.SMS)))
	}
	eventually(t, "all are sent", func() bool { return len(sms.sent()) == messages })
	calls := sms.sent()
	// Any window holds at most the burst and the rate's share; tokens may be spent
	// up to their lease's time after they were taken.
	for i := range calls {
		for j := i; j < len(calls); j++ {
			window := calls[j].at.Sub(calls[i].at) + resilience.DefaultPaceTTL
			if n := j - i + 1; float64(n) > burst+perSecond*window.Seconds()+1 {
				t.Fatalf("%d calls within %v", n, window)
			}
		}
	}
	eventually(t, "each has used one attempt, however often it waited for its turn", func() bool {
		return a.count(t, "select count(*) from dispatcher.deliveries where final and attempts = 1") == messages
	})
}

func TestRetriesWaitWhenTheBudgetIsEmpty(t *testing.T) {
	t.Parallel()
	sms := newScript(notify.SMS, func(n int, _ *channels.Message) channels.Result {
		if n == 1 {
			return channels.Result{Outcome: notify.ProviderUnavailable}
		}
		return channels.Result{Outcome: notify.RecipientRejected}
	})
	a := account(sms)
	a.Budget = resilience.BudgetConfig{Capacity: 2, PerFirst: 0.001, Minimum: time.Hour}
	n := single(t, a)
	for range 6 {
		n.accept(t, notification(both, step(notify.SMS)))
	}
	eventually(t, "four retries wait for the budget", func() bool {
		return n.count(t, "select count(*) from dispatcher.waits where reason = 'budget'") == 4
	})
	if calls := len(sms.sent()); calls != 8 {
		t.Errorf("%d calls, want six first ones and two retries", calls)
	}
	if used := n.count(t, "select count(*) from dispatcher.deliveries where attempts = 1 and not final"); used != 4 {
		t.Errorf("%d of 4 waiting deliveries have used one attempt", used)
	}
}

func TestFailuresOfOneNodeAndAnotherOpenOneBreaker(t *testing.T) {
	t.Parallel()
	url := pgURL(t)
	sms := newScript(notify.SMS, always(notify.ProviderUnavailable))
	failing := func() *dispatch.Account {
		a := account(sms)
		a.Breaker = resilience.BreakerConfig{Failures: 5, OpenFor: time.Minute}
		a.Retry = resilience.Backoff{Base: time.Hour, Cap: time.Hour, Floor: time.Hour}
		return a
	}
	a, b := start(t, url, registry(failing())), start(t, url, registry(failing()))
	for range 8 {
		n := notification(both, step(notify.SMS))
		n.ExpiresAt = n.CreatedAt.Add(10 * time.Hour)
		a.accept(t, n)
	}
	for name, node := range map[string]*node{"one": a, "other": b} {
		eventually(t, "node "+name+" knows that the breaker is open", func() bool {
			for _, s := range node.member.Snapshot(time.Now()) {
				if s.Scope == "sms-main" && s.Breaker.State == resilience.Open {
					return true
				}
			}
			return false
		})
	}
	before := len(sms.sent())
	id := b.accept(t, notification(both, step(notify.SMS)))
	r := b.waiting(t, id, notify.WaitBreakerOpen)
	if w := r.Waits[0]; !w.Held || w.Scope != "sms-main" || r.Deliveries[0].Attempts != 0 {
		t.Errorf("wait %+v, delivery %+v", w, r.Deliveries[0])
	}
	if after := len(sms.sent()); after != before {
		t.Errorf("%d calls were made although the breaker is open", after-before)
	}
	if n := a.count(t, "select count(*) from dispatcher.breaker_events where to_state = 'open'"); n != 1 {
		t.Errorf("the breaker was opened %d times", n)
	}
	// An operator's reset lets what is held go at once.
	a.operate(t, "sms-main", store.ActionReset, time.Time{})
	eventually(t, "what was held is tried", func() bool { return len(sms.sent()) > before })
}

func TestAGateThatOneNodeShutHoldsOnAllOfThem(t *testing.T) {
	t.Parallel()
	url := pgURL(t)
	const quiet = 2 * time.Second
	sms := newScript(notify.SMS, func(n int, _ *channels.Message) channels.Result { return channels.Ok("id") })
	throttled := newScript(notify.SMS, throttledFor(quiet))
	a, b := start(t, url, registry(account(throttled))), start(t, url, registry(account(sms)), func(c *setup) { c.Hold = true })
	first := a.accept(t, notification(both, step(notify.SMS)))
	a.waiting(t, first, notify.WaitThrottled)
	shut := throttled.sent()[0].at
	a.stop() // the other node has to know by itself
	eventually(t, "the other node has learned of the gate", func() bool {
		for _, s := range b.member.Snapshot(time.Now()) {
			if s.Scope == "sms-main" && !s.GateUntil.IsZero() {
				return true
			}
		}
		return time.Since(shut) > quiet
	})
	b.Release()
	b.accept(t, notification(both, step(notify.SMS)))
	eventually(t, "both are sent", func() bool { return len(sms.sent()) == 2 })
	for _, c := range sms.sent() {
		if c.at.Before(shut.Add(quiet)) {
			t.Errorf("called %v before the provider's instant", shut.Add(quiet).Sub(c.at))
		}
	}
}

func TestAPacedBacklogDrainsAtItsRate(t *testing.T) {
	t.Parallel()
	const perSecond, messages = 100.0, 250
	sms := newScript(notify.SMS, ok)
	a := account(sms)
	a.MaxPerSecond = perSecond
	n := single(t, a)
	n.acceptAll(t, alike(messages, both, step(notify.SMS))...)
	eventually(t, "all are sent", func() bool { return len(sms.sent()) == messages })
	calls := sms.sent()
	took := calls[len(calls)-1].at.Sub(calls[0].at)
	// The burst of a hundred goes at once and the rest needs a second and a half.
	if least := time.Duration((messages-perSecond-1)/perSecond*float64(time.Second)) - resilience.DefaultPaceTTL; took < least {
		t.Errorf("%d messages at %v a second took %v", messages, perSecond, took)
	}
	t.Logf("%d messages at %v a second took %v", messages, perSecond, took)
}
