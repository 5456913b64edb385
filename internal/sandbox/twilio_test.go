package sandbox_test

import (
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

func TestTwilioAcceptsAMessageWithItsResource(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	a := sms(t, s, "+14155550100", "hello")
	m := a.json(t)
	if a.status != http.StatusCreated || m["status"] != "queued" || m["to"] != "+14155550100" || m["body"] != "hello" {
		t.Errorf("answer %d %v", a.status, m)
	}
	if sid, _ := m["sid"].(string); !regexp.MustCompile(`^SM[0-9a-f]{32}$`).MatchString(sid) {
		t.Errorf("sid is %q", sid)
	}
	got := last(t, s)
	if got.Provider != "twilio" || got.Channel != "sms" || got.Body != "hello" || got.Answer.ID != m["sid"] || !got.Answer.Accepted {
		t.Errorf("recorded %+v", got)
	}
	if viaService := sms(t, s, "+14155550100", "hello", "From", "", "MessagingServiceSid", "MG1"); viaService.json(t)["status"] != "accepted" {
		t.Errorf("a messaging service's first status: %s", viaService.body)
	}
}

func TestTwilioRefusesWhatTwilioRefuses(t *testing.T) {
	s := start(t, sandbox.Config{})
	for _, tt := range []struct {
		name, to, body string
		pairs          []string
		code           float64
	}{
		{"no recipient", "", "x", nil, 21604},
		{"no sender", "+14155550100", "x", []string{"From", ""}, 21603},
		{"no body", "+14155550100", "", nil, 21602},
		{"a number without a plus", "4155550100", "x", nil, 21211},
		{"1601 characters", "+14155550100", strings.Repeat("é", 1601), nil, 21617},
		{"a callback that is no url", "+14155550100", "x", []string{"StatusCallback", "nowhere"}, 21609},
		{"a sender that is none", "+14155550100", "x", []string{"From", "!"}, 21212},
		{"Twilio's invalid sender", "+14155550100", "x", []string{"From", "+15005550001"}, 21212},
		{"Twilio's foreign sender", "+14155550100", "x", []string{"From", "+15005550007"}, 21606},
		{"Twilio's full queue", "+14155550100", "x", []string{"From", "+15005550008"}, 21611},
		{"an sms sender for whatsapp", "whatsapp:+14155550100", "x", []string{"From", "+15005550006"}, 63007},
		{"a content sid that is none", "+14155550100", "", []string{"ContentSid", "AB1"}, 21655},
		{"variables that are no object", "+14155550100", "", []string{"ContentSid", "HX1", "ContentVariables", "[1]"}, 21656},
		{"a validity of a day", "+14155550100", "x", []string{"ValidityPeriod", "86400"}, 30045},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := sms(t, s, tt.to, tt.body, tt.pairs...)
			if a.status != http.StatusBadRequest || a.json(t)["code"] != tt.code {
				t.Errorf("answer %d %s, want code %v", a.status, a.body, tt.code)
			}
			if got := last(t, s); got.Answer.Accepted || got.Answer.ID != "" {
				t.Errorf("recorded as %+v", got.Answer)
			}
		})
	}
	if a := sms(t, s, "+14155550100", strings.Repeat("é", 1600)); a.status != http.StatusCreated {
		t.Errorf("1600 characters: %d %s", a.status, a.body)
	}
	if a := sms(t, s, "+14155550100", "", "ContentSid", "HX1", "ContentVariables", `{"1":"Ana"}`); a.status != http.StatusCreated {
		t.Errorf("a template: %d %s", a.status, a.body)
	}
}

func TestTwilioChecksAConfiguredToken(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{TwilioTokens: map[string]string{twilioSID: "another"}})
	if a := sms(t, s, "+14155550100", "x"); a.status != http.StatusUnauthorized || a.json(t)["code"] != 20003.0 {
		t.Errorf("answer %d %s", a.status, a.body)
	}
	open := start(t, sandbox.Config{})
	target := open.HTTPURL() + "/2010-04-01/Accounts/" + twilioSID + "/Messages.json"
	if a := send(t, http.MethodPost, target, "To=%2B14155550100"); a.status != http.StatusUnauthorized {
		t.Errorf("without credentials: %d", a.status)
	}
}

