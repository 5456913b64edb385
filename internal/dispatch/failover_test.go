package dispatch_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// named is a script under a name of its own.
func named(account string, c notify.Channel, answer func(int, *channels.Message) channels.Result) *script {
	s := newScript(c, answer)
	s.info.Account = account
	return s
}

// rejects is an account-level refusal, as Twilio's 401.
func rejects(int, *channels.Message) channels.Result {
	return channels.Result{Outcome: notify.AccountRejected, Code: "20003"}
}

// path tells which accounts a delivery was called through, and what came of it.
func path(r record) string {
	var out []string
	for _, a := range r.Attempts {
		out = append(out, a.Account+":"+string(a.Outcome))
	}
	return strings.Join(out, " ")
}

func TestARejectedAccountHandsOverAtOnce(t *testing.T) {
	t.Parallel()
	main, backup, email := named("main", notify.SMS, rejects), named("backup", notify.SMS, ok), newScript(notify.Email, ok)
	n := single(t, account(main), account(backup), account(email))
	status, r := n.final(t, n.accept(t, notification(both, step(notify.SMS), step(notify.Email))))
	if got := path(r); status != notify.Sent || got != "main:account_rejected backup:accepted" || r.Deliveries[0].Attempts != 1 {
		t.Errorf("status %s after %s, %d attempts used", status, got, r.Deliveries[0].Attempts)
	}
	if took := r.Attempts[1].StartedAt.Sub(r.Attempts[0].StartedAt); took > soon {
		t.Errorf("the second account was called %v later", took)
	}
	if got := story(n.events(t, r.Notification.ID)); got != "accepted waiting:account_rejected sent." {
		t.Errorf("events %s", got)
	}
	if s := n.member.Snapshot(time.Now()); len(s) != 1 || s[0].Breaker.Reason != resilience.ReasonRejected || s[0].Breaker.Code != "20003" {
		t.Errorf("breakers %+v", s)
	}
	for range 10 {
		_, r := n.final(t, n.accept(t, notification(both, step(notify.SMS), step(notify.Email))))
		if path(r) != "backup:accepted" || r.Attempts[0].Detail != "passed over main (breaker_open)" {
			t.Errorf("went %s, %q", path(r), r.Attempts[0].Detail)
		}
	}
	if len(main.sent()) != 1 || len(email.sent()) != 0 {
		t.Errorf("main was called %d times, email %d times", len(main.sent()), len(email.sent()))
	}
}

func TestTheChainGoesOnOnceEveryAccountHasRefused(t *testing.T) {
	t.Parallel()
	region := func(int, *channels.Message) channels.Result {
		return channels.Result{Outcome: notify.AccountRejected, Code: "21408", Scope: "region:1415"}
	}
	a, b, email := named("a", notify.SMS, region), named("b", notify.SMS, region), newScript(notify.Email, ok)
	n := single(t, account(a), account(b), account(email))
	status, r := n.final(t, n.accept(t, notification(both, step(notify.SMS), step(notify.Email))))
	if got := path(r); status != notify.Sent || got != "a:account_rejected b:account_rejected email-main:accepted" {
		t.Errorf("status %s after %s", status, got)
	}
}

// What one account may not do says nothing of the account as a whole; nor must the
// delivery go to and fro between those that may not.
func TestADeliveryVisitsEachAccountOnceThatRefusesOnlyIt(t *testing.T) {
	t.Parallel()
	region := func(int, *channels.Message) channels.Result {
		return channels.Result{Outcome: notify.AccountRejected, Code: "21408", Scope: "region:1415"}
	}
	a, b, c := named("a", notify.SMS, region), named("b", notify.SMS, region), named("c", notify.SMS, ok)
	n := single(t, account(a), account(b), account(c))
	for range 2 {
		_, r := n.final(t, n.accept(t, notification(both, step(notify.SMS))))
		if got := path(r); got != "a:account_rejected b:account_rejected c:accepted" {
			t.Errorf("went %s", got)
		}
	}
}

func TestTheLastStepWaitsForARepairWhereAllAccountsAreRejected(t *testing.T) {
	t.Parallel()
	a, b := named("a", notify.SMS, first(notify.AccountRejected)), named("b", notify.SMS, first(notify.AccountRejected))
	n := single(t, account(a), account(b))
	id := n.accept(t, notification(both, step(notify.SMS)))
	r := n.waiting(t, id, notify.WaitAccountRejected)
	for len(r.Attempts) < 2 {
		r = n.waiting(t, id, notify.WaitAccountRejected)
	}
	if w := r.Waits[0]; w.Scope != "any:b a" && w.Scope != "any:a b" {
		t.Errorf("waits for %q", w.Scope)
	}
	n.operate(t, "a", store.ActionReset, time.Time{})
	if status, r := n.final(t, id); status != notify.Sent || !strings.HasSuffix(path(r), " a:accepted") {
		t.Errorf("status %s after %s", status, path(r))
	}
}

