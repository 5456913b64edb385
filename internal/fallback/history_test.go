package fallback_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

var (
	evidence = []notify.Status{notify.Sent, notify.Failed, notify.Delivered, notify.Read}
	ends     = []notify.Status{notify.Failed, notify.Lapsed, notify.Canceled, notify.Blocked}
	shown    = []notify.Status{notify.Sent, notify.Delivered, notify.Read}
)

// decide checks what holds for every decision, and takes it.
func (l *delivery) decide(why string, d fallback.Decision) {
	kinds := 0
	for _, is := range []bool{d.Final, d.Wait.Reason != "", d.Requeue} {
		if is {
			kinds++
		}
	}
	was := l.s
	switch {
	case kinds != 1:
		l.Fatalf("%s: not one of end, wait and call: %+v", why, d)
	case d.Met != (l.p.Success.MetBy(d.Status) && slices.Contains(shown, d.Status)):
		l.Fatalf("%s: met is %t with status %s and criterion %s", why, d.Met, d.Status, l.p.Success)
	case d.MoveOn && (!d.Final || d.Met || d.Stop != ""):
		l.Fatalf("%s: the chain goes on: %+v", why, d)
	case d.MoveOn && d.Status == notify.Lapsed && !l.now.Before(d.Expires):
		l.Fatalf("%s: the chain goes on %v after expiry", why, l.now.Sub(d.Expires))
	case d.Final && !d.MoveOn && !d.Met && d.Stop == "" && d.Status != notify.Lapsed:
		l.Fatalf("%s: the chain is stuck: %+v", why, d)
	case slices.Contains(evidence, was.Status) && d.Status.Rank() < was.Status.Rank():
		l.Fatalf("%s: the status falls from %s to %s", why, was.Status, d.Status)
	case d.Final && !slices.Contains(ends, d.Status) && !slices.Contains(shown, d.Status):
		l.Fatalf("%s: the end is %s", why, d.Status)
	case !d.Final && slices.Contains(ends, d.Status):
		l.Fatalf("%s: %s is not the end", why, d.Status)
	case slices.Contains(shown, d.Status) && !d.Final && d.Wait.Reason != notify.WaitReceipt:
		l.Fatalf("%s: a message that was accepted waits for %s", why, d.Wait.Reason)
	case d.Attempts < was.Attempts || d.Throttles < was.Throttles || d.Crashes < was.Crashes || d.Repeats < was.Repeats:
		l.Fatalf("%s: a counter falls: from %+v to %+v", why, was, d.State)
	case d.Attempts > l.p.Attempts || d.Crashes > fallback.MaxCrashes:
		l.Fatalf("%s: %d attempts of %d, %d crashes", why, d.Attempts, l.p.Attempts, d.Crashes)
	case d.Ends != was.Ends || d.Expires != was.Expires || d.Stop != was.Stop:
		l.Fatalf("%s: a decision changes its times: %+v", why, d)
	case d.Wait.Reason != "" && !l.bounded(d):
		l.Fatalf("%s: waits for %s until %v, %v after the step ends", why, d.Wait.Reason, d.Wait.Due, d.Wait.Due.Sub(d.Ends))
	case d.Wait.Due.Before(l.now) && d.Wait.Reason != "" && d.Wait.Due != d.Ends:
		l.Fatalf("%s: a wait for %s ends before it begins", why, d.Wait.Reason)
	}
	l.d, l.s, l.met = d, d.State, l.met || d.Met
	if d.Final && l.now.After(l.s.Expires.Add(fallback.ReceiptWindow+time.Hour)) {
		l.Fatalf("%s: the end comes %v after expiry", why, l.now.Sub(l.s.Expires))
	}
}

// bounded reports whether a wait ends within the step; one for receipts of a
// step that has met its criterion holds nothing up and may last longer.
func (l *delivery) bounded(d fallback.Decision) bool {
	if d.Wait.Reason == notify.WaitReceipt && d.Met {
		return d.Wait.Due.Equal(l.now.Add(fallback.ReceiptWindow))
	}
	return !d.Wait.Due.After(d.Ends)
}