func TestTwilioLooksMessagesUp(t *testing.T) {
	s := start(t, sandbox.Config{})
	setReceipts(t, s, sandbox.Receipts{Final: sandbox.FinalUndelivered})
	first := sms(t, s, "+14155550100", "one").json(t)["sid"].(string)
	second := sms(t, s, "+14155550100", "two").json(t)["sid"].(string)
	sms(t, s, "+14155550199", "three")
	sms(t, s, "+15005550001", "refused")

	t.Run("by sid, as it stands", func(t *testing.T) {
		m := lookUp(t, s, "Messages/"+first+".json").json(t)
		if m["body"] != "one" || m["status"] != "undelivered" || m["error_code"] != 30003.0 {
			t.Errorf("got %v", m)
		}
		if a := lookUp(t, s, "Messages/SM0.json"); a.status != http.StatusNotFound || a.json(t)["code"] != 20404.0 {
			t.Errorf("an unknown sid: %d %s", a.status, a.body)
		}
	})
	t.Run("by recipient and day, newest first", func(t *testing.T) {
		today := time.Now().UTC().Format(time.DateOnly)
		query := url.Values{"To": {"+14155550100"}, "From": {"+15005550006"}, "DateSent": {today}}
		list := lookUp(t, s, "Messages.json?"+query.Encode()).json(t)["messages"].([]any)
		if len(list) != 2 || list[0].(map[string]any)["sid"] != second || list[1].(map[string]any)["sid"] != first {
			t.Errorf("got %v", list)
		}
		query.Set("PageSize", "1")
		if list := lookUp(t, s, "Messages.json?"+query.Encode()).json(t)["messages"].([]any); len(list) != 1 {
			t.Errorf("a page of one has %d", len(list))
		}
		query.Set("DateSent", "2020-01-01")
		if list := lookUp(t, s, "Messages.json?"+query.Encode()).json(t)["messages"].([]any); len(list) != 0 {
			t.Errorf("another day: %v", list)
		}
		after := url.Values{"To": {"+14155550100"}, "DateSent>": {today}}
		if list := lookUp(t, s, "Messages.json?"+after.Encode()).json(t)["messages"].([]any); len(list) != 2 {
			t.Errorf("from today on: %v", list)
		}
	})
	t.Run("and the look-up can break by itself", func(t *testing.T) {
		setFaults(t, s, sandbox.Rule{Provider: "twilio-lookup", Times: 1, Answer: sandbox.RuleAnswer{Status: 503}})
		if a := lookUp(t, s, "Messages/"+first+".json"); a.status != http.StatusServiceUnavailable || a.json(t)["code"] != 20503.0 {
			t.Errorf("got %d %s", a.status, a.body)
		}
		if a := lookUp(t, s, "Messages/"+first+".json"); a.status != http.StatusOK {
			t.Errorf("afterwards %d", a.status)
		}
	})
	if n := len(s.Messages(sandbox.Filter{})); n != 4 {
		t.Errorf("%d calls are recorded, want the 4 messages and no look-up", n)
	}
}

func TestTwilioStatusMovesWithTheDelay(t *testing.T) {
	t.Parallel()
	clock := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	now := make(chan time.Time, 1)
	now <- clock
	s := start(t, sandbox.Config{Now: func() time.Time { v := <-now; now <- v; return v }})
	setReceipts(t, s, sandbox.Receipts{Final: sandbox.FinalRead, Delay: ms(60_000)})
	sid := sms(t, s, "whatsapp:+14155550100", "hi").json(t)["sid"].(string)
	for minute, want := range []string{"queued", "sent", "delivered", "read", "read"} {
		<-now
		now <- clock.Add(time.Duration(minute) * time.Minute)
		if got := lookUp(t, s, "Messages/"+sid+".json").json(t)["status"]; got != want {
			t.Errorf("after %d min it is %v, want %s", minute, got, want)
		}
	}
}
