package notify_test

import (
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Only what tells of the provider's health moves a breaker: neither a thousand
// bad numbers nor a provider that asks for quiet.
func TestEvidenceOfOutcomes(t *testing.T) {
	want := map[notify.Outcome]notify.Evidence{
		notify.Accepted:             notify.Success,
		notify.Unknown:              notify.Failure,
		notify.ProviderUnavailable:  notify.Failure,
		notify.Throttled:            notify.Neutral,
		notify.RecipientUnavailable: notify.Neutral,
		notify.RecipientRejected:    notify.Neutral,
		notify.MessageRejected:      notify.Neutral,
		notify.AccountRejected:      notify.Neutral,
		notify.Suppressed:           notify.Neutral,
		notify.NotAttempted:         notify.Neutral,
		notify.Expired:              notify.Neutral,
	}
	if len(notify.Outcomes()) != len(want) {
		t.Errorf("%d outcomes are listed, want %d", len(notify.Outcomes()), len(want))
	}
	for _, o := range notify.Outcomes() {
		evidence, ok := want[o]
		if !ok || !o.Valid() {
			t.Errorf("%s is listed; known here: %t, valid: %t", o, ok, o.Valid())
		}
		if got := o.Evidence(); got != evidence {
			t.Errorf("%s is evidence %d, want %d", o, got, evidence)
		}
	}
	for _, o := range []notify.Outcome{"", "delivered"} {
		if o.Valid() || o.Evidence() != notify.Neutral {
			t.Errorf("%q is an outcome or evidence", o)
		}
	}
}

func TestWaitReasonsAreDistinct(t *testing.T) {
	seen := map[notify.WaitReason]bool{"": true}
	for _, r := range notify.WaitReasons() {
		if seen[r] {
			t.Errorf("%q stands twice or is empty", r)
		}
		seen[r] = true
	}
}

func TestUnknownPolicies(t *testing.T) {
	for _, p := range []notify.UnknownPolicy{notify.Reconcile, notify.Resend, notify.FallBack, notify.AssumeSent} {
		if !p.Valid() {
			t.Errorf("%s is not valid", p)
		}
	}
	for _, p := range []notify.UnknownPolicy{"", "retry"} {
		if p.Valid() {
			t.Errorf("%q is valid", p)
		}
	}
	want := map[notify.Channel]notify.UnknownPolicy{
		notify.Push: notify.Resend, notify.SMS: notify.Reconcile, notify.WhatsApp: notify.Reconcile,
		notify.Email: notify.Resend, notify.Slack: notify.Resend, notify.Webhook: notify.Resend,
	}
	for _, c := range notify.Channels() {
		if got := notify.DefaultUnknownPolicy(c); got != want[c] {
			t.Errorf("%s: default %s, want %s", c, got, want[c])
		}
	}
}
