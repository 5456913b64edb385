package fallback_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// situation is what a decision starts from; its fields change [calling] and
// [policy].
type situation struct {
	last       bool
	success    notify.Criterion
	observable notify.Status
	unknown    notify.UnknownPolicy
	attempts   int // allowed
	spread     float64
	state      func(*fallback.State)
}

func (s situation) policy() fallback.Policy {
	p := policy(s.last)
	if s.success != "" {
		p.Success = s.success
	}
	if s.observable != "" {
		p.Observable = s.observable
	}
	if s.unknown != "" {
		p.OnUnknown = s.unknown
	}
	if s.attempts != 0 {
		p.Attempts = s.attempts
	}
	p.Spread = s.spread
	return p
}

func (s situation) start() fallback.State {
	state := calling()
	if s.state != nil {
		s.state(&state)
	}
	return state
}

// is returns a change that gives a delivery a status, and others after it.
func is(status notify.Status, more ...func(*fallback.State)) func(*fallback.State) {
	return func(s *fallback.State) {
		s.Status = status
		for _, change := range more {
			change(s)
		}
	}
}

func stop(s *fallback.State)     { s.Stop = fallback.BecauseAcknowledged }
func overdue(s *fallback.State)  { s.Ends = noon }
func expired(s *fallback.State)  { s.Ends, s.Expires = noon, noon }
func attempt(s *fallback.State)  { s.Attempts++ }
func repeated(s *fallback.State) { s.Repeats++ }
func allDay(s *fallback.State)   { s.Ends, s.Expires = noon.Add(24*time.Hour), noon.Add(24*time.Hour) }

