package cli

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestAStoryIsToldLineByLine(t *testing.T) {
	t.Parallel()
	at := func(clock string) time.Time {
		v, err := time.Parse(time.RFC3339, "2026-12-01T"+clock+"Z")
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	zero, one := 0, 1
	sms := func(e entryView) entryView {
		e.Step, e.Channel = &zero, notify.SMS
		return e
	}
	s := storyView{
		view: view{Status: notify.Sent, Steps: []stepView{
			{
				Channel: notify.SMS, Status: notify.Failed, Because: "undelivered: recipient_unavailable",
				Attempts: []attemptView{{Account: "twilio-main", Outcome: notify.Accepted, DurationMS: 41}},
				Receipts: []receiptNote{{Status: notify.Sent}, {Status: notify.Failed, ProviderCode: "30003"}},
			},
			{Channel: notify.Push, Status: notify.Sent},
		}},
		Timeline: []entryView{
			{At: at("08:00:00"), Type: "accepted"},
			sms(entryView{At: at("08:00:00"), Type: "started", Because: "first"}),
			sms(entryView{At: at("08:00:01.5"), Type: "attempt", Account: "twilio-main", N: 2, Outcome: notify.Accepted}),
			sms(entryView{At: at("08:00:01.6"), Type: "sent", Until: at("09:00:00")}),
			sms(entryView{At: at("23:59:59"), Type: "receipt", Account: "twilio-main", Status: notify.Failed, Outcome: notify.RecipientUnavailable, ProviderCode: "30003"}),
			{At: at("23:59:59").Add(time.Second), Type: "sent", Step: &one, Target: &one, Channel: notify.Push},
		},
	}
	var out bytes.Buffer
	s.print(&out)
	want := `2026-12-01
08:00:00.000  =         accepted
08:00:00.000  sms       started   first
08:00:01.500  sms       attempt   twilio-main call 2 accepted
08:00:01.600  sms       sent      until 09:00:00
23:59:59.000  sms       receipt   twilio-main failed recipient_unavailable (30003)
2026-12-02
00:00:00.000  push/1    sent
sms       failed     twilio-main answered accepted in 41 ms, 1 call; reported failed (30003)
push      sent
=         sent
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("story (-want +got):\n%s", diff)
	}
}