func TestDeliveriesHeldByAllAccountsMoveWhenAnyOpens(t *testing.T) {
	t.Parallel()
	for _, opens := range []string{"a", "b"} {
		t.Run(opens, func(t *testing.T) {
			t.Parallel()
			a, b := named("a", notify.SMS, ok), named("b", notify.SMS, ok)
			n := start(t, pgURL(t), registry(account(a), account(b)), hold)
			n.operate(t, "a", store.ActionOpen, time.Time{})
			n.operate(t, "b", store.ActionOpen, time.Now().Add(time.Hour))
			var ids []uuid.UUID
			for range 20 {
				ids = append(ids, n.accept(t, notification(both, step(notify.SMS))))
			}
			n.Release()
			eventually(t, "all are held by both", func() bool {
				return n.count(t, "select count(*) from dispatcher.waits where held and scope = 'any:b a' and reason = 'breaker_open'") == 20
			})
			n.operate(t, opens, store.ActionClose, time.Time{})
			for _, id := range ids {
				if status, r := n.final(t, id); status != notify.Sent || path(r) != opens+":accepted" {
					t.Errorf("status %s, went %q", status, path(r))
				}
			}
		})
	}
}

func TestAGateIsWaitedForOnlyAsLongAsPatienceAllows(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		priority notify.Priority
		quiet    time.Duration
		want     string
	}{
		"a short one":                       {notify.Normal, time.Second, "a:throttled a:accepted"},
		"a long one":                        {notify.Normal, time.Minute, "a:throttled b:accepted"},
		"one too long for what is critical": {notify.Critical, 3 * time.Second, "a:throttled b:accepted"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, b := named("a", notify.SMS, func(n int, _ *channels.Message) channels.Result {
				if n == 1 {
					return channels.Result{Outcome: notify.Throttled, RetryAfter: test.quiet}
				}
				return channels.Ok("id")
			}), named("b", notify.SMS, ok)
			n := single(t, account(a), account(b))
			what := notification(both, step(notify.SMS))
			what.Priority = test.priority
			_, r := n.final(t, n.accept(t, what))
			if got := path(r); got != test.want || r.Deliveries[0].Attempts != 1 {
				t.Errorf("went %s, %d attempts used", got, r.Deliveries[0].Attempts)
			}
		})
	}
}

func TestAnUnknownOutcomeStaysWithItsAccount(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		policy  notify.UnknownPolicy
		barred  bool
		want    string
		doubled bool
	}{
		"resend goes to the same account":               {notify.Resend, false, "a:unknown a:accepted", true},
		"resend goes elsewhere where that is barred":    {notify.Resend, true, "a:unknown b:accepted", true},
		"without a repeat no other account is called":   {notify.FallBack, true, "a:unknown email-main:accepted", false},
		"assumed to be sent, nobody is called any more": {notify.AssumeSent, true, "a:unknown", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDoor(t)
			a, b := named("a", notify.SMS, func(n int, m *channels.Message) channels.Result {
				if n == 1 {
					<-d.c
				}
				return first(notify.Unknown)(n, m)
			}), named("b", notify.SMS, ok)
			main := account(a)
			// A weight would send it elsewhere if it did not stay.
			main.Retry = resilience.Backoff{Base: 200 * time.Millisecond, Cap: 200 * time.Millisecond, Floor: 100 * time.Millisecond}
			n := single(t, main, account(b), account(newScript(notify.Email, ok)))
			what := notification(both, step(notify.SMS), step(notify.Email))
			what.Chain[0].OnUnknown = test.policy
			id := n.accept(t, what)
			eventually(t, "the call is under way", func() bool { return len(a.sent()) == 1 })
			if test.barred {
				n.operate(t, "a", store.ActionOpen, time.Time{})
			}
			d.open()
			_, r := n.final(t, id)
			if got := path(r); got != test.want || r.Attempts[len(r.Attempts)-1].PossibleDuplicate != test.doubled {
				t.Errorf("went %s, attempts %+v", got, r.Attempts)
			}
		})
	}
}