func TestOutcomes(t *testing.T) {
	accepted := fallback.Outcome{Kind: notify.Accepted}
	unknown := fallback.Outcome{Kind: notify.Unknown}
	crashed := fallback.Outcome{Kind: notify.Unknown, Crashed: true}
	const (
		never        = notify.Sent // can anybody see a receipt
		untilShown   = notify.UntilDelivered
		untilRead    = notify.UntilRead
		untilPressed = notify.UntilAcknowledged
	)
	tests := []struct {
		name string
		in   situation
		o    fallback.Outcome
		want string
	}{
		{"accepted is the end where no receipt can come", situation{observable: never}, accepted, "sent, the end, met A+1"},
		{"accepted waits for receipts that can come", situation{}, accepted, "sent, receipt 72h0m0s, met A+1"},
		{"receipts of an old notification are awaited too", situation{last: true, state: expired}, accepted, "sent, receipt 72h0m0s, met A+1"},
		{"a step that asks for a delivery waits until it ends", situation{success: untilShown}, accepted, "sent, receipt 2m0s (delivered) A+1"},
		{"so does the last one", situation{success: untilShown, last: true}, accepted, "sent, receipt 2m0s (delivered) A+1"},
		{"an answer can prove the delivery", situation{success: untilShown}, fallback.Outcome{Kind: notify.Accepted, Status: notify.Delivered}, "delivered, the end, met A+1"},
		{"a delivery is not yet read", situation{success: untilRead, observable: notify.Read}, fallback.Outcome{Kind: notify.Accepted, Status: notify.Delivered}, "delivered, receipt 2m0s (read) A+1"},
		{"a delivery that nobody can see is not waited for", situation{success: untilShown, observable: never}, accepted, "sent, the end (no_receipt), next A+1"},
		{"nor on the last step", situation{success: untilShown, observable: never, last: true}, accepted, "sent, the end (no_receipt), next A+1"},
		{"an acknowledgement is waited for although no receipt can come", situation{success: untilPressed, observable: never}, accepted, "sent, receipt 2m0s (acknowledged) A+1"},
		{"nothing is waited for once acknowledged", situation{success: untilPressed, state: stop}, accepted, "sent, the end (acknowledged) A+1"},
		{"an earlier receipt is not lowered by the answer", situation{success: untilShown, observable: notify.Read, state: is(notify.Delivered)}, accepted, "delivered, receipt 72h0m0s, met"},
		{"proof of delivery corrects a failed receipt", situation{state: is(notify.Failed)}, fallback.Outcome{Kind: notify.Accepted, Status: notify.Delivered}, "delivered, the end, met A+1"},
		{"a failed receipt after a stop starts nothing", situation{state: is(notify.Failed, stop)}, accepted, "failed, the end (undelivered) A+1"},
		{"late acceptance of a call taken for unknown is counted once", situation{state: is(notify.Uncertain, attempt)}, accepted, "sent, receipt 72h0m0s, met"},
		{"late acceptance calls off the repeat", situation{observable: never, state: is(notify.Waiting, attempt, repeated)}, accepted, "sent, the end, met"},
		{"late acceptance in the queue calls off the repeat", situation{success: untilShown, state: is(notify.Queued, attempt, repeated)}, accepted, "sent, receipt 2m0s (delivered)"},

		{"resend waits and marks the repeat", situation{unknown: notify.Resend}, unknown, "waiting, backoff 10s (unknown) A+1 R+1"},
		{"resend without attempts is no repeat", situation{unknown: notify.Resend, attempts: 1}, unknown, "failed, the end (unknown), next A+1"},
		{"fallback moves on at once", situation{unknown: notify.FallBack}, unknown, "failed, the end (unknown), next A+1"},
		{"reconcile waits two minutes", situation{unknown: notify.Reconcile, state: allDay}, unknown, "unknown, reconcile 2m0s (unknown) A+1"},
		{"reconcile ends with the step", situation{unknown: notify.Reconcile, state: func(s *fallback.State) { s.Ends = noon.Add(time.Second) }}, unknown, "unknown, reconcile 1s (unknown) A+1"},
		{"assume_sent is the end", situation{unknown: notify.AssumeSent}, unknown, "sent, the end (assumed), met A+1"},
		{"assume_sent leaves a receipt its time", situation{unknown: notify.AssumeSent, success: untilShown}, unknown, "sent, receipt 2m0s (assumed) A+1"},
		{"assume_sent leaves an acknowledgement its time", situation{unknown: notify.AssumeSent, success: untilPressed, observable: never}, unknown, "sent, receipt 2m0s (assumed) A+1"},
		{"assume_sent moves on where nothing can be seen", situation{unknown: notify.AssumeSent, success: untilShown, observable: never}, unknown, "sent, the end (assumed), next A+1"},
		{"a receipt settles what would be unknown", situation{unknown: notify.Reconcile, success: untilRead, observable: notify.Read, state: is(notify.Sent)}, unknown, "sent, receipt 2m0s (read) A+1"},
		{"resend keeps to an instant that came with the unknown", situation{unknown: notify.Resend}, fallback.Outcome{Kind: notify.Unknown, RetryAfter: time.Minute}, "waiting, backoff 1m0s (unknown) A+1 R+1"},
		{"a crash is unknown", situation{}, crashed, "waiting, backoff 10s (unknown) A+1 C+1 R+1"},
		{"the third crash is the last", situation{state: func(s *fallback.State) { s.Crashes = 2 }}, crashed, "failed, the end (crashed_worker), next A+1 C+1"},
		{"crashes end also what is assumed sent", situation{unknown: notify.AssumeSent, state: func(s *fallback.State) { s.Crashes = 2 }}, crashed, "failed, the end (crashed_worker), next A+1 C+1"},

		{"a provider's instant outlasts the backoff", situation{}, fallback.Outcome{Kind: notify.ProviderUnavailable, RetryAfter: time.Minute}, "waiting, backoff 1m0s (provider_unavailable) A+1"},
		{"the backoff outlasts a provider's instant", situation{}, fallback.Outcome{Kind: notify.RecipientUnavailable, RetryAfter: time.Second}, "waiting, backoff 40s (recipient_unavailable) A+1"},
		{"an instant after the step moves on at once", situation{}, fallback.Outcome{Kind: notify.ProviderUnavailable, RetryAfter: time.Hour}, "failed, the end (provider_unavailable), next A+1"},
		{"throttling waits a little longer than asked", situation{spread: 0.5}, fallback.Outcome{Kind: notify.Throttled, RetryAfter: 20 * time.Second}, "waiting, throttled 21s (throttled) T+1"},
		{"but never much longer", situation{spread: 0.5, last: true, state: allDay}, fallback.Outcome{Kind: notify.Throttled, RetryAfter: time.Hour}, "waiting, throttled 1h0m2.5s (throttled) T+1"},
		{"throttling has a floor", situation{}, fallback.Outcome{Kind: notify.Throttled, RetryAfter: time.Millisecond}, "waiting, throttled 250ms (throttled) T+1"},
		{"throttling backs off where no instant is named", situation{state: func(s *fallback.State) { s.Throttles = 1 }}, fallback.Outcome{Kind: notify.Throttled}, "waiting, throttled 20s (throttled) T+1"},
		{"as many throttlings as attempts move on", situation{attempts: 2, state: func(s *fallback.State) { s.Throttles = 1 }}, fallback.Outcome{Kind: notify.Throttled}, "failed, the end (throttled), next T+1"},
		{"an instant beyond the last step is overdue then", situation{last: true}, fallback.Outcome{Kind: notify.Throttled, RetryAfter: time.Hour}, "waiting, throttled 2m0s (throttled) T+1"},
		{"the last step waits for the account's repair", situation{last: true, state: allDay}, fallback.Outcome{Kind: notify.AccountRejected}, "waiting, account_rejected 5m0s (account_rejected)"},
		{"a suppression found before the call uses no attempt", situation{state: is(notify.Queued)}, fallback.Outcome{Kind: notify.Suppressed}, "suppressed, the end (suppressed), next"},
		{"why an address is barred is told", situation{state: is(notify.Queued)}, fallback.Outcome{Kind: notify.Suppressed, Reason: "stop"}, "suppressed, the end (suppressed: stop), next"},
		{"an outcome of no kind is a failure", situation{}, fallback.Outcome{}, "failed, the end, next"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.in.start()
			if got := story(before, fallback.Decide(before, tt.in.policy(), tt.o, noon)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestWaitsCarryTheScopeThatHoldsThem(t *testing.T) {
	for _, kind := range notify.Outcomes() {
		s := situation{last: true, unknown: notify.Reconcile}
		d := fallback.Decide(s.start(), s.policy(), fallback.Outcome{Kind: kind, Scope: "acct/host"}, noon)
		if d.Wait.Reason != "" && d.Wait.Reason != notify.WaitReceipt && d.Wait.Scope != "acct/host" {
			t.Errorf("%s waits for scope %q", kind, d.Wait.Scope)
		}
	}
	s := situation{}
	if d := fallback.Refuse(s.start(), s.policy(), notify.WaitBreakerOpen, "acct", noon.Add(time.Second), noon); d.Wait.Scope != "acct" {
		t.Errorf("a refusal waits for scope %q", d.Wait.Scope)
	}
}

func TestRefusals(t *testing.T) {
	soon, late := noon.Add(30*time.Second), noon.Add(10*time.Minute)
	queued := is(notify.Queued)
	tests := []struct {
		name  string
		in    situation
		until time.Time
		want  string
	}{
		{"a refusal waits", situation{state: queued}, soon, "waiting, breaker_open 30s (breaker_open)"},
		{"with no attempt left it waits all the same", situation{attempts: 1, state: is(notify.Queued, attempt)}, soon, "waiting, breaker_open 30s (breaker_open)"},
		{"one beyond the step moves on at once", situation{state: queued}, late, "failed, the end (breaker_open), next"},
		{"one beyond the last step waits until it ends", situation{last: true, state: queued}, late, "waiting, breaker_open 2m0s (breaker_open)"},
		{"one without an end asks again", situation{state: queued}, time.Time{}, "waiting, breaker_open 5s (breaker_open)"},
		{"one without an end asks again within the step", situation{state: is(notify.Queued, func(s *fallback.State) { s.Ends = noon.Add(time.Second) })}, time.Time{}, "waiting, breaker_open 1s (breaker_open)"},
		{"a refusal when the step is over ends it", situation{state: is(notify.Queued, overdue)}, soon, "failed, the end (overdue: breaker_open), next"},
		{"a refusal when the notification is over lapses", situation{state: is(notify.Queued, expired)}, soon, "expired, the end (expired: breaker_open)"},
		{"a stopped delivery does not wait", situation{state: is(notify.Queued, stop)}, soon, "canceled, the end (acknowledged)"},
		{"a delivered one needs no call", situation{state: is(notify.Delivered)}, soon, "delivered, the end, met"},
		{"a failed receipt needs no call", situation{state: is(notify.Failed)}, soon, "failed, the end (undelivered), next"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.in.start()
			got := story(before, fallback.Refuse(before, tt.in.policy(), notify.WaitBreakerOpen, "acct", tt.until, noon))
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestEndsOfTime(t *testing.T) {
	tests := []struct {
		name      string
		in        situation
		waitedFor string
		want      string
	}{
		{"a step moves on and says what held it", situation{state: is(notify.Waiting, overdue)}, "throttled", "failed, the end (overdue: throttled), next"},
		{"a step that nothing held", situation{state: is(notify.Queued, overdue)}, "", "failed, the end (overdue), next"},
		{"a notification starts no other step", situation{state: is(notify.Waiting, expired)}, "paused", "expired, the end (expired: paused)"},
		{"expired is not said twice", situation{state: is(notify.Queued, expired)}, "expired", "expired, the end (expired)"},
		{"an unknown call of an old notification", situation{state: is(notify.Uncertain, expired)}, "", "expired, the end (expired)"},
		{"a stopped delivery was canceled", situation{state: is(notify.Waiting, expired, stop)}, "paused", "canceled, the end (acknowledged)"},
		{"an accepted one stays sent and moves on", situation{success: notify.UntilDelivered, state: is(notify.Sent, overdue)}, "receipt", "sent, the end (overdue), next"},
		{"an accepted one that is enough stays where it is", situation{state: is(notify.Sent, overdue)}, "receipt", "sent, the end, met"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.in.start()
			if got := story(before, fallback.Overdue(before, tt.in.policy(), tt.waitedFor, noon)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestEndsOfWaits(t *testing.T) {
	reconcile := func(last bool, attempts int, state func(*fallback.State)) situation {
		return situation{last: last, attempts: attempts, unknown: notify.Reconcile, state: state}
	}
	uncertain := is(notify.Uncertain, attempt)
	tests := []struct {
		name   string
		in     situation
		reason notify.WaitReason
		want   string
	}{
		{"no receipt for a step that asks for one", situation{success: notify.UntilDelivered, state: is(notify.Sent)}, notify.WaitReceipt, "sent, the end (no_receipt), next"},
		{"no receipt on the last step", situation{success: notify.UntilDelivered, last: true, state: is(notify.Sent)}, notify.WaitReceipt, "sent, the end (no_receipt), next"},
		{"no further receipt for a step that has enough", situation{state: is(notify.Sent)}, notify.WaitReceipt, "sent, the end, met"},
		{"delivered is enough", situation{success: notify.UntilDelivered, state: is(notify.Delivered)}, notify.WaitReceipt, "delivered, the end, met"},
		{"no acknowledgement", situation{success: notify.UntilAcknowledged, state: is(notify.Read)}, notify.WaitReceipt, "read, the end (no_receipt), next"},
		{"a stopped delivery moves nothing on", situation{success: notify.UntilDelivered, state: is(notify.Sent, stop)}, notify.WaitReceipt, "sent, the end (acknowledged)"},
		{"a receipt awaited by nobody", situation{state: is(notify.Waiting)}, notify.WaitReceipt, "failed, the end (no_receipt), next"},
		{"a receipt awaited by nobody, stopped", situation{state: is(notify.Waiting, stop)}, notify.WaitReceipt, "canceled, the end (acknowledged)"},

		{"unknown falls back where there is a next step", reconcile(false, 4, uncertain), notify.WaitReconcile, "failed, the end (unknown), next"},
		{"unknown is sent once more on the last", reconcile(true, 4, uncertain), notify.WaitReconcile, "queued, now (unknown) R+1"},
		{"but only once", reconcile(true, 4, is(notify.Uncertain, attempt, attempt, repeated)), notify.WaitReconcile, "failed, the end (unknown), next"},
		{"and within its attempts", reconcile(true, 1, uncertain), notify.WaitReconcile, "failed, the end (unknown), next"},
		{"and its time", reconcile(true, 4, is(notify.Uncertain, attempt, overdue)), notify.WaitReconcile, "failed, the end (unknown), next"},
		{"and not when stopped", reconcile(true, 4, is(notify.Uncertain, attempt, stop)), notify.WaitReconcile, "canceled, the end (acknowledged)"},
		{"and not when a receipt settled it", reconcile(true, 4, is(notify.Delivered, attempt)), notify.WaitReconcile, "delivered, the end, met"},

		{"a backoff ends in a call", situation{state: is(notify.Waiting)}, notify.WaitBackoff, "queued, now (backoff)"},
		{"a backoff of a stopped delivery does not", situation{state: is(notify.Waiting, stop)}, notify.WaitBackoff, "canceled, the end (acknowledged)"},
		{"nor one of a step that is over", situation{state: is(notify.Waiting, overdue)}, notify.WaitThrottled, "failed, the end (overdue: throttled), next"},
		{"nor one of a notification that is over", situation{state: is(notify.Waiting, expired)}, notify.WaitPaused, "expired, the end (expired: paused)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := tt.in.start()
			if got := story(before, fallback.Due(before, tt.in.policy(), tt.reason, noon)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

// Whatever a delivery waits for, other than knowledge, ends in a call.
func TestEveryOtherWaitEndsInACall(t *testing.T) {
	for _, reason := range notify.WaitReasons() {
		if reason == notify.WaitReceipt || reason == notify.WaitReconcile {
			continue
		}
		s := situation{state: is(notify.Waiting)}
		if d := fallback.Due(s.start(), s.policy(), reason, noon); !d.Requeue || d.Because != string(reason) {
			t.Errorf("%s ends in %s", reason, story(s.start(), d))
		}
	}
}

func TestImpossibleDeliveriesFail(t *testing.T) {
	s := situation{state: is(notify.Queued)}
	if got := story(s.start(), fallback.Impossible(s.start(), fallback.BecauseNoAccount)); got != "failed, the end (no_account), next" {
		t.Errorf("got %s", got)
	}
	s.state = is(notify.Queued, stop)
	if got := story(s.start(), fallback.Impossible(s.start(), fallback.BecauseInvalid)); got != "canceled, the end (acknowledged)" {
		t.Errorf("stopped: got %s", got)
	}
}
