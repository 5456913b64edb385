package dispatch_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// turnstile lets calls end one by one.
type turnstile struct{ c chan struct{} }

func newTurnstile(t *testing.T) *turnstile {
	t.Helper()
	s := &turnstile{make(chan struct{})}
	context.AfterFunc(t.Context(), func() { close(s.c) })
	return s
}

// pass lets one call end.
func (s *turnstile) pass(t *testing.T) {
	t.Helper()
	select {
	case s.c <- struct{}{}:
	case <-time.After(30 * time.Second):
		t.Fatal("no call is under way")
	}
}

// overload is a node whose webhook channel has more to do than it can: each call
// ends when the test lets it.
type overload struct {
	*node
	hook *script
	gate *turnstile
	url  string
}

// overloaded has one place for calls, in the channel or in the destination, and
// fills it.
func overloaded(t *testing.T, limit int) *overload {
	t.Helper()
	gate := newTurnstile(t)
	hook := newScript(notify.Webhook, func(int, *channels.Message) channels.Result { <-gate.c; return channels.Ok("id") })
	o := &overload{
		hook: hook, gate: gate, url: "https://slow.example/",
		node: start(t, pgURL(t), limited(limit, account(byHost{hook}))),
	}
	o.accept(t, o.message(notify.Normal))
	eventually(t, "a call is under way", func() bool { now, _ := hook.flying(); return now == 1 })
	return o
}

func (o *overload) message(p notify.Priority) notify.Notification {
	n := notification(notify.To{Webhook: &notify.WebhookTarget{URL: o.url}}, step(notify.Webhook))
	n.Priority = p
	return n
}

func (o *overload) held(t *testing.T) int {
	t.Helper()
	return o.count(t, "select count(*) from dispatcher.waits where held and reason = 'capacity'")
}

// hold accepts so many and waits until they are held.
func (o *overload) hold(t *testing.T, p notify.Priority, many int) (ids []uuid.UUID) {
	t.Helper()
	want := o.held(t) + many
	for range many {
		ids = append(ids, o.accept(t, o.message(p)))
	}
	eventually(t, "they are held", func() bool { return o.held(t) == want })
	return ids
}

// called returns the notifications in the order of their calls.
func (o *overload) called() (ids []uuid.UUID) {
	for _, c := range o.hook.sent() {
		ids = append(ids, c.notification)
	}
	return ids
}

func TestWhatIsHeldGoesBeforeWhatArrivesUnderLastingOverload(t *testing.T) {
	t.Parallel()
	for what, limit := range map[string]int{"the channel": 1, "a destination": 4} {
		t.Run("of "+what, func(t *testing.T) {
			t.Parallel()
			o := overloaded(t, limit)
			low := o.hold(t, notify.Low, 10)
			critical := o.hold(t, notify.Critical, 3)
			normal := o.hold(t, notify.Normal, 3)
			// What arrives meanwhile does not stop.
			ctx, stop := context.WithCancel(t.Context())
			var flood sync.WaitGroup
			var flooded atomic.Int64
			for range 2 {
				flood.Go(func() {
					for ctx.Err() == nil && flooded.Load() < 2000 {
						if _, err := o.Accept(ctx, store.Accept{Notification: o.message(notify.Low)}); err == nil {
							flooded.Add(1)
						}
					}
				})
			}
			order := [][]uuid.UUID{critical, normal, low}
			for i := range slices.Concat(order...) {
				o.gate.pass(t)
				eventually(t, "the next call is made", func() bool { return len(o.called()) == i+2 })
			}
			stop()
			flood.Wait()
			got := o.called()[1:]
			kinds := kinds(got, order)
			t.Logf("with %d arriving meanwhile: %v", flooded.Load(), kinds)
			// Those that are let go in one round may pass each other, on their way to the
			// call, by a place or two.
			places := map[int]int{}
			for i, kind := range kinds[:6] {
				places[kind] += i
			}
			if places[2]+places[-1] > 0 || places[0] >= places[1] {
				t.Errorf("the first calls are %v, want the critical and then the normal ones", kinds[:6])
			}
			if n := len(slices.DeleteFunc(kinds[6:], func(k int) bool { return k == 2 })); n > 2 {
				t.Errorf("%d that arrived later got ahead of the low ones that were held", n)
			}
		})
	}
}

// kinds says of which kind each of the notifications is; -1 for none.
func kinds(ids []uuid.UUID, of [][]uuid.UUID) []int {
	out := make([]int, len(ids))
	for i, id := range ids {
		out[i] = slices.IndexFunc(of, func(kind []uuid.UUID) bool { return slices.Contains(kind, id) })
	}
	return out
}

func TestAHeldBacklogIsLetGoAsItsDestinationTakesIt(t *testing.T) {
	t.Parallel()
	const many, takes = 400, 20 * time.Millisecond
	hook := newScript(notify.Webhook, func(int, *channels.Message) channels.Result { time.Sleep(takes); return channels.Ok("id") }) //nolint:forbidigo // the receiver is that slow
	n := start(t, pgURL(t), limited(64, account(byHost{hook})), func(s *setup) { s.Hold = true })
	to := notify.To{Webhook: &notify.WebhookTarget{URL: "https://slow.example/"}}
	var flood sync.WaitGroup
	for range 8 {
		flood.Go(func() {
			for range many / 8 {
				n.accept(t, notification(to, step(notify.Webhook)))
			}
		})
	}
	flood.Wait()
	begun := time.Now()
	n.Release()
	eventually(t, "all are sent", func() bool { return n.count(t, "select count(*) from dispatcher.deliveries where final") == many })
	took := time.Since(begun)
	if _, peak := hook.flying(); peak != 16 {
		t.Errorf("%d calls were under way at once, want a quarter of 64", peak)
	}
	refused := n.count(t, "select sum(turn - 1) from dispatcher.deliveries")
	t.Logf("%d in %v where calls alone take %v; %d refusals", many, took, takes*many/16, refused)
	// Being refused costs more than a call does; to be so again and again is what made
	// a busy destination slower still.
	if refused > many+many/2 {
		t.Errorf("%d refusals", refused)
	}
}

