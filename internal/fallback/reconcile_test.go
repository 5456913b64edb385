package fallback_test

import (
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// reconciling is a delivery whose first call has been unknown since noon.
func reconciling() fallback.State {
	return fallback.State{Status: notify.Uncertain, Attempts: 1, Ends: noon.Add(3 * time.Minute), Expires: noon.Add(time.Hour)}
}

func asking(last bool) fallback.Policy {
	p := policy(last)
	p.OnUnknown, p.Lookup = notify.Reconcile, true
	return p
}

func TestAProviderThatCanBeAskedIsAskedSoon(t *testing.T) {
	t.Parallel()
	d := fallback.Decide(calling(), asking(false), fallback.Outcome{Kind: notify.Unknown}, noon)
	if got, want := story(calling(), d), "unknown, reconcile 10s (unknown) A+1"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestALookUpLeadsToAction(t *testing.T) {
	t.Parallel()
	short := reconciling()
	short.Ends = noon.Add(30 * time.Second)
	spent := reconciling()
	spent.Attempts = 4
	repeated := reconciling()
	repeated.Attempts, repeated.Repeats = 2, 1
	canceled := reconciling()
	canceled.Stop = fallback.BecauseCanceled
	received := reconciling()
	received.Status = notify.Delivered
	for _, c := range []struct {
		name  string
		state fallback.State
		last  bool
		after time.Duration
		kind  notify.Outcome
		want  string
	}{
		{"found", reconciling(), false, 10 * time.Second, notify.Accepted, "sent, receipt 72h0m10s, met"},
		{"found at the end", reconciling(), false, 2 * time.Minute, notify.Accepted, "sent, receipt 72h2m0s, met"},
		{"found after a repeat", repeated, true, 10 * time.Second, notify.Accepted, "sent, receipt 72h0m10s, met"},
		{"found after a cancel", canceled, false, 10 * time.Second, notify.Accepted, "sent, the end (canceled), met"},
		{"found failed", reconciling(), false, 10 * time.Second, notify.RecipientRejected, "failed, the end (recipient_rejected), next"},
		{"found undeliverable for now", reconciling(), false, 10 * time.Second, notify.RecipientUnavailable, "waiting, backoff 50s (recipient_unavailable)"},
		{"not there", reconciling(), false, 35 * time.Second, notify.ProviderUnavailable, "waiting, backoff 45s (provider_unavailable)"},
		{"not there, last step", reconciling(), true, 35 * time.Second, notify.ProviderUnavailable, "waiting, backoff 45s (provider_unavailable)"},
		{"not there, no attempt left", spent, true, 35 * time.Second, notify.ProviderUnavailable, "failed, the end (provider_unavailable), next"},
		{"found throttled", reconciling(), false, 10 * time.Second, notify.Throttled, "waiting, throttled 20s (throttled) T+1"},
		{"found throttled, no attempt left", spent, true, 10 * time.Second, notify.Throttled, "failed, the end (throttled), next"},
		{"not there, no time left", short, false, 29 * time.Second, notify.ProviderUnavailable, "failed, the end (provider_unavailable), next"},
		{"not there, canceled", canceled, false, 35 * time.Second, notify.ProviderUnavailable, "canceled, the end (canceled)"},
		{"not there, and yet received", received, false, 35 * time.Second, notify.ProviderUnavailable, "delivered, the end, met"},
		{"cannot tell", reconciling(), false, 10 * time.Second, notify.Unknown, "unknown, reconcile 35s (unknown)"},
		{"cannot tell early", reconciling(), false, time.Second, notify.Unknown, "unknown, reconcile 10s (unknown)"},
		{"cannot tell twice", reconciling(), false, 35 * time.Second, notify.Unknown, "unknown, reconcile 2m0s (unknown)"},
		{"cannot tell in a short step", short, false, 10 * time.Second, notify.Unknown, "unknown, reconcile 30s (unknown)"},
		{"cannot tell at the step's end", short, false, 30 * time.Second, notify.Unknown, "failed, the end (unknown), next"},
		{"cannot tell at the end", reconciling(), false, 2 * time.Minute, notify.Unknown, "failed, the end (unknown), next"},
		{"cannot tell at the end, last step", reconciling(), true, 2 * time.Minute, notify.Unknown, "queued, now (unknown) R+1"},
		{"cannot tell at the end, repeated", repeated, true, 2 * time.Minute, notify.Unknown, "failed, the end (unknown), next"},
		{"cannot tell, canceled", canceled, false, 10 * time.Second, notify.Unknown, "canceled, the end (canceled)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := fallback.Reconcile(c.state, asking(c.last), fallback.Outcome{Kind: c.kind}, noon, noon.Add(c.after))
			if got := story(c.state, d); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}
