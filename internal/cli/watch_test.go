package cli_test

import (
	"context"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	queuedView = `{"id":"x","status":"queued","finished_at":null,"steps":[{"channel":"push","status":"queued","success":"accepted"},
		{"channel":"sms","status":"pending","success":"delivered"}]}`
	fallenView = `{"id":"x","status":"sending","finished_at":null,"steps":[
		{"channel":"push","status":"failed","success":"accepted","because":"recipient_rejected","attempts":[
			{"account":"fcm-main","outcome":"recipient_rejected","provider_code":"UNREGISTERED","duration_ms":41.4}]},
		{"channel":"sms","status":"waiting","success":"delivered","waiting":{"reason":"throttled","until":"2026-12-01T08:00:00Z"}}]}`
	sentView = `{"id":"x","status":"sent","finished_at":null,"waiting":{"reason":"receipt","until":"2026-12-01T09:00:00Z"},"steps":[
		{"channel":"push","status":"failed","success":"accepted","because":"recipient_rejected","attempts":[
			{"account":"fcm-main","outcome":"recipient_rejected","provider_code":"UNREGISTERED","duration_ms":41.4}]},
		{"channel":"sms","status":"sent","success":"delivered","attempts":[{"account":"twilio-main","outcome":"accepted","duration_ms":118}]}]}`
)

func deliveredView() string {
	return strings.NewReplacer(`"status":"sent"`, `"status":"delivered"`, `"success":"accepted","duration`, `"duration`).Replace(sentView)
}

var clock = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d  `)

func TestWatchPrintsEachChangeOnALineOfItsOwn(t *testing.T) {
	s := newService(t, queuedView, queuedView, "away", fallenView, sentView, deliveredView())
	r := run(t, s.env(), "watch", notificationID)
	r.want(t, 0)
	want := `push      queued
sms       pending
=         queued
push      failed     fcm-main answered recipient_rejected (UNREGISTERED) in 41 ms, 1 call
sms       waiting    waits: throttled until 08:00:00
=         sending
sms       sent       twilio-main answered accepted in 118 ms, 1 call
=         sent       waits: receipt until 09:00:00
sms       delivered  twilio-main answered accepted in 118 ms, 1 call
=         delivered  waits: receipt until 09:00:00
`
	if diff := cmp.Diff(want, clock.ReplaceAllString(r.stdout, "")); diff != "" {
		t.Error(diff)
	}
}

func TestWatchEndsWhereTheChainIsContent(t *testing.T) {
	sent := strings.ReplaceAll(sentView, `"success":"delivered"`, `"success":"accepted"`)
	s := newService(t, sent, deliveredView())
	run(t, s.env(), "watch", notificationID).want(t, 0, "sent")
	if s.gets != 1 {
		t.Errorf("asked %d times, want once: no later receipt changes the chain", s.gets)
	}
}

func TestWatchFailsWhereTheNotificationDid(t *testing.T) {
	for _, status := range []string{"failed", "partially_failed", "expired", "canceled", "suppressed"} {
		s := newService(t, `{"id":"x","status":"`+status+`","finished_at":"2026-12-01T08:00:00Z","steps":[{"channel":"sms","status":"failed","because":"no_account"}]}`)
		run(t, s.env(), "watch", notificationID).want(t, 1, status, "no_account")
	}
}

func TestWatchWithJSONPrintsTheEndAlone(t *testing.T) {
	s := newService(t, queuedView, deliveredView())
	r := run(t, s.env(), "watch", notificationID, "--json")
	r.want(t, 0)
	if diff := cmp.Diff(parse(t, deliveredView()), parse(t, r.stdout)); diff != "" {
		t.Error(diff)
	}
}

func TestWatchOfANotificationThatIsNotThereFails(t *testing.T) {
	s := newService(t, queuedView)
	run(t, s.env(), "watch", "01937f00-0000-7000-8000-00000000dead").want(t, 1, "answered 404")
}

func TestWatchThatIsStoppedSaysThatTheNotificationGoesOn(t *testing.T) {
	s := newService(t, queuedView)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	runIn(t, ctx, s.env(), "", "watch", notificationID).want(t, 1, "stopped watching")
}

func TestSendWithWatchFollowsWhatItSent(t *testing.T) {
	s := newService(t, queuedView, deliveredView())
	run(t, s.env(), "send", "--to-sms", "+14155550100", "--body", "x", "--watch").want(t, 0, "delivered")
}
