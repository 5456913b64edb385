package whatsapp

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	appSecret   = "app-secret-hunter3"
	verifyToken = "verify-hunter4"
)

func callbackMeta(t *testing.T, change ...func(*MetaConfig)) *Meta {
	t.Helper()
	cfg := metaConfig("")
	cfg.AppSecret, cfg.VerifyToken = secret.New(appSecret), secret.New(verifyToken)
	for _, f := range change {
		f(&cfg)
	}
	return newMeta(t, cfg)
}

// webhook is a callback as Meta signs it.
func webhook(body string) *channels.Callback {
	mac := hmac.New(sha256.New, []byte(appSecret))
	mac.Write([]byte(body))
	return &channels.Callback{
		Method: http.MethodPost, URL: "https://notify.example.com/v1/receipts/meta-main/webhook", Path: "webhook", Query: url.Values{},
		Header: http.Header{"Content-Type": {"application/json"}, "X-Hub-Signature-256": {"sha256=" + hex.EncodeToString(mac.Sum(nil))}},
		Body:   []byte(body),
	}
}

func handshake(values ...string) *channels.Callback {
	q := url.Values{}
	for i := 0; i < len(values); i += 2 {
		q.Set(values[i], values[i+1])
	}
	return &channels.Callback{
		Method: http.MethodGet, URL: "https://notify.example.com/v1/receipts/meta-main/webhook?" + q.Encode(), Path: "webhook", Query: q,
	}
}

// change is one change of a webhook; number is the business's.
func change(field, number, member, items string) string {
	return fmt.Sprintf(`{"field":%q,"value":{"messaging_product":"whatsapp","metadata":{"display_phone_number":"15550783881","phone_number_id":%q},%q:[%s]}}`,
		field, number, member, items)
}

func changes(list ...string) string {
	return `{"object":"whatsapp_business_account","entry":[{"id":"102290129340398","changes":[` + strings.Join(list, ",") + `]}]}`
}

func statuses(items ...string) string {
	return changes(change("messages", numberID, "statuses", strings.Join(items, ",")))
}

func inbound(from, text string) string {
	return fmt.Sprintf(`{"from":%q,"id":"wamid.IN","timestamp":"1739321024","type":"text","text":{"body":%q}}`, from, text)
}

var told = time.Date(2025, 2, 12, 0, 43, 44, 0, time.UTC) // 1739321024

func status(kind, rest string) string {
	return fmt.Sprintf(`{"id":%q,"status":%q,"timestamp":"1739321024","recipient_id":"14155550100"%s}`, wamid, kind, rest)
}

func stopBy(phone, code string, stop bool) channels.Consent {
	c := channels.Consent{Target: notify.Target{Phone: phone}, Stop: stop, Reason: "start", Code: code}
	if stop {
		c.Reason = "stop"
	}
	return c
}

// dated is a consent with what tells it apart.
func dated(c channels.Consent, id string) channels.Consent {
	c.ID, c.At = id, told
	return c
}

