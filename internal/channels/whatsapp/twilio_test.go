package whatsapp

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/channels/twilio"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	accountSID  = "AC0123456789abcdef0123456789abcdef"
	serviceSID  = "MG0123456789abcdef0123456789abcdef"
	templateSID = "HX0123456789abcdef0123456789abcdef"
	messageSID  = "SM0123456789abcdef0123456789abcdef"
	authToken   = "hunter2token"
)

func twilioConfig(baseURL string) TwilioConfig {
	return TwilioConfig{
		Account: twilio.Account{AccountSID: accountSID, AuthToken: secret.New(authToken), BaseURL: baseURL},
		From:    "+14155238886",
	}
}

func newTwilio(t *testing.T, cfg TwilioConfig) *Twilio {
	t.Helper()
	p, err := NewTwilio("twilio-wa", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func twilioAccepts(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = io.WriteString(w, `{"sid":"`+messageSID+`","status":"queued","error_code":null,"to":"whatsapp:`+ana+`","body":"Deploy failed"}`)
}

func TestTwilioPassesTheSuite(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		New:     func(t *testing.T, baseURL string) channels.Provider { return newTwilio(t, twilioConfig(baseURL)) },
		Message: message,
		Accept:  twilioAccepts,
		Want: channels.Result{
			Outcome: notify.Accepted, Status: notify.Sent, HTTPStatus: http.StatusCreated, MessageID: messageSID,
		},
		Table:     twilioTable(),
		Secrets:   []string{authToken, accountSID},
		Ambiguous: true, ServerErrors: map[int]notify.Outcome{503: notify.ProviderUnavailable},
	})
}