func TestDeliveriesGoToAccountsByTheirWeights(t *testing.T) {
	t.Parallel()
	a, b, spare := named("a", notify.SMS, ok), named("b", notify.SMS, ok), named("spare", notify.SMS, ok)
	accounts := []*dispatch.Account{account(spare), account(a), account(b)}
	accounts[1].Weight, accounts[2].Weight = 80, 20
	n := start(t, pgURL(t), registry(accounts...))
	n.acceptAll(t, alike(300, both, step(notify.SMS))...)
	n.ended(t, 300)
	// Of 300, four standard deviations are 28.
	if got := len(b.sent()); got < 32 || got > 88 || len(spare.sent()) != 0 {
		t.Errorf("%d of 300 went to an account with a fifth of the weight, %d to the spare one", got, len(spare.sent()))
	}
	n.operate(t, "a", store.ActionOpen, time.Time{})
	n.operate(t, "b", store.ActionOpen, time.Time{})
	if _, r := n.final(t, n.accept(t, notification(both, step(notify.SMS)))); path(r) != "spare:accepted" {
		t.Errorf("went %s", path(r))
	}
}

func TestCallsComeBackToARepairedAccountWithoutABurst(t *testing.T) {
	t.Parallel()
	d := newDoor(t)
	a := named("a", notify.SMS, func(int, *channels.Message) channels.Result {
		select {
		case <-d.c:
			return channels.Ok("id")
		default:
			return rejects(0, nil)
		}
	})
	b := named("b", notify.SMS, ok)
	main := account(a)
	main.Breaker = resilience.BreakerConfig{Failures: 1000, OpenFor: 100 * time.Millisecond, OpenCap: 100 * time.Millisecond, RejectedFor: 100 * time.Millisecond, Successes: 1}
	n := single(t, main, account(b))
	n.final(t, n.accept(t, notification(both, step(notify.SMS))))
	d.open()
	closed := func() bool {
		s := n.member.Snapshot(time.Now())
		return len(s) == 1 && s[0].Breaker.State == resilience.Closed
	}
	eventually(t, "the breaker closes", func() bool { // deliveries are the probes
		n.final(t, n.accept(t, notification(both, step(notify.SMS))))
		return closed()
	})
	before, others, attempts := len(a.sent()), len(b.sent()), n.count(t, "select count(*) from dispatcher.attempts")
	const messages = 150
	for _, id := range n.acceptAll(t, alike(messages, both, step(notify.SMS))...) {
		if status, _ := n.final(t, id); status != notify.Sent {
			t.Errorf("status %s", status)
		}
	}
	if got := n.count(t, "select count(*) from dispatcher.attempts") - attempts; got != messages {
		t.Errorf("%d attempts", got)
	}
	// A twentieth at first, and after some seconds little more.
	if got := len(a.sent()) - before; got > messages/3 || got+len(b.sent())-others != messages {
		t.Errorf("%d of %d went to the account that had just been repaired", got, messages)
	}
}

// unable is an account that will not take some messages.
type unable struct{ *script }

func (unable) Check(m *channels.Message) error {
	if m.Reference == "odd" {
		return &channels.CheckError{Field: "/reference", Reason: "is odd"}
	}
	return nil
}

func TestAnAccountThatCannotTakeAMessageLeavesItToAnother(t *testing.T) {
	t.Parallel()
	a, b := named("a", notify.SMS, ok), named("b", notify.SMS, ok)
	b.info.MaxObservable = notify.Delivered
	n := single(t, account(unable{a}), account(b))
	odd := notification(both, step(notify.SMS))
	odd.Reference = "odd"
	if problems := n.Registry().Check(&odd); len(problems) != 0 {
		t.Errorf("refused: %+v", problems)
	}
	id := n.accept(t, odd)
	r := n.until(t, id, "sent", func(r record) bool { return len(r.Attempts) > 0 })
	if path(r) != "b:accepted" || len(a.sent()) != 0 || r.Deliveries[0].Calls != 1 {
		t.Errorf("went %s, %d calls counted", path(r), r.Deliveries[0].Calls)
	}
	told := notification(both, notify.Step{Channel: notify.SMS, Success: notify.UntilDelivered})
	r = n.until(t, n.accept(t, told), "sent", func(r record) bool { return len(r.Attempts) > 0 })
	if path(r) != "b:accepted" {
		t.Errorf("what asks for a delivery went %s", path(r))
	}
}

func TestAPinnedAccountIsNotPassedOver(t *testing.T) {
	t.Parallel()
	a, b := named("a", notify.SMS, ok), named("b", notify.SMS, ok)
	n := single(t, account(a), account(b))
	n.operate(t, "a", store.ActionOpen, time.Time{})
	pinned := notification(both, notify.Step{Channel: notify.SMS, Account: "a"})
	id := n.accept(t, pinned)
	if r := n.waiting(t, id, notify.WaitBreakerOpen); r.Waits[0].Scope != "a" {
		t.Errorf("waits for %q", r.Waits[0].Scope)
	}
	n.operate(t, "a", store.ActionReset, time.Time{})
	if _, r := n.final(t, id); path(r) != "a:accepted" || len(b.sent()) != 0 {
		t.Errorf("went %s", path(r))
	}
}

