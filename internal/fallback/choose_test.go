package fallback_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// fine is an account that nothing speaks against.
var fine = fallback.Candidate{Share: 1}

// barred is an account that may not be called for so long; less than 0 for nobody
// knows how long.
func barred(reason notify.WaitReason, d time.Duration) fallback.Candidate {
	c := fallback.Candidate{Share: 1, Bar: fallback.Bar{Reason: reason, Scope: "s"}}
	if d >= 0 {
		c.Bar.Until = noon.Add(d)
	}
	return c
}

func TestTheFirstAccountServesUnlessSomethingSpeaksAgainstIt(t *testing.T) {
	refused, returning, probe := fine, fine, fine
	refused.Refused = true
	returning.Share, returning.Draw = 0.3, 0.3
	probe.Probe, probe.ProbeDue = true, noon.Add(-time.Second)
	overdue := probe
	overdue.ProbeDue = noon.Add(-time.Minute)
	open, forced := barred(notify.WaitBreakerOpen, time.Second), barred(notify.WaitBreakerOpen, -1)
	own := barred(notify.WaitBreakerOpen, time.Hour)
	own.Own = true
	rejected := open
	rejected.Refused = true
	for _, test := range []struct {
		name     string
		priority notify.Priority
		stay     int
		of       []fallback.Candidate
		want     int
	}{
		{"all is well", notify.Normal, -1, []fallback.Candidate{fine, fine}, 0},
		{"a breaker is open, however shortly", notify.Normal, -1, []fallback.Candidate{open, fine}, 1},
		{"an operator stopped it", notify.Normal, -1, []fallback.Candidate{forced, barred(notify.WaitPaused, -1), fine}, 2},
		{"a gate within patience", notify.Normal, -1, []fallback.Candidate{barred(notify.WaitThrottled, 30*time.Second), fine}, 0},
		{"a longer gate", notify.Normal, -1, []fallback.Candidate{barred(notify.WaitThrottled, 31*time.Second), fine}, 1},
		{"a gate for what is high", notify.High, -1, []fallback.Candidate{barred(notify.WaitThrottled, 6*time.Second), fine}, 1},
		{"a gate for what is critical", notify.Critical, -1, []fallback.Candidate{barred(notify.WaitThrottled, 2*time.Second), fine}, 1},
		{"a short gate for what is critical", notify.Critical, -1, []fallback.Candidate{barred(notify.WaitThrottled, time.Second), fine}, 0},
		{"a gate for what is low outlasts the step", notify.Low, -1, []fallback.Candidate{barred(notify.WaitThrottled, 3*time.Minute), fine}, 1},
		{"a gate longer than patience at both", notify.Critical, -1, []fallback.Candidate{barred(notify.WaitThrottled, 9*time.Second), barred(notify.WaitThrottled, 8*time.Second)}, -1},
		{"what holds is the recipient's own", notify.Critical, -1, []fallback.Candidate{own, fine}, 0},
		{"it refused the delivery", notify.Normal, -1, []fallback.Candidate{refused, fine}, 1},
		{"it refused the delivery and the next one is barred", notify.Normal, -1, []fallback.Candidate{refused, open}, -1},
		{"all refused the delivery", notify.Normal, -1, []fallback.Candidate{rejected, refused}, 1},
		{"calls come back to it, and this one's share has not come yet", notify.Normal, -1, []fallback.Candidate{returning, fine}, 1},
		{"calls come back to it, and the next one is barred", notify.Normal, -1, []fallback.Candidate{returning, open}, 0},
		{"calls come back to it, and the next one is shut for a moment", notify.Normal, -1, []fallback.Candidate{returning, barred(notify.WaitThrottled, time.Second)}, 0},
		{"a probe is due", notify.High, -1, []fallback.Candidate{probe, fine}, 0},
		{"a probe is due and the message critical", notify.Critical, -1, []fallback.Candidate{probe, fine}, 1},
		{"a probe is due for long and the message critical", notify.Critical, -1, []fallback.Candidate{overdue, fine}, 0},
		{"a probe is all there is", notify.Critical, -1, []fallback.Candidate{probe, open}, 0},
		{"a repeat stays", notify.Normal, 1, []fallback.Candidate{fine, fine}, 1},
		{"a repeat stays with an account that calls come back to", notify.Normal, 1, []fallback.Candidate{fine, returning}, 1},
		{"a repeat waits for a short gate", notify.Normal, 1, []fallback.Candidate{fine, barred(notify.WaitThrottled, time.Second)}, 1},
		{"a repeat leaves what is barred", notify.Normal, 1, []fallback.Candidate{fine, open}, 0},
		{"all are barred", notify.Normal, -1, []fallback.Candidate{open, forced}, -1},
		{"none", notify.Normal, -1, nil, -1},
	} {
		a := fallback.Asked{Priority: test.priority, Stay: test.stay, Ends: noon.Add(2 * time.Minute)}
		if got := fallback.Choose(test.of, a, noon); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

func TestTheSoonestBarIsWaitedFor(t *testing.T) {
	of := []fallback.Candidate{fine, barred(notify.WaitPaused, -1), barred(notify.WaitBreakerOpen, time.Minute), barred(notify.WaitThrottled, time.Second)}
	for n, want := range []string{"none", "none", "paused", "breaker_open", "throttled"} {
		got := "none"
		if b, ok := fallback.Soonest(of[:n]); ok {
			got = string(b.Reason)
		}
		if got != want {
			t.Errorf("of the first %d: %s, want %s", n, got, want)
		}
	}
}

// candidates draws accounts in every state.
func candidates(t *rapid.T) []fallback.Candidate {
	out := make([]fallback.Candidate, rapid.IntRange(1, 4).Draw(t, "accounts"))
	for i := range out {
		c := &out[i]
		c.Share, c.Draw = 1, rapid.Float64Range(0, 0.999).Draw(t, "draw")
		switch rapid.IntRange(0, 5).Draw(t, "state") {
		case 0:
			reasons := []notify.WaitReason{notify.WaitBreakerOpen, notify.WaitThrottled, notify.WaitPaused, notify.WaitCapacity, notify.WaitBudget}
			*c = barred(rapid.SampledFrom(reasons).Draw(t, "reason"), time.Duration(rapid.Int64Range(-1, 300).Draw(t, "seconds"))*time.Second)
		case 1:
			c.Share = rapid.Float64Range(0, 1).Draw(t, "share")
		case 2:
			c.Probe, c.ProbeDue = true, noon.Add(-time.Duration(rapid.Int64Range(0, 120).Draw(t, "due"))*time.Second)
		case 3:
			c.Refused = true
		}
	}
	return out
}

func asked(t *rapid.T, n int) fallback.Asked {
	return fallback.Asked{
		Priority: rapid.SampledFrom([]notify.Priority{notify.Critical, notify.High, notify.Normal, notify.Low}).Draw(t, "priority"),
		Stay:     rapid.IntRange(-1, n-1).Draw(t, "stay"),
		Ends:     noon.Add(time.Duration(rapid.Int64Range(0, 600).Draw(t, "ends")) * time.Second),
	}
}

func TestNoBarredAccountIsChosenWhileAnotherIsFree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := candidates(t)
		a := asked(t, len(of))
		got := fallback.Choose(of, a, noon)
		if again := fallback.Choose(slices.Clone(of), a, noon); again != got {
			t.Fatalf("%d, and then %d", got, again)
		}
		free := slices.ContainsFunc(of, func(c fallback.Candidate) bool { return c.Bar.Reason == "" && !c.Refused })
		open := slices.ContainsFunc(of, func(c fallback.Candidate) bool { return c.Bar.Reason != "" && !c.Refused })
		switch {
		case got < 0 && free:
			t.Fatal("waits although an account is free")
		case got < 0:
			return
		case of[got].Refused && (free || open):
			t.Fatalf("%d refused the delivery, and there is another", got)
		}
		if bar := of[got].Bar; bar.Reason != "" {
			last := noon.Add(fallback.Patience(a.Priority))
			switch bar.Reason {
			case notify.WaitBreakerOpen, notify.WaitPaused:
				t.Fatalf("waits for %d: %s", got, bar.Reason)
			default:
			}
			if bar.Until.IsZero() || bar.Until.After(last) || bar.Until.After(a.Ends) {
				t.Fatalf("waits for %d until %v, patience ends at %v and the step at %v", got, bar.Until, last, a.Ends)
			}
		}
	})
}

