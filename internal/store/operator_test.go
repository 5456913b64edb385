package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

func (d *db) operate(scope string, action store.Action, by resilience.Override) {
	d.t.Helper()
	if err := d.Operate(d.t.Context(), scope, action, by); err != nil {
		d.t.Fatal(err)
	}
}

func (d *db) states(accounts, scopes []string, narrower int) map[string]store.ScopeState {
	d.t.Helper()
	list, err := d.ScopeStates(d.t.Context(), accounts, scopes, narrower)
	if err != nil {
		d.t.Fatal(err)
	}
	out := map[string]store.ScopeState{}
	for _, s := range list {
		out[s.Scope] = s
	}
	if len(out) != len(list) {
		d.t.Errorf("a scope is there twice: %+v", list)
	}
	return out
}

func TestScopesAreShownAsTheClusterHasThem(t *testing.T) {
	t.Parallel()
	d := open(t)
	ana := resilience.Override{Who: "ana", Why: "incident"}
	d.operate("a", store.ActionOpen, ana)
	passed := resilience.Override{Who: "ben", Why: "over", Until: now().Add(-time.Second)}
	d.operate("b", store.ActionClose, passed)
	if err := d.Scopes(d.node).Throttle(t.Context(), map[string]time.Duration{"b": time.Minute, "a/gone": time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	for _, node := range []uuid.UUID{d.node, uuid.New()} {
		_, err := d.Scopes(node).Report(t.Context(), []resilience.ScopeTally{{Scope: "c", Tally: resilience.Tally{Streak: 2, Calls: 10, Failures: 3, Slow: 1}}})
		if err != nil {
			t.Fatal(err)
		}
	}
	d.exec("update dispatcher.gates set not_before = now() - interval '1 second' where scope = 'a/gone'")
	got := d.states([]string{"a", "b", "c"}, []string{"d/host:x"}, 10)
	if len(got) != 4 {
		t.Errorf("%d scopes: %+v", len(got), got)
	}
	if b := got["a"].Breaker; b.State != resilience.Open || b.Forced == nil || *b.Forced != ana || b.Reason != resilience.ReasonForced || b.ChangedAt.IsZero() {
		t.Errorf("a: %+v", b)
	}
	if s := got["b"]; s.Breaker.State != resilience.Closed || s.Breaker.Forced != nil || s.GateUntil.Before(now().Add(50*time.Second)) {
		t.Errorf("b: %+v", s)
	}
	if s := got["c"]; s.Calls != 20 || s.Failures != 6 || s.Slow != 2 || s.Breaker.Failures != 4 || s.Breaker.State != resilience.Closed {
		t.Errorf("c: %+v", s)
	}
	if s := got["d/host:x"]; s.Breaker.State != resilience.Closed || !s.GateUntil.IsZero() {
		t.Errorf("d: %+v", s)
	}
}

func TestNarrowerScopesInTroubleAreShownOfTheAccountsAskedForThoseThatChangedLast(t *testing.T) {
	t.Parallel()
	d := open(t)
	for i := range 5 {
		d.operate(fmt.Sprintf("hooks/host:%d", i), store.ActionOpen, resilience.Override{Who: "ana", Why: "x"})
	}
	d.operate("others/host:x", store.ActionOpen, resilience.Override{Who: "ana", Why: "x"})
	d.operate("hooks/host:4", store.ActionReset, resilience.Override{Who: "ana", Why: "x"}) // well again
	got := d.states([]string{"hooks"}, nil, 2)
	var names []string
	for _, name := range []string{"hooks", "hooks/host:3", "hooks/host:2"} {
		if _, ok := got[name]; ok {
			names = append(names, name)
		}
	}
	if len(got) != 3 || len(names) != 3 {
		t.Errorf("scopes %+v", got)
	}
	if got := d.states([]string{"hooks"}, nil, 0); len(got) != 1 {
		t.Errorf("none was asked for: %+v", got)
	}
}

func TestABreakerIsForgottenWhenNothingIsForcedAnyMore(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.operate("good", store.ActionReset, resilience.Override{Who: "ana"})
	d.operate("for-good", store.ActionClose, resilience.Override{Who: "ana"})
	d.operate("still", store.ActionClose, resilience.Override{Who: "ana", Until: now().Add(time.Minute)})
	d.operate("over", store.ActionClose, resilience.Override{Who: "ana", Until: now().Add(-2 * time.Hour)})
	d.operate("open", store.ActionOpen, resilience.Override{Who: "ana", Until: now().Add(-2 * time.Hour)})
	d.exec("update dispatcher.breakers set changed_at = now() - interval '3 hours'")
	if err := d.ForgetScopes(t.Context(), now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	for scope, want := range map[string]int64{"good": 0, "for-good": 1, "still": 1, "over": 0, "open": 1} {
		if got := d.count("select count(*) from dispatcher.breakers where scope = $1", scope); got != want {
			t.Errorf("%d rows of %s, want %d", got, scope, want)
		}
	}
}

func TestWhatOperatorsDidIsKeptNewestFirst(t *testing.T) {
	t.Parallel()
	d := open(t)
	until := now().Add(time.Hour)
	d.operate("a", store.ActionOpen, resilience.Override{Who: "ana (1)", Why: "incident", Until: until})
	if err := d.PauseChannel(t.Context(), notify.SMS, "ben (2)", "invoice"); err != nil {
		t.Fatal(err)
	}
	if err := d.ResumeChannel(t.Context(), notify.SMS, "ben (2)", "paid"); err != nil {
		t.Fatal(err)
	}
	d.operate("a", store.ActionReset, resilience.Override{Who: "ana (1)", Why: "over"})
	got, err := d.OperatorActions(t.Context(), 3)
	if err != nil {
		t.Fatal(err)
	}
	want := []store.OperatorAction{
		{Action: "reset", Target: "a", By: "ana (1)", Why: "over"},
		{Action: "resume", Target: "sms", By: "ben (2)", Why: "paid"},
		{Action: "pause", Target: "sms", By: "ben (2)", Why: "invoice"},
	}
	for i := range got {
		if age := time.Since(got[i].At); age < -time.Minute || age > time.Minute {
			t.Errorf("at %v", got[i].At)
		}
		got[i].At, got[i].ID = time.Time{}, 0
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	if all, err := d.OperatorActions(t.Context(), 100); err != nil || len(all) != 4 || !all[3].Until.Equal(until) {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestTheOldestHeldDeliveryOfEachScopeIsFound(t *testing.T) {
	t.Parallel()
	d := open(t)
	at := now()
	held := func(scope string, reason notify.WaitReason, age time.Duration, p notify.Priority, in string) store.Acceptance {
		return row(project(in), priority(p), func(a *store.Acceptance) {
			a.Starts = starts(&a.Notification, 0)
			a.Starts[0].Wait = &store.Wait{Reason: reason, Scope: scope, Held: true, Since: at.Add(-age), Due: at.Add(time.Hour), Until: at}
		})
	}
	d.accept(
		held("a", notify.WaitBreakerOpen, 20*time.Minute, notify.Low, "p"), held("a", notify.WaitThrottled, 40*time.Minute, notify.Low, "q"),
		held("a", notify.WaitBreakerOpen, 10*time.Minute, notify.Critical, "p"), held("a", notify.WaitBreakerOpen, 30*time.Minute, notify.Low, "p"),
		held("b", notify.WaitPaused, 14*time.Minute, notify.Normal, "p"), held("c/host:x", notify.WaitCapacity, 16*time.Minute, notify.Normal, "p"),
		row(waiting(notify.WaitScheduled, "", at.Add(time.Hour))),
	)
	got, err := d.OldestHeld(t.Context(), 15*time.Minute, 100)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[0].Scope != "a" || got[0].Reason != notify.WaitThrottled || !got[0].Since.Equal(at.Add(-40*time.Minute)) ||
		got[0].Age < 40*time.Minute || got[0].Age > 41*time.Minute || got[0].Channel != notify.SMS ||
		got[1].Scope != "c/host:x" || got[1].Reason != notify.WaitCapacity {
		t.Errorf("held %+v", got)
	}
	for most, want := range map[int]int{100: 4, 3: 3} {
		if n, err := d.CountHeld(t.Context(), "a", most); err != nil || n != want {
			t.Errorf("counted %d up to %d, %v", n, most, err)
		}
	}
	backlog, err := d.Backlog(t.Context(), "q")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range backlog {
		if since, ok := b.OldestHeld[notify.WaitThrottled]; ok != (b.Channel == notify.SMS) || ok && !since.Equal(at.Add(-40*time.Minute)) || !ok && len(b.OldestHeld) > 0 {
			t.Errorf("%s: held %v", b.Channel, b.OldestHeld)
		}
	}
}

func TestAResetLetsGoOfAllThatAGateHeld(t *testing.T) {
	t.Parallel()
	d := open(t)
	at := now()
	held := func(scope string, reason notify.WaitReason) store.Acceptance {
		return row(func(a *store.Acceptance) {
			a.Starts = starts(&a.Notification, 0)
			a.Starts[0].Wait = &store.Wait{Reason: reason, Scope: scope, Held: true, Since: at, Due: at.Add(time.Hour), Until: at.Add(time.Hour)}
		})
	}
	rows := []store.Acceptance{held("other", notify.WaitThrottled), held("sms-main", notify.WaitBreakerOpen)}
	for range 4001 { // three portions
		rows = append(rows, held("sms-main", notify.WaitThrottled))
	}
	// Without reading each again.
	if _, errs, err := d.Accept(t.Context(), rows, at, time.Hour); err != nil || slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		t.Fatal(errs, err)
	}
	d.operate("sms-main", store.ActionReset, resilience.Override{Who: "ana"})
	for where, want := range map[string]int64{
		"scope = 'sms-main' and reason = 'throttled' and until < now() and due = $1": 4001,
		"(scope = 'other' or reason <> 'throttled') and until = $1":                  2,
	} {
		if n := d.count("select count(*) from dispatcher.waits where "+where, at.Add(time.Hour)); n != want {
			t.Errorf("%d where %s, want %d", n, where, want)
		}
	}
}

func TestAResetEndsWhileAGateHoldsAnew(t *testing.T) {
	t.Parallel()
	d := open(t)
	d.accept(row(func(a *store.Acceptance) {
		at := now()
		a.Starts = starts(&a.Notification, 0)
		a.Starts[0].Wait = &store.Wait{Reason: notify.WaitThrottled, Scope: "sms-main", Held: true, Since: at, Due: at.Add(time.Hour), Until: at.Add(time.Hour)}
	}))
	d.exec(`create function throttle() returns trigger language plpgsql as $$ begin new.until = old.until; return new; end $$`)
	d.exec("create trigger anew before update on dispatcher.waits for each row execute function throttle()")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := d.Operate(ctx, "sms-main", store.ActionReset, resilience.Override{Who: "ana"}); err != nil {
		t.Error(err)
	}
}

func TestTheEldestNodeIsTheOneThatStartedFirst(t *testing.T) {
	t.Parallel()
	d := open(t)
	if _, err := d.EldestNode(t.Context()); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("error %v without nodes", err)
	}
	d.closeLink(d.link(d.node))
	d.link(uuid.New())
	d.exec("update dispatcher.nodes set started_at = started_at - interval '1 hour' where id = $1", d.node)
	if id, err := d.EldestNode(t.Context()); err != nil || id != d.node {
		t.Errorf("eldest %v, %v", id, err)
	}
}
