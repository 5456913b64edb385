package fallback_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

// policy is that of a step with a channel that can show a delivery. Retry n comes
// 10·n s after a failure of the provider and 40·n s after one of the recipient.
func policy(last bool) fallback.Policy {
	return fallback.Policy{
		Success: notify.UntilAccepted, Attempts: 4, OnUnknown: notify.Resend, Last: last, Observable: notify.Delivered,
		Backoff:     func(n int) time.Duration { return time.Duration(n+1) * 10 * time.Second },
		SlowBackoff: func(n int) time.Duration { return time.Duration(n+1) * 40 * time.Second },
	}
}

// calling is a delivery in its first call, two minutes before its step ends.
func calling() fallback.State {
	return fallback.State{Status: notify.Sending, Ends: noon.Add(2 * time.Minute), Expires: noon.Add(time.Hour)}
}

// story tells a decision in one line: what it does, why, and what it used up.
func story(before fallback.State, d fallback.Decision) string {
	var s strings.Builder
	s.WriteString(string(d.Status))
	switch {
	case d.Final:
		s.WriteString(", the end")
	case d.Requeue:
		s.WriteString(", now")
	default:
		fmt.Fprintf(&s, ", %s %s", d.Wait.Reason, d.Wait.Due.Sub(noon))
	}
	if d.Because != "" {
		s.WriteString(" (" + d.Because + ")")
	}
	if d.Met {
		s.WriteString(", met")
	}
	if d.MoveOn {
		s.WriteString(", next")
	}
	for _, used := range []struct {
		letter string
		n      int
	}{
		{"A", d.Attempts - before.Attempts},
		{"T", d.Throttles - before.Throttles},
		{"C", d.Crashes - before.Crashes},
		{"R", d.Repeats - before.Repeats},
	} {
		if used.n != 0 {
			fmt.Fprintf(&s, " %s%+d", used.letter, used.n)
		}
	}
	return s.String()
}

// The outcome to action table, for a delivery that has a next step and for one
// that has none.
func TestOutcomeLeadsToAction(t *testing.T) {
	spent := calling()
	spent.Attempts, spent.Throttles = 3, 3
	short := calling()
	short.Ends = noon.Add(5 * time.Second)
	canceled := calling()
	canceled.Stop = fallback.BecauseCanceled
	received := calling()
	received.Status = notify.Delivered
	bounced := calling()
	bounced.Status = notify.Failed
	old := calling()
	old.Ends, old.Expires = noon, noon
	situations := []struct {
		name  string
		state fallback.State
	}{
		{"first call", calling()},
		{"last attempt", spent},
		{"step ends in 5 s", short},
		{"canceled during the call", canceled},
		{"receipt delivered came first", received},
		{"receipt failed came first", bounced},
		{"notification expired during the call", old},
	}
	var got strings.Builder
	for _, s := range situations {
		fmt.Fprintf(&got, "%s\n", s.name)
		for _, kind := range notify.Outcomes() {
			o := fallback.Outcome{Kind: kind}
			next := story(s.state, fallback.Decide(s.state, policy(false), o, noon))
			last := story(s.state, fallback.Decide(s.state, policy(true), o, noon))
			fmt.Fprintf(&got, "  %-21s | %s\n", kind, next)
			if last != next {
				fmt.Fprintf(&got, "  %-21s | %s\n", "  last step", last)
			}
		}
	}
	if diff := cmp.Diff(strings.Split(strings.TrimLeft(actions, "\n"), "\n"), strings.Split(got.String(), "\n")); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
}