func TestARepeatOfAnUnknownCallGoesElsewhereOnlyWhereItsAccountIsBarred(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := candidates(t)
		a := asked(t, len(of))
		a.Stay = rapid.IntRange(0, len(of)-1).Draw(t, "before")
		if got := fallback.Choose(of, a, noon); got != a.Stay && of[a.Stay].Bar.Reason == "" && !of[a.Stay].Refused {
			t.Fatalf("goes to %d although %d may be called", got, a.Stay)
		}
	})
}

func TestAClearFirstAccountIsChosenWhateverTheOthersAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		of := candidates(t)
		a := asked(t, len(of))
		a.Stay = -1
		if of[0].Clear() && fallback.Choose(of, a, noon) != 0 {
			t.Fatal("another one")
		}
	})
}

// What is decided for another account moves at once and uses up no attempt.
func TestARefusalPassesTheDeliveryOnWhereThereIsAnotherAccount(t *testing.T) {
	p := policy(false)
	p.Elsewhere, p.Patience = true, 30*time.Second
	spent := calling()
	spent.Throttles = 3
	for _, test := range []struct {
		name  string
		state fallback.State
		o     fallback.Outcome
		want  string
		pass  bool
	}{
		{"the account is rejected", calling(), fallback.Outcome{Kind: notify.AccountRejected}, "waiting, account_rejected 0s (account_rejected)", true},
		{"quiet within patience", calling(), fallback.Outcome{Kind: notify.Throttled, RetryAfter: 30 * time.Second}, "waiting, throttled 30s (throttled) T+1", false},
		{"longer quiet", calling(), fallback.Outcome{Kind: notify.Throttled, RetryAfter: 31 * time.Second}, "waiting, throttled 0s (throttled) T+1", true},
		{"throttled too often", spent, fallback.Outcome{Kind: notify.Throttled, RetryAfter: time.Second}, "waiting, throttled 0s (throttled) T+1", true},
		{"a passing failure", calling(), fallback.Outcome{Kind: notify.ProviderUnavailable}, "waiting, backoff 10s (provider_unavailable) A+1", false},
		{"an unknown outcome", calling(), fallback.Outcome{Kind: notify.Unknown}, "waiting, backoff 10s (unknown) A+1 R+1", false},
		{"a bad recipient", calling(), fallback.Outcome{Kind: notify.RecipientRejected}, "failed, the end (recipient_rejected), next A+1", false},
	} {
		d := fallback.Decide(test.state, p, test.o, noon)
		if got := story(test.state, d); got != test.want || d.Pass != test.pass {
			t.Errorf("%s: %s, passed on %t", test.name, got, d.Pass)
		}
	}
	canceled := calling()
	canceled.Stop = fallback.BecauseCanceled
	if d := fallback.Decide(canceled, p, fallback.Outcome{Kind: notify.AccountRejected}, noon); d.Pass || !d.Final {
		t.Errorf("canceled: %+v", d)
	}
}