// Accounts of two providers have scopes of their own each.
func TestEachProvidersOwnScopesHold(t *testing.T) {
	t.Parallel()
	a, b := named("a", notify.WhatsApp, ok), named("b", notify.WhatsApp, ok)
	a.info.Provider, b.info.Provider = "one", "two"
	n := single(t,
		account(scoped{a, func(notify.Target) []string { return []string{"pair"} }}),
		account(scoped{b, func(notify.Target) []string { return []string{"number"} }}))
	to := notify.To{WhatsApp: "+14155550100"}
	go1 := func(want string) {
		t.Helper()
		if _, r := n.final(t, n.accept(t, notification(to, step(notify.WhatsApp)))); path(r) != want {
			t.Errorf("went %s, want %s", path(r), want)
		}
	}
	n.member.Throttle("a/number", time.Now().Add(time.Hour), time.Now()) // not a scope of a's
	go1("a:accepted")
	n.member.Throttle("a/pair", time.Now().Add(time.Hour), time.Now())
	go1("b:accepted")
	n.member.Throttle("b/number", time.Now().Add(time.Hour), time.Now())
	id := n.accept(t, notification(to, step(notify.WhatsApp)))
	if r := n.waiting(t, id, notify.WaitThrottled); r.Waits[0].Scope != "any:a/pair b/number" {
		t.Errorf("waits for %q", r.Waits[0].Scope)
	}
	n.operate(t, "b/number", store.ActionReset, time.Time{}) // long before the instant that the wait was to end at
	if _, r := n.final(t, id); path(r) != "b:accepted" {
		t.Errorf("when one of them opens it goes %s", path(r))
	}
}

// A webhook's host is the same host for every account.
func TestAHostThatWantsQuietIsNotCalledThroughAnotherAccount(t *testing.T) {
	t.Parallel()
	a, b := named("a", notify.Webhook, ok), named("b", notify.Webhook, ok)
	host := func(notify.Target) []string { return []string{"host:example.com"} }
	n := single(t, account(scoped{a, host}), account(scoped{b, host}))
	n.member.Throttle("a/host:example.com", time.Now().Add(time.Hour), time.Now())
	id := n.accept(t, notification(notify.To{Webhook: &notify.WebhookTarget{URL: "https://example.com/x"}}, step(notify.Webhook)))
	if r := n.waiting(t, id, notify.WaitThrottled); r.Waits[0].Scope != "a/host:example.com" || len(b.sent()) != 0 {
		t.Errorf("waits %+v", r.Waits)
	}
}

func TestARetryStaysOnItsAccountUntilThatIsBarred(t *testing.T) {
	t.Parallel()
	a, b := named("a", notify.SMS, first(notify.ProviderUnavailable)), named("b", notify.SMS, ok)
	n := single(t, account(a), account(b))
	if _, r := n.final(t, n.accept(t, notification(both, step(notify.SMS)))); path(r) != "a:provider_unavailable a:accepted" {
		t.Errorf("went %s", path(r))
	}
	down := named("down", notify.SMS, always(notify.ProviderUnavailable))
	failing := account(down)
	failing.Breaker = resilience.BreakerConfig{Failures: 2, OpenFor: time.Hour}
	m := single(t, failing, account(named("up", notify.SMS, ok)))
	_, r := m.final(t, m.accept(t, notification(both, step(notify.SMS))))
	if got := path(r); !strings.HasSuffix(got, " up:accepted") || strings.Count(got, "down") < 2 {
		t.Errorf("went %s", got)
	}
}

func TestAFailoverIsCounted(t *testing.T) {
	t.Parallel()
	m := &tally{got: map[string]int{}}
	n := start(t, pgURL(t), registry(account(named("a", notify.SMS, rejects)), account(named("b", notify.SMS, ok))), func(s *setup) { s.Metrics = m })
	for range 2 {
		n.final(t, n.accept(t, notification(both, step(notify.SMS))))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.got["failover a b breaker_open"] != 2 {
		t.Errorf("counted %v", slices.Sorted(func(yield func(string) bool) {
			for k, v := range m.got {
				if !yield(fmt.Sprint(k, " ", v)) {
					return
				}
			}
		}))
	}
}
