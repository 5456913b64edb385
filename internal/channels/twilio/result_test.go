package twilio

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	openapi "github.com/twilio/twilio-go/rest/api/v2010"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const ana = "+14155550100"

func TestEveryCodeMeansSomethingThatCanBeActedOn(t *testing.T) {
	to := notify.Target{Phone: ana}
	for _, table := range []map[int]channels.Result{messagingCodes, whatsappCodes} {
		for code := range table {
			r, ok := FromErrorCode(code, notify.SMS, to)
			channeltest.CheckResult(t, r, []string{ana})
			switch {
			case !ok || r.Detail == "" || r.Detail != channels.Text(r.Detail, 64):
				t.Errorf("%d: no short detail: %+v", code, r)
			case r.Outcome == notify.Accepted || r.Outcome == notify.NotAttempted:
				t.Errorf("%d: outcome %q of an error", code, r.Outcome)
			case r.Suppress && r.Outcome != notify.Suppressed && r.Outcome != notify.RecipientRejected:
				t.Errorf("%d: outcome %q suppresses the recipient", code, r.Outcome)
			case r.Outcome == notify.Suppressed && !r.Suppress:
				t.Errorf("%d: suppressed this time only", code)
			case r.RetryAfter > 0 && r.Outcome != notify.Throttled && r.Outcome != notify.RecipientUnavailable:
				t.Errorf("%d: outcome %q is not tried again", code, r.Outcome)
			case r.Outcome == notify.RecipientUnavailable && r.Scope != channels.RecipientScope(notify.SMS, to):
				t.Errorf("%d: scope %q holds more than the recipient", code, r.Scope)
			}
		}
	}
}

func TestNoCodeStandsInBothTables(t *testing.T) {
	for code := range whatsappCodes {
		if _, twice := messagingCodes[code]; twice {
			t.Errorf("%d means two things", code)
		}
	}
}

func TestAnUnlistedCodeIsNotKnown(t *testing.T) {
	for _, code := range []int{0, -1, 21999, 14155550100} {
		if r, ok := FromErrorCode(code, notify.SMS, notify.Target{Phone: ana}); ok {
			t.Errorf("%d: %+v", code, r)
		}
	}
}

func TestAnUnlistedCodeLeadsToThePageThatExplainsIt(t *testing.T) {
	x := channels.Exchange{Status: http.StatusBadRequest, Body: []byte(`{"code":21999}`)}
	r := Result(t.Context(), x, notify.SMS, notify.Target{Phone: ana})
	if r.Outcome != notify.MessageRejected || r.Code != "21999" || r.Detail != "see https://www.twilio.com/docs/api/errors/21999" {
		t.Errorf("result %+v", r)
	}
}

func TestScopesTellRegionsApart(t *testing.T) {
	for phone, want := range map[string]string{
		ana:              "region:1415", // United States
		"+18765550100":   "region:1876", // Jamaica
		"+79161234567":   "region:79",   // Russia
		"+77011234567":   "region:77",   // Kazakhstan
		"+447911123456":  "region:44",   // United Kingdom
		"+4915112345678": "region:49",   // Germany
		"+353851234567":  "region:353",  // Ireland
		"+8613123456789": "region:86",   // China
		"+88212345678":   "region:882",  // international networks
		"+999":           "region:999",
		"+2":             "region:2",
		"":               "region:",
	} {
		got := Scopes(notify.SMS, notify.Target{Phone: phone})
		if len(got) != 3 || got[0] != "sender" || got[1] != want || !strings.HasPrefix(got[2], "to:") {
			t.Errorf("scopes of %q: %q, want one %q", phone, got, want)
		}
	}
}

func TestTheCallNeverLeavesForAnotherHost(t *testing.T) {
	c, err := NewClient(Account{AccountSID: testSID, AuthToken: secret.New("t0k3n")})
	if err != nil {
		t.Fatal(err)
	}
	k := &call{ctx: t.Context(), client: c}
	resp, err := k.SendRequest(http.MethodPost, "https://api.example.com/2010-04-01/Accounts", url.Values{}, nil)
	if resp != nil {
		_ = resp.Body.Close()
	}
	if err == nil || errors.Is(err, errRecorded) || k.exchange.Status != 0 {
		t.Errorf("SendRequest: %v, exchange %+v", err, k.exchange)
	}
}

func TestACallThatCannotBeMadeHasDoneNoHarm(t *testing.T) {
	c := &Client{sid: testSID, base: "http://no host", credentials: Account{}.credentials}
	x := c.CreateMessage(t.Context(), &openapi.CreateMessageParams{})
	if r := Result(t.Context(), x, notify.SMS, notify.Target{Phone: ana}); r.Outcome != notify.ProviderUnavailable {
		t.Errorf("result %+v", r)
	}
}

func FuzzResultNeedsASidForSuccessAndTellsNoSecret(f *testing.F) {
	for _, body := range []string{
		"", "{}", `{"sid":"SM1","status":"queued"}`, `{"sid":"SM1","status":"failed","error_code":30003}`,
		`{"code":21211,"message":"'+14155550100' is not valid"}`, `{"code":"21211"}`, `{"code":14155550100}`,
		`{"sid":"+14155550100"}`, `{"sid":" "}`, `{"sid":"SM1"`, "<html>+14155550100</html>",
	} {
		f.Add(201, body)
		f.Add(400, body)
		f.Add(503, body)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		x := channels.Exchange{Status: status, Header: http.Header{}, Body: []byte(body), Wrote: true, ReceivedAt: time.Unix(0, 0)}
		r := Result(t.Context(), x, notify.SMS, notify.Target{Phone: ana})
		channeltest.CheckResult(t, r, []string{ana})
		if r.Outcome != notify.Accepted {
			return
		}
		var m struct {
			SID string `json:"sid"`
		}
		if err := json.Unmarshal(x.Body, &m); err != nil || m.SID == "" || r.MessageID != m.SID || status/100 != 2 {
			t.Errorf("accepted without proof: status %d, %q", status, body)
		}
	})
}