func TestMetaReadsWhatBecomesOfItsMessages(t *testing.T) {
	ours := `,"biz_opaque_callback_data":"` + myRef.String() + `"`
	of := func(s notify.Status) channels.Receipt {
		return channels.Receipt{Ref: myRef, MessageID: wamid, Status: s, At: told}
	}
	failed := func(o notify.Outcome, code, detail string) channels.Receipt {
		r := of(notify.Failed)
		r.Ref, r.Outcome, r.Code, r.Detail = channels.Ref{}, o, code, detail
		return r
	}
	nameless := of(notify.Sent)
	nameless.Ref = channels.Ref{}
	taken := func(receipts []channels.Receipt, consents ...channels.Consent) channels.Report {
		return channels.Report{Receipts: receipts, Consents: consents, Answer: metaTaken}
	}
	var cases []channeltest.GenuineCallback
	for _, tt := range []struct {
		name, body string
		want       channels.Report
	}{
		{
			"all that can come of a message", statuses(status("sent", ours), status("delivered", ours), status("read", ours)),
			taken([]channels.Receipt{of(notify.Sent), of(notify.Delivered), of(notify.Read)}),
		},
		{"a message that was sent by others, or by an older version", statuses(status("sent", `,"biz_opaque_callback_data":"0193e7a2"`)), taken([]channels.Receipt{nameless})},
		{
			"a failure", statuses(status("failed", `,"errors":[{"code":131026,"title":"Message undeliverable"}]`)),
			taken([]channels.Receipt{failed(notify.RecipientRejected, "131026", "recipient cannot get whatsapp messages")}),
		},
		{
			"a failure whose details tell more", statuses(status("failed", `,"errors":[{"code":100,"error_data":{"details":"Recipient is not a valid WhatsApp user"}}]`)),
			taken([]channels.Receipt{failed(notify.RecipientRejected, "100", "recipient is not valid")}),
		},
		{
			"failures without a reason that is known", statuses(status("failed", ""), status("failed", `,"errors":[{"code":999999}]`), status("failed", `,"errors":[{"code":14155550100}]`)),
			taken([]channels.Receipt{
				failed(notify.RecipientUnavailable, "", "failed without a reason"),
				failed(notify.RecipientUnavailable, "999999", "failed for a reason that is not known here"),
				failed(notify.RecipientUnavailable, "", "failed without a reason"),
			}),
		},
		{"statuses that tell nothing of arriving", statuses(status("deleted", ours), status("warning", ours)), taken(nil)},
		{"one that cannot be read among others", statuses(`7`, `{"id":7}`, status("read", ours)), taken([]channels.Receipt{of(notify.Read)})},
		{
			"another number's messages", changes(change("messages", "999", "statuses", status("read", ours)), change("messages", numberID, "statuses", status("sent", ours))),
			taken([]channels.Receipt{of(notify.Sent)}),
		},
		{"another field", changes(change("account_update", numberID, "statuses", status("read", ours)), `{"field":"messages","value":7}`), taken(nil)},
		{"another product", strings.Replace(statuses(status("read", ours)), "whatsapp_business_account", "page", 1), taken(nil)},
		{
			"people who stop and start", changes(change("messages", numberID, "messages",
				inbound("14155550100", " stop. ")+","+inbound("14155550101", "Start")+","+inbound("14155550102", "do not stop")+","+inbound("abc", "stop")+
					`,{"from":"14155550103","timestamp":{},"type":"button","button":{"text":"Opt  out","payload":"x"}},{"from":"14155550104","type":"image","text":{"body":"stop"}}`+
					`,{"from":"14155550105","type":"interactive","interactive":{"button_reply":{"id":"1","title":"STOP"}}}`)),
			taken(
				nil, dated(stopBy("+14155550100", "STOP", true), "wamid.IN"), dated(stopBy("+14155550101", "START", false), "wamid.IN"),
				stopBy("+14155550103", "OPTOUT", true), stopBy("+14155550105", "STOP", true),
			),
		},
		{
			"a number with two spellings", changes(change("messages", numberID, "messages", inbound("551187654321", "STOP"))),
			taken(nil, dated(stopBy("+551187654321", "STOP", true), "wamid.IN"), dated(stopBy("+5511987654321", "STOP", true), "wamid.IN")),
		},
		{
			"a stop of marketing messages, which are not what is sent",
			changes(change("user_preferences", numberID, "user_preferences", `{"wa_id":"14155550100","category":"marketing_messages","value":"stop","timestamp":1739321024}`)), taken(nil),
		},
	} {
		cases = append(cases, channeltest.GenuineCallback{Name: tt.name, Make: func() *channels.Callback { return webhook(tt.body) }, Want: tt.want})
	}
	answer := metaTaken
	answer.Body = []byte("1158201444")
	cases = append(cases, channeltest.GenuineCallback{
		Name: "the handshake",
		Make: func() *channels.Callback {
			c := handshake("hub.mode", "subscribe", "hub.verify_token", verifyToken, "hub.challenge", "1158201444")
			c.Header = http.Header{"X-Hub-Signature-256": {"x"}}
			return c
		},
		Want: channels.Report{Answer: answer},
	})
	suite := channeltest.Callbacks{
		New:     func(t *testing.T) channels.CallbackReader { return callbackMeta(t) },
		Genuine: cases[:len(cases)-1], Proof: []string{"X-Hub-Signature-256"}, Unsigned: []string{"Content-Type"},
		Secrets: []string{appSecret, verifyToken, accessToken, "14155550102", "do not stop"},
	}
	channeltest.RunCallbacks(t, suite)
	suite.Genuine, suite.Proof = cases[len(cases)-1:], nil
	channeltest.RunCallbacks(t, suite)
}

func TestMetaTakesMarketingStopsWhereThatIsAllThatIsSent(t *testing.T) {
	p := callbackMeta(t, func(c *MetaConfig) { c.MarketingStops = true })
	preference := func(category, value string) string {
		return fmt.Sprintf(`{"wa_id":"14155550100","category":%q,"value":%q,"timestamp":1739321024}`, category, value)
	}
	r, err := p.ReadCallback(t.Context(), webhook(changes(change("user_preferences", numberID, "user_preferences",
		strings.Join([]string{preference("marketing_messages", "stop"), preference("marketing_messages", "resume"), preference("other", "stop"), preference("marketing_messages", "maybe")}, ",")))))
	want := []channels.Consent{dated(stopBy(ana, "marketing_messages", true), ""), dated(stopBy(ana, "marketing_messages", false), "")}
	if diff := cmp.Diff(want, r.Consents); diff != "" || err != nil {
		t.Errorf("%v, consents (-want +got):\n%s", err, diff)
	}
}