// twilioTable has each code as a refusal of the request and as the failure of a
// message that was made, for it comes either way.
func twilioTable() []channeltest.Case {
	blocked := channels.Result{Outcome: notify.Suppressed, Suppress: true, SuppressFor: 30 * 24 * time.Hour}
	account, rejected, recipient := only(notify.AccountRejected), only(notify.MessageRejected), only(notify.RecipientRejected)
	badSender := scoped(notify.AccountRejected, "sender", 0)
	rows := []struct {
		code int
		want channels.Result
	}{
		{63001, account},
		{63002, badSender},
		{63003, recipient},
		{63005, rejected},
		{63006, rejected},
		{63007, badSender},
		{63008, badSender},
		{63009, only(notify.ProviderUnavailable)},
		{63010, only(notify.ProviderUnavailable)},
		{63012, only(notify.ProviderUnavailable)},
		{63013, rejected},
		{63014, blocked},
		{63015, scoped(notify.AccountRejected, toMe, 0)},
		{63016, rejected},
		{63017, only(notify.Throttled)},
		{63018, scoped(notify.Throttled, "sender", time.Hour)},
		{63019, rejected},
		{63020, badSender},
		{63021, rejected},
		{63022, badSender},
		{63023, scoped(notify.RecipientUnavailable, toMe, 15*time.Minute)},
		{63024, recipient},
		{63026, rejected},
		{63027, rejected},
		{63028, rejected},
		{63029, rejected},
		{63030, rejected},
		{63032, recipient},
		{63033, blocked},
		{63034, rejected},
		{63038, scoped(notify.Throttled, "", time.Hour)},
		{63040, rejected},
		{63041, rejected},
		{63042, rejected},
		{63051, account},
		// Of the REST API, the same for every channel.
		{20003, account},
		{20429, only(notify.Throttled)},
		{21211, channels.Result{Outcome: notify.RecipientRejected, Suppress: true}},
		{21610, channels.Result{Outcome: notify.Suppressed, Suppress: true}},
		{21656, rejected},
		{69999, rejected},
	}
	var out []channeltest.Case
	for _, row := range rows {
		refused := row.want
		refused.HTTPStatus, refused.Code = http.StatusBadRequest, strconv.Itoa(row.code)
		out = append(out, channeltest.Case{
			Name: fmt.Sprintf("400 %d", row.code), Status: http.StatusBadRequest, Want: refused,
			Body: fmt.Sprintf(`{"code":%d,"message":"'whatsapp:%s' cannot get 'api: 3 of 5 pods are down'","status":400}`, row.code, ana),
		})
		failed := row.want
		failed.HTTPStatus, failed.Code, failed.MessageID = http.StatusCreated, strconv.Itoa(row.code), messageSID
		out = append(out, channeltest.Case{
			Name: fmt.Sprintf("failed at once with %d", row.code), Status: http.StatusCreated, Want: failed,
			Body: fmt.Sprintf(`{"sid":%q,"status":"undelivered","error_code":%d,"to":"whatsapp:%s"}`, messageSID, row.code, ana),
		})
	}
	return out
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func TestTwilioPostsTextAndTemplates(t *testing.T) {
	service := func(c *TwilioConfig) { c.From, c.MessagingServiceSID = "", serviceSID }
	for _, c := range []struct {
		name      string
		configure func(*TwilioConfig)
		message   *channels.Message
		form      url.Values
	}{
		{
			"text", nil, message(""),
			url.Values{"From": {"whatsapp:+14155238886"}, "Body": {"Deploy failed\napi: 3 of 5 pods are down"}},
		},
		{
			"a sender with its prefix", func(c *TwilioConfig) { c.From = "whatsapp:+14155238886" }, message(""),
			url.Values{"From": {"whatsapp:+14155238886"}, "Body": {"Deploy failed\napi: 3 of 5 pods are down"}},
		},
		{
			"template with variables", service, templated(templateSID, "de", map[string]string{"2": `3 of "5"`, "1": "api"}),
			url.Values{"MessagingServiceSid": {serviceSID}, "ContentSid": {templateSID}, "ContentVariables": {`{"1":"api","2":"3 of \"5\""}`}},
		},
		{
			"template without variables", service, templated(templateSID, "", nil),
			url.Values{"MessagingServiceSid": {serviceSID}, "ContentSid": {templateSID}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := capture(t, twilioAccepts, func(baseURL string) channels.Provider {
				cfg := twilioConfig(baseURL)
				if c.configure != nil {
					c.configure(&cfg)
				}
				return newTwilio(t, cfg)
			}, c.message)
			c.form.Set("To", "whatsapp:"+ana)
			want := received{
				path:          "POST /2010-04-01/Accounts/" + accountSID + "/Messages.json",
				authorization: basic(accountSID, authToken), contentType: "application/x-www-form-urlencoded", form: c.form,
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(received{})); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTwilioChecksTextAndTemplateName(t *testing.T) {
	long := strings.Repeat("é", 1601)
	for _, c := range []struct {
		name    string
		content notify.Content
		field   string
	}{
		{"a text", notify.Content{Body: "hello"}, ""},
		{"the longest text", notify.Content{Body: long[2:]}, ""},
		{"no text", notify.Content{}, "/content/whatsapp/body"},
		{"own text too long", notify.Content{WhatsApp: &notify.WhatsAppContent{Body: long}}, "/content/whatsapp/body"},
		{"body too long", notify.Content{Body: long}, "/content/body"},
		{"title too long", notify.Content{Title: long}, "/content/title"},
		{"a template", templated(templateSID, "", nil).Content, ""},
		{"a template of meta", templated("order_shipped", "", nil).Content, "/content/whatsapp/template/name"},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantField(t, newTwilio(t, twilioConfig("")).Check(&channels.Message{Content: c.content}), c.field)
		})
	}
}

func TestNewTwilioReportsEveryProblemByItsKey(t *testing.T) {
	_, err := NewTwilio("twilio-wa", TwilioConfig{
		Account: twilio.Account{AccountSID: "hunter2", BaseURL: "hunter2"}, From: "hunter2", MessagingServiceSID: "hunter2",
	})
	wantProblems(t, err, "account_sid", "auth_token", "base_url", "from", "messaging_service_sid")

	cfg := twilioConfig("")
	cfg.From = ""
	_, err = NewTwilio("twilio-wa", cfg)
	wantProblems(t, err, "from")
}

func TestTwilioAsksForStatuses(t *testing.T) {
	m := message("")
	m.Callback = "https://dispatcher.example.com/v1/receipts/twilio-whatsapp/status/ref"
	for _, m := range []*channels.Message{m, templated(templateSID, "de", nil)} {
		got := capture(t, twilioAccepts, func(baseURL string) channels.Provider { return newTwilio(t, twilioConfig(baseURL)) }, m)
		want := ""
		if m.Callback != "" {
			want = m.Callback + "#rc=3&rp=ct,rt,5xx"
		}
		if got := got.form.Get("StatusCallback"); got != want {
			t.Errorf("status callback %q, want %q", got, want)
		}
	}
}

func TestAMessageByTwilioCanBeSeenRead(t *testing.T) {
	p := newTwilio(t, twilioConfig(""))
	if i := p.Info(); i.MaxObservable != notify.Read || !i.Receipts {
		t.Errorf("info %+v", i)
	}
	_, err := p.ReadCallback(t.Context(), &channels.Callback{Path: "nowhere"})
	var refused *channels.CallbackError
	if !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r, call := p.Poll(ctx, messageSID); r != (channels.Receipt{}) || call.Outcome != notify.NotAttempted {
		t.Errorf("receipt %+v, call %+v", r, call)
	}
}
