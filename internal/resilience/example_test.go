package resilience_test

import (
	"fmt"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// A call to an account is guarded by the account's breaker and by the gate of
// whatever narrower scope its provider limits.
func ExampleGuard() {
	guard := resilience.NewGuard(resilience.GuardConfig{Rand: func() float64 { return 0.5 }})
	scopes := []resilience.Scope{
		{Name: "twilio-main", Breaker: &resilience.BreakerConfig{Failures: 5}},
		{Name: "twilio-main/sender"},
	}
	now := time.Date(2026, 11, 30, 9, 0, 0, 0, time.UTC)

	ticket, denied := guard.Admit(scopes, now)
	fmt.Println("denied:", denied != nil)

	// The provider answers 429 with Retry-After: 30.
	guard.Throttle("twilio-main/sender", now.Add(30*time.Second), now)
	ticket.Done(resilience.Evidence{Verdict: resilience.Neutral}, now)

	_, denied = guard.Admit(scopes, now.Add(time.Second))
	fmt.Println(denied.Kind, denied.Scope, denied.Until.Format(time.TimeOnly))
	// Output:
	// denied: false
	// gate twilio-main/sender 09:00:30
}