func TestProjectsShareWhatAnOverloadedChannelHas(t *testing.T) {
	t.Parallel()
	o := overloaded(t, 1)
	flood := o.hold(t, notify.Normal, 40)
	for range 5 {
		n := o.message(notify.Normal)
		n.Project = "other"
		o.accept(t, n)
	}
	eventually(t, "all are held", func() bool { return o.held(t) == 45 })
	for i := range 10 {
		o.gate.pass(t)
		eventually(t, "the next call is made", func() bool { return len(o.called()) == i+2 })
	}
	mine := 0
	for _, id := range o.called()[1:] {
		if slices.Contains(flood, id) {
			mine++
		}
	}
	// What was let go may still be on its way when its turn comes.
	if mine < 4 || mine > 6 {
		t.Errorf("of 10 calls the flood of 40 had %d, want about half", mine)
	}
}

// never is leave that is taken back before the call.
type never struct{ dispatch.Admission }

func (a never) Admit(ctx context.Context, of *dispatch.Account, scopes []string, retry store.RetryKind, now time.Time) (dispatch.Ticket, *dispatch.Refusal) {
	t, r := a.Admission.Admit(ctx, of, scopes, retry, now)
	if t == nil {
		return nil, r
	}
	return lapsed{t}, r
}

type lapsed struct{ dispatch.Ticket }

func (lapsed) Start(time.Time) (until time.Time, ok bool) { return until, false }

func TestOneThatIsRefusedAgainHasBeenHeldSinceTheFirstTime(t *testing.T) {
	t.Parallel()
	for reason, c := range map[notify.WaitReason]struct {
		limit   int
		adapt   func(*setup)
		prepare func(t *testing.T, n *node)
	}{
		notify.WaitPaused: {limit: 4, prepare: func(t *testing.T, n *node) {
			n.exec(t, "insert into dispatcher.pauses (channel, by, since) values ('sms', 'test', now())")
		}},
		notify.WaitBreakerOpen: {limit: 4, prepare: func(t *testing.T, n *node) {
			n.operate(t, "sms-main", store.ActionOpen, time.Now().Add(time.Hour))
		}},
		notify.WaitThrottled: {limit: 4, prepare: func(t *testing.T, n *node) {
			n.member.Throttle("sms-main", time.Now().Add(time.Minute), time.Now())
		}},
		// The claim is given back: a probe, say, that another node has made.
		notify.WaitCapacity: {limit: 4, adapt: func(s *setup) { s.Admission = never{s.Admission} }, prepare: func(*testing.T, *node) {}},
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			sms := newScript(notify.SMS, ok)
			n := start(t, pgURL(t), limited(c.limit, account(sms)), func(s *setup) {
				if s.Hold = true; c.adapt != nil {
					c.adapt(s)
				}
			})
			since := time.Now().Add(-20 * time.Minute).Truncate(time.Millisecond)
			n.exec(t, `create function dispatcher.was_held() returns trigger language plpgsql as $$ begin
				new.args := jsonb_set(new.args, '{i,0,h}', to_jsonb((select max(ms) from dispatcher.held_since)));
				return new; end $$`)
			n.exec(t, "create table dispatcher.held_since (ms bigint)")
			n.exec(t, "insert into dispatcher.held_since values ($1)", since.UnixMilli())
			n.exec(t, "create trigger was_held before insert on dispatcher.river_job for each row execute function dispatcher.was_held()")
			id := n.accept(t, notification(both, step(notify.SMS)))
			n.exec(t, "drop trigger was_held on dispatcher.river_job")
			c.prepare(t, n)
			n.Release()
			r := n.waiting(t, id, reason)
			if w := r.Waits[0]; !w.Held || !w.Since.Equal(since) {
				t.Errorf("held %v since %v, want %v", w.Held, w.Since, since)
			}
			if d := r.Deliveries[0]; d.Attempts != 0 || d.Calls != 0 {
				t.Errorf("%d attempts, %d calls", d.Attempts, d.Calls)
			}
		})
	}
}

func TestOneThatFindsNoPlaceAgainHasBeenHeldSinceTheFirstTime(t *testing.T) {
	t.Parallel()
	o := overloaded(t, 1)
	id := o.hold(t, notify.Normal, 1)[0]
	first := o.waiting(t, id, notify.WaitCapacity)
	// Another node that has no room is sent it.
	o.exec(t, "update dispatcher.waits set since = since - interval '20 minutes'")
	want := first.Waits[0].Since.Add(-20 * time.Minute).Truncate(time.Millisecond)
	if _, err := o.store.WakeHeld(t.Context(), []store.Room{{
		Hold: store.Hold{Scope: first.Waits[0].Scope, Priority: notify.Normal, Project: "default"}, N: 1,
	}}); err != nil {
		t.Fatal(err)
	}
	r := o.until(t, id, "held again", func(r store.Record) bool { return len(r.Waits) == 1 && r.Waits[0].Turn > first.Waits[0].Turn })
	if w := r.Waits[0]; w.Reason != notify.WaitCapacity || !w.Since.Equal(want) {
		t.Errorf("held for %s since %v, want %v", w.Reason, w.Since, want)
	}
}
