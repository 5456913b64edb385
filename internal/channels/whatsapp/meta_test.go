package whatsapp

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	numberID    = "106540352242922"
	accessToken = "EAAJBhunter2"
	wamid       = "wamid.HBgLMTY1MDU1NTEyMzQVAgARGBI5QTNDQTVCM0Q0Q0Q2RTY3RTcA"
)

func metaConfig(baseURL string) MetaConfig {
	return MetaConfig{PhoneNumberID: numberID, AccessToken: secret.New(accessToken), BaseURL: baseURL}
}

func newMeta(t *testing.T, cfg MetaConfig) *Meta {
	t.Helper()
	p, err := NewMeta("meta-main", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func metaAccepts(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"messaging_product":"whatsapp","contacts":[{"input":"`+ana+`","wa_id":"14155550100"}],"messages":[{"id":"`+wamid+`"}]}`)
}

func TestMetaPassesTheSuite(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		New:     func(t *testing.T, baseURL string) channels.Provider { return newMeta(t, metaConfig(baseURL)) },
		Message: message,
		Accept:  metaAccepts,
		Want: channels.Result{
			Outcome: notify.Accepted, Status: notify.Sent, HTTPStatus: http.StatusOK, MessageID: wamid,
		},
		Table:     append(metaTable(), metaShapes()...),
		Secrets:   []string{accessToken, numberID},
		Ambiguous: true,
	})
}

// refused is an answer of Meta's with a code, whose details quote the recipient
// beside the words given.
func refused(status, code int, details string, want channels.Result) channeltest.Case {
	want.HTTPStatus, want.Code = status, strconv.Itoa(code)
	return channeltest.Case{
		Name: fmt.Sprintf("%d %d %s", status, code, details), Status: status, Want: want,
		Body: fmt.Sprintf(`{"error":{"message":"(#%d) failed for %s","type":"OAuthException","code":%d,`+
			`"error_data":{"messaging_product":"whatsapp","details":"%s 14155550100"},"fbtrace_id":"A1b2"}}`, code, ana, code, details),
	}
}

func metaTable() []channeltest.Case {
	account, rejected, recipient := only(notify.AccountRejected), only(notify.MessageRejected), only(notify.RecipientRejected)
	badNumber, trouble := scoped(notify.AccountRejected, "sender", 0), only(notify.ProviderUnavailable)
	calls := scoped(notify.Throttled, "", time.Minute)
	return []channeltest.Case{
		refused(401, 0, "", account),
		refused(401, 190, "", account),
		refused(403, 3, "", account),
		refused(500, 3, "", account),
		refused(403, 10, "", account),
		refused(403, 200, "", account),
		refused(403, 299, "", account),
		refused(400, 300, "", rejected),
		refused(400, 1, "", trouble),
		refused(500, 1, "", trouble),
		refused(503, 2, "", trouble),
		refused(400, 4, "", calls),
		refused(400, 17, "", calls),
		refused(400, 613, "", calls),
		refused(400, 80007, "", calls),
		refused(429, 80007, "", calls),
		refused(400, 33, "", badNumber),
		refused(400, 100, "Unexpected key \\\"foo\\\" on param \\\"template\\\"", rejected),
		refused(400, 100, "Param text['body'] must be at most 4096 characters long.", rejected),
		refused(400, 100, "Param to is invalid: recipient is not a valid WhatsApp user", recipient),
		refused(400, 131009, "Components sub_type invalid", rejected),
		refused(400, 131009, "The parameter 'to' is invalid.", recipient),
		refused(429, 130429, "", scoped(notify.Throttled, "sender", 0)),
		refused(429, 131056, "", scoped(notify.Throttled, toMe, 6*time.Second)),
		refused(400, 131048, "", scoped(notify.Throttled, "sender", time.Hour)),
		refused(400, 131049, "", scoped(notify.RecipientUnavailable, toMe, 24*time.Hour)),
		refused(400, 131050, "", only(notify.Suppressed)),
		refused(500, 131000, "", trouble),
		refused(503, 131016, "", trouble),
		refused(500, 131057, "", trouble),
		refused(503, 133004, "", trouble),
		refused(400, 131008, "", rejected),
		refused(400, 131051, "", rejected),
		refused(400, 131021, "", rejected),
		refused(400, 131026, "", recipient),
		refused(400, 130472, "", recipient),
		refused(400, 131047, "", rejected),
		refused(403, 131005, "", account),
		refused(403, 131031, "", account),
		refused(403, 368, "", account),
		refused(403, 130497, "", scoped(notify.AccountRejected, toMe, 0)),
		refused(400, 131030, "", scoped(notify.AccountRejected, toMe, 0)),
		refused(400, 131037, "", badNumber),
		refused(402, 131042, "", account),
		refused(400, 131045, "", badNumber),
		refused(400, 133010, "", badNumber),
		refused(400, 131052, "", rejected),
		refused(400, 131053, "", rejected),
		refused(400, 132000, "", rejected),
		refused(404, 132001, "", rejected),
		refused(400, 132005, "", rejected),
		refused(400, 132007, "", rejected),
		refused(400, 132012, "", rejected),
		refused(400, 132015, "", rejected),
		refused(400, 132016, "", rejected),
		refused(400, 133016, "", scoped(notify.Throttled, "", time.Hour)),
		refused(400, 139999, "", rejected),
		refused(401, 139999, "", account),
		refused(429, 139999, "", only(notify.Throttled)),
		refused(500, 139999, "", only(notify.Unknown)),
	}
}

// metaShapes are answers whose form decides, not their code.
func metaShapes() []channeltest.Case {
	return []channeltest.Case{
		{
			Name: "an object that does not exist", Status: 400,
			Body: `{"error":{"message":"Unsupported post request. Object with ID '` + numberID + `' does not exist","code":100,"error_subcode":33}}`,
			Want: scoped(notify.AccountRejected, "sender", 0),
		},
		{
			Name: "details that are no object", Status: 400, Body: `{"error":{"code":131026,"error_data":"` + ana + `"}}`,
			Want: channels.Result{Outcome: notify.RecipientRejected, Code: "131026"},
		},
		{
			Name: "an error without a code", Status: 400, Body: `{"error":{"message":"no"}}`,
			Want: channels.Result{Outcome: notify.MessageRejected, HTTPStatus: 400},
		},
		{
			Name: "a code as long as a number", Status: 400, Body: `{"error":{"code":14155550100}}`,
			Want: channels.Result{Outcome: notify.MessageRejected, Detail: "http status 400"},
		},
		{
			Name: "404 of something else than Meta", Status: 404, Body: "<html>not here</html>",
			Want: channels.Result{Outcome: notify.AccountRejected, HTTPStatus: 404},
		},
		{
			Name: "Retry-After wins over the delay that is known", Status: 429, Header: http.Header{"Retry-After": {"9"}},
			Body: `{"error":{"code":131056}}`, Want: scoped(notify.Throttled, toMe, 9*time.Second),
		},
		{
			Name: "success without a message", Status: 200, Body: `{"messaging_product":"whatsapp","messages":[]}`,
			Want: channels.Result{Outcome: notify.Unknown, HTTPStatus: 200},
		},
		{
			Name: "success with an empty id", Status: 200, Body: `{"messages":[{"id":""}]}`,
			Want: channels.Result{Outcome: notify.Unknown, HTTPStatus: 200},
		},
		{
			Name: "an error in a success", Status: 200, Body: `{"error":{"code":131026}}`,
			Want: channels.Result{Outcome: notify.Unknown, HTTPStatus: 200},
		},
	}
}

func TestMetaPostsTextAndTemplates(t *testing.T) {
	type object = map[string]any
	text := func(s string) object { return object{"type": "text", "text": s} }
	body := func(parameters ...any) []any { return []any{object{"type": "body", "parameters": parameters}} }
	numbered := map[string]string{}
	var inOrder []any
	for i := 1; i <= 11; i++ {
		numbered[strconv.Itoa(i)] = fmt.Sprintf("text %d", i)
		inOrder = append(inOrder, text(fmt.Sprintf("text %d", i)))
	}
	for _, c := range []struct {
		name    string
		message *channels.Message
		kind    string
		content object
	}{
		{"text", message(""), "text", object{"body": "Deploy failed\napi: 3 of 5 pods are down", "preview_url": true}},
		{
			"template alone", templated("hello_world", "", nil), "template",
			object{"name": "hello_world", "language": object{"code": "en_US"}},
		},
		{
			"numbered variables in order", templated("order_shipped", "pt_BR", numbered), "template",
			object{"name": "order_shipped", "language": object{"code": "pt_BR"}, "components": body(inOrder...)},
		},
		{
			"named variables", templated("order_shipped", "de", map[string]string{"name": "Ana", "city": "Köln <3"}), "template",
			object{"name": "order_shipped", "language": object{"code": "de"}, "components": body(
				object{"type": "text", "parameter_name": "city", "text": "Köln <3"},
				object{"type": "text", "parameter_name": "name", "text": "Ana"},
			)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := capture(t, metaAccepts, func(baseURL string) channels.Provider {
				cfg := metaConfig(baseURL + "/meta/")
				cfg.PreviewURL, cfg.Version = true, "v23.0"
				return newMeta(t, cfg)
			}, c.message)
			want := received{
				path: "POST /meta/v23.0/" + numberID + "/messages", authorization: "Bearer " + accessToken,
				contentType: "application/json",
				json: object{
					"messaging_product": "whatsapp", "recipient_type": "individual", "to": ana,
					"biz_opaque_callback_data": c.message.Ref.String(), "type": c.kind, c.kind: c.content,
				},
			}
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(received{})); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMetaChecksTextAndTemplate(t *testing.T) {
	long := strings.Repeat("é", 4097)
	with := func(pairs ...string) notify.Content {
		variables := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			variables[pairs[i]] = pairs[i+1]
		}
		return templated("order_shipped", "", variables).Content
	}
	for _, c := range []struct {
		name    string
		content notify.Content
		field   string
	}{
		{"a text", notify.Content{Body: "hello"}, ""},
		{"the longest text", notify.Content{Body: long[2:]}, ""},
		{"no text", notify.Content{}, "/content/whatsapp/body"},
		{"own text too long", notify.Content{WhatsApp: &notify.WhatsAppContent{Body: long}}, "/content/whatsapp/body"},
		{"numbered variables", with("1", "a", "2", "b"), ""},
		{"named variables", with("name", "a", "city", "b"), ""},
		{"a template of twilio", templated(templateSID, "", nil).Content, templateName},
		{"a gap", with("1", "a", "3", "b"), templateVariables},
		{"not from one", with("0", "a", "1", "b"), templateVariables},
		{"another way to write one", with("01", "a"), templateVariables},
		{"numbers and names", with("1", "a", "name", "b"), templateVariables},
		{"an empty text", with("1", ""), templateVariables},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantField(t, newMeta(t, metaConfig("")).Check(&channels.Message{Content: c.content}), c.field)
		})
	}
}

func TestNewMetaReportsEveryProblemByItsKey(t *testing.T) {
	_, err := NewMeta("meta-main", MetaConfig{PhoneNumberID: "+hunter2", Version: "25", BaseURL: "https://hunter2@graph.facebook.com"})
	wantProblems(t, err, "phone_number_id", "access_token", "version", "base_url")
	cfg := metaConfig("")
	cfg.VerifyToken = secret.New("hunter2")
	_, err = NewMeta("meta-main", cfg)
	wantProblems(t, err, "verify_token", "app_secret")
}

func TestMetaCallsTheCurrentVersionByDefault(t *testing.T) {
	if p := newMeta(t, metaConfig("")); p.url != "https://graph.facebook.com/v25.0/"+numberID+"/messages" {
		t.Errorf("url %s", p.url)
	}
}

func TestAPrintedProviderShowsNoToken(t *testing.T) {
	if text := fmt.Sprintf("%+v", newMeta(t, metaConfig(""))); strings.Contains(text, accessToken) {
		t.Error(text)
	}
}

func TestConfigsReadTheirYAML(t *testing.T) {
	var meta MetaConfig
	decode(t, "phone_number_id: 106540352242922\naccess_token: t0k3n\nversion: v24.0\npreview_url: true\nbase_url: http://127.0.0.1:8090\napp_secret: s3cr3t\n"+
		"verify_token: t0k3n-2\nmarketing_stops: true\n", &meta)
	if !meta.MarketingStops || meta.AppSecret.Reveal() != "s3cr3t" || meta.VerifyToken.Reveal() != "t0k3n-2" {
		t.Errorf("config %+v", meta)
	}
	if meta.PhoneNumberID != numberID || meta.AccessToken.Reveal() != "t0k3n" || meta.Version != "v24.0" || !meta.PreviewURL {
		t.Errorf("config %+v", meta)
	}
	var twilio TwilioConfig
	decode(t, "account_sid: "+accountSID+"\napi_key_sid: SK0123456789abcdef0123456789abcdef\napi_key_secret: t0k3n\nfrom: +14155238886\n", &twilio)
	if newTwilio(t, twilio).from != "whatsapp:+14155238886" {
		t.Errorf("config %+v", twilio)
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	if err := dec.Decode(into); err != nil {
		t.Fatal(err)
	}
}

func FuzzMetaResultNeedsAnIDForSuccessAndTellsNoSecret(f *testing.F) {
	for _, body := range []string{
		"", "{}", `{"messages":[{"id":"wamid.1"}]}`, `{"messages":[{"id":""}]}`, `{"messages":[{"id":1}]}`, `{"messages":[]}`,
		`{"error":{"code":131026,"message":"+14155550100"}}`, `{"error":{"code":14155550100}}`, `{"error":"+14155550100"}`,
		`{"error":{"code":100,"error_data":{"details":"recipient +14155550100"}}}`, "<html>+14155550100</html>",
	} {
		f.Add(200, body)
		f.Add(400, body)
		f.Add(500, body)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		x := channels.Exchange{Status: status, Header: http.Header{}, Body: []byte(body), Wrote: true}
		r := metaResult(t.Context(), x, notify.Target{Phone: ana})
		if r.Outcome == notify.Accepted {
			if status/100 != 2 || r.MessageID == "" || !json.Valid([]byte(body)) {
				t.Errorf("accepted without proof: status %d, %q", status, body)
			}
			return // the id is the vendor's own
		}
		channeltest.CheckResult(t, r, []string{ana})
	})
}