// The attempt used is A, an answer of "too many" T, a possible repeat R.
const actions = `
first call
  accepted              | sent, receipt 72h0m0s, met A+1
  unknown               | waiting, backoff 10s (unknown) A+1 R+1
  throttled             | waiting, throttled 10s (throttled) T+1
  provider_unavailable  | waiting, backoff 10s (provider_unavailable) A+1
  recipient_unavailable | waiting, backoff 40s (recipient_unavailable) A+1
  recipient_rejected    | failed, the end (recipient_rejected), next A+1
  message_rejected      | failed, the end (message_rejected), next A+1
  account_rejected      | failed, the end (account_rejected), next
    last step           | waiting, account_rejected 2m0s (account_rejected)
  suppressed            | suppressed, the end (suppressed), next A+1
  not_attempted         | waiting, backoff 0s (not_attempted)
  expired               | expired, the end (expired), next
last attempt
  accepted              | sent, receipt 72h0m0s, met A+1
  unknown               | failed, the end (unknown), next A+1
  throttled             | failed, the end (throttled), next T+1
    last step           | waiting, throttled 40s (throttled) T+1
  provider_unavailable  | failed, the end (provider_unavailable), next A+1
  recipient_unavailable | failed, the end (recipient_unavailable), next A+1
  recipient_rejected    | failed, the end (recipient_rejected), next A+1
  message_rejected      | failed, the end (message_rejected), next A+1
  account_rejected      | failed, the end (account_rejected), next
    last step           | waiting, account_rejected 2m0s (account_rejected)
  suppressed            | suppressed, the end (suppressed), next A+1
  not_attempted         | waiting, backoff 0s (not_attempted)
  expired               | expired, the end (expired), next
step ends in 5 s
  accepted              | sent, receipt 72h0m0s, met A+1
  unknown               | failed, the end (unknown), next A+1
  throttled             | failed, the end (throttled), next T+1
    last step           | waiting, throttled 5s (throttled) T+1
  provider_unavailable  | failed, the end (provider_unavailable), next A+1
  recipient_unavailable | failed, the end (recipient_unavailable), next A+1
  recipient_rejected    | failed, the end (recipient_rejected), next A+1
  message_rejected      | failed, the end (message_rejected), next A+1
  account_rejected      | failed, the end (account_rejected), next
    last step           | waiting, account_rejected 5s (account_rejected)
  suppressed            | suppressed, the end (suppressed), next A+1
  not_attempted         | waiting, backoff 0s (not_attempted)
  expired               | expired, the end (expired), next
canceled during the call
  accepted              | sent, the end (canceled), met A+1
  unknown               | canceled, the end (canceled) A+1
  throttled             | canceled, the end (canceled)
  provider_unavailable  | canceled, the end (canceled) A+1
  recipient_unavailable | canceled, the end (canceled) A+1
  recipient_rejected    | canceled, the end (canceled) A+1
  message_rejected      | canceled, the end (canceled) A+1
  account_rejected      | canceled, the end (canceled)
  suppressed            | canceled, the end (canceled) A+1
  not_attempted         | canceled, the end (canceled)
  expired               | canceled, the end (canceled)
receipt delivered came first
  accepted              | delivered, the end, met
  unknown               | delivered, the end, met A+1
  throttled             | delivered, the end, met
  provider_unavailable  | delivered, the end, met A+1
  recipient_unavailable | delivered, the end, met A+1
  recipient_rejected    | delivered, the end, met A+1
  message_rejected      | delivered, the end, met A+1
  account_rejected      | delivered, the end, met
  suppressed            | delivered, the end, met A+1
  not_attempted         | delivered, the end, met
  expired               | delivered, the end, met
receipt failed came first
  accepted              | failed, the end (undelivered), next A+1
  unknown               | failed, the end (undelivered), next A+1
  throttled             | failed, the end (undelivered), next
  provider_unavailable  | failed, the end (undelivered), next A+1
  recipient_unavailable | failed, the end (undelivered), next A+1
  recipient_rejected    | failed, the end (undelivered), next A+1
  message_rejected      | failed, the end (undelivered), next A+1
  account_rejected      | failed, the end (undelivered), next
  suppressed            | failed, the end (undelivered), next A+1
  not_attempted         | failed, the end (undelivered), next
  expired               | failed, the end (undelivered), next
notification expired during the call
  accepted              | sent, receipt 72h0m0s, met A+1
  unknown               | failed, the end (unknown), next A+1
  throttled             | failed, the end (throttled), next T+1
    last step           | waiting, throttled 0s (throttled) T+1
  provider_unavailable  | failed, the end (provider_unavailable), next A+1
  recipient_unavailable | failed, the end (recipient_unavailable), next A+1
  recipient_rejected    | failed, the end (recipient_rejected), next A+1
  message_rejected      | failed, the end (message_rejected), next A+1
  account_rejected      | failed, the end (account_rejected), next
    last step           | waiting, account_rejected 0s (account_rejected)
  suppressed            | suppressed, the end (suppressed), next A+1
  not_attempted         | waiting, backoff 0s (not_attempted)
  expired               | expired, the end (expired)
`