func TestMetaRefusesWhatIsNotItsOwn(t *testing.T) {
	body := statuses(status("read", ""))
	with := func(change func(*channels.Callback)) *channels.Callback {
		c := webhook(body)
		change(c)
		return c
	}
	mute := func(c *MetaConfig) { c.AppSecret, c.VerifyToken = secret.Value{}, secret.Value{} }
	for _, tt := range []struct {
		name     string
		config   []func(*MetaConfig)
		callback *channels.Callback
		want     int
	}{
		{"without the app's secret", []func(*MetaConfig){mute}, webhook(body), 404},
		{"without a verify token", []func(*MetaConfig){mute}, handshake("hub.mode", "subscribe", "hub.verify_token", "", "hub.challenge", "1"), 404},
		{"signed by another app", []func(*MetaConfig){func(c *MetaConfig) { c.AppSecret = secret.New("another") }}, webhook(body), 403},
		{"a body of another message", nil, with(func(c *channels.Callback) { c.Body = []byte(statuses(status("failed", ""))) }), 403},
		{"cut short", nil, with(func(c *channels.Callback) { c.Body = c.Body[:len(c.Body)-1] }), 403},
		{"the older signature", nil, with(func(c *channels.Callback) { c.Header = http.Header{"X-Hub-Signature": {"sha1=00"}} }), 403},
		{"the signature without its name", nil, with(func(c *channels.Callback) {
			c.Header.Set("X-Hub-Signature-256", strings.TrimPrefix(c.Header.Get("X-Hub-Signature-256"), "sha256="))
		}), 403},
		{"signed, and not JSON", nil, webhook("{"), 400},
		{"another method", nil, with(func(c *channels.Callback) { c.Method = http.MethodHead }), 404},
		{"a handshake with another token", nil, handshake("hub.mode", "subscribe", "hub.verify_token", verifyToken+"x", "hub.challenge", "1"), 403},
		{"a handshake of another mode", nil, handshake("hub.mode", "unsubscribe", "hub.verify_token", verifyToken, "hub.challenge", "1"), 400},
		{"a handshake that wants a page", nil, handshake("hub.mode", "subscribe", "hub.verify_token", verifyToken, "hub.challenge", "<script>"), 400},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r, err := callbackMeta(t, tt.config...).ReadCallback(t.Context(), tt.callback)
			refused, ok := errors.AsType[*channels.CallbackError](err)
			if !ok || refused.Status != tt.want || len(r.Receipts)+len(r.Consents) != 0 || r.Answer.Body != nil {
				t.Errorf("%v, report %+v", err, r)
			}
		})
	}
}

func TestMetaShowsWhatItCanKnow(t *testing.T) {
	if got := newMeta(t, metaConfig("")).Info(); got.MaxObservable != notify.Sent || got.Receipts {
		t.Errorf("without the app's secret: %+v", got)
	}
	if got := callbackMeta(t).Info(); got.MaxObservable != notify.Read || !got.Receipts {
		t.Errorf("with it: %+v", got)
	}
}

func TestNumbersThatAreSpelledTwoWays(t *testing.T) {
	for id, want := range map[string]string{
		"14155550100":   "+14155550100",
		"525512345678":  "+525512345678 +5215512345678",
		"5215512345678": "+5215512345678 +525512345678",
		"541123456789":  "+541123456789 +5491123456789",
		"5491123456789": "+5491123456789 +541123456789",
		"5511987654321": "+5511987654321 +551187654321",
		"55119":         "+55119",
		"55":            "+55",
	} {
		if got := strings.Join(numbersOf(id), " "); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
}

func FuzzMetaCallbackReportsOnlyWhatIsSigned(f *testing.F) {
	f.Add([]byte(statuses(status("read", `,"biz_opaque_callback_data":"`+myRef.String()+`"`))), true)
	f.Add([]byte(statuses(status("failed", `,"errors":[{"code":131026}]`))), true)
	f.Add([]byte(changes(change("messages", numberID, "messages", inbound("14155550100", "STOP")))), true)
	f.Add([]byte(`{"object":"whatsapp_business_account","entry":[{"changes":[{"value":{}}]}]}`), false)
	cfg := metaConfig("")
	cfg.AppSecret = secret.New(appSecret)
	p, err := NewMeta("meta-main", cfg)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, body []byte, genuine bool) {
		c := webhook(string(body))
		if !genuine {
			c.Body = append(bytes.Clone(c.Body), ' ')
		}
		r, err := p.ReadCallback(t.Context(), c)
		if !genuine && err == nil {
			t.Fatal("a changed body was taken")
		}
		if err == nil && !json.Valid(body) {
			t.Fatal("what is not JSON was taken")
		}
		channeltest.CheckReport(t, r, []string{appSecret})
	})
}