// chain draws a notification and what its accounts are like.
func chain(t *rapid.T) (*notify.Notification, []fallback.Policy) {
	criteria := []notify.Criterion{"", notify.UntilAccepted, notify.UntilDelivered, notify.UntilRead, notify.UntilAcknowledged}
	unknown := []notify.UnknownPolicy{"", notify.Reconcile, notify.Resend, notify.FallBack, notify.AssumeSent}
	n := &notify.Notification{
		Mode: notify.First, Priority: rapid.SampledFrom([]notify.Priority{notify.Critical, notify.Normal}).Draw(t, "priority"),
		SendAt: noon, ExpiresAt: noon.Add(rapid.SampledFrom([]time.Duration{time.Second, time.Minute, 10 * time.Minute, 24 * time.Hour}).Draw(t, "lifetime")),
	}
	for range rapid.IntRange(1, 4).Draw(t, "steps") {
		n.Chain = append(n.Chain, notify.Step{
			Channel: rapid.SampledFrom(notify.Channels()).Draw(t, "channel"), Success: rapid.SampledFrom(criteria).Draw(t, "success"),
			Within:    notify.Duration(rapid.Int64Range(0, 600).Draw(t, "within")) * notify.Duration(time.Second),
			Attempts:  rapid.SampledFrom([]int{0, 1, 2, 3, 20}).Draw(t, "attempts"),
			OnUnknown: rapid.SampledFrom(unknown).Draw(t, "unknown"),
		})
	}
	policies := make([]fallback.Policy, len(n.Chain))
	for i := range n.Chain {
		p := fallback.NewPolicy(n, i, rapid.SampledFrom(unknown).Draw(t, "account"))
		base := time.Duration(rapid.Int64Range(1, int64(30*time.Second)).Draw(t, "backoff"))
		p.Backoff = func(n int) time.Duration { return base << min(n, 4) }
		p.SlowBackoff = func(n int) time.Duration { return 4 * base << min(n, 4) }
		p.Spread = rapid.Float64Range(0, 0.999).Draw(t, "spread")
		p.Observable = rapid.SampledFrom(shown).Draw(t, "observable")
		p.Lookup = rapid.Bool().Draw(t, "lookup")
		policies[i] = p
	}
	return n, policies
}

// Whatever providers, callers and crashes do, a notification comes to an end,
// and what it ends as is what its steps came to.
func TestEveryHistoryEndsAndKeepsTheRules(t *testing.T) {
	for range 100 {
		rapid.Check(t, history)
	}
}

func history(t *rapid.T) {
	n, policies := chain(t)
	byStep := make([][]notify.DeliveryView, len(n.Chain))
	now, met, accepted, stop := noon, false, false, ""
	for i, p := range policies {
		l := &delivery{T: t, p: p, now: now, s: fallback.State{
			Status: notify.Queued, Ends: fallback.Ends(n, i, now), Expires: n.ExpiresAt,
		}}
		l.live()
		byStep[i] = []notify.DeliveryView{{Status: l.s.Status, Final: true}}
		now, met, stop = l.now, l.met, l.s.Stop
		accepted = accepted || slices.Contains(shown, l.s.Status)
		if !l.d.MoveOn {
			break
		}
	}
	status, final := notify.Overall(n.Mode, byStep, stop == fallback.BecauseCanceled)
	switch {
	case !final:
		t.Fatalf("%v is not the end", byStep)
	case stop == fallback.BecauseCanceled:
		if status != notify.Canceled {
			t.Fatalf("canceled, and ends as %s", status)
		}
	case met && !accepted:
		t.Fatalf("met by nothing: %v", byStep)
	case accepted != slices.Contains(shown, status):
		t.Fatalf("steps ended as %v, the notification as %s", byStep, status)
	case status == notify.Canceled && stop == "":
		t.Fatal("canceled by nobody")
	case !accepted && !slices.Contains(ends, status):
		t.Fatalf("ends as %s", status)
	}
}
