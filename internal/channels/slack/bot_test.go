package slack

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	testToken   = "xoxb-1111-2222-tokentext"
	testChannel = "C0123ABCDEF"
)

func botMessage() *channels.Message {
	return &channels.Message{
		Key:     uuid.MustParse("0193b0c0-0000-5000-8000-000000000001"),
		To:      notify.Target{Slack: &notify.SlackTarget{Channel: testChannel}},
		Content: notify.Content{Title: "Deploy failed", Body: "3 of 5 pods are down"},
	}
}

func newBot(t *testing.T, baseURL string) *Bot {
	t.Helper()
	b, err := NewBot("slack-main", BotConfig{Token: secret.New(testToken), BaseURL: baseURL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

// apiTable is every error string that is documented, with what it leads to.
func apiTable() []channeltest.Case {
	byOutcome := map[notify.Outcome][]string{
		notify.ProviderUnavailable: {"service_unavailable", "request_timeout", "team_added_to_org", "org_login_required"},
		notify.Unknown:             {"fatal_error", "internal_error"},
		notify.RecipientRejected: {
			"channel_not_found", "is_archived", "user_not_found", "messages_tab_disabled", "duplicate_channel_not_found",
			"channel_type_not_supported", "not_in_channel", "restricted_action", "restricted_action_read_only_channel",
			"restricted_action_thread_only_channel", "restricted_action_non_threadable_channel", "restricted_action_thread_locked",
			"ekm_access_denied", "cannot_reply_to_message", "no_permission", "app_access_restricted",
		},
		notify.AccountRejected: {
			"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired", "missing_scope",
			"not_allowed_token_type", "two_factor_setup_required", "access_denied", "accesslimited",
			"enterprise_is_restricted", "team_not_found", "method_deprecated", "deprecated_endpoint", "unknown_method",
		},
		notify.MessageRejected: {
			"no_text", "msg_too_long", "msg_blocks_too_long", "invalid_blocks", "invalid_blocks_format", "too_many_attachments",
			"attachment_payload_limit_exceeded", "metadata_too_large", "markdown_text_conflict", "invalid_form_data",
			"invalid_charset", "invalid_json", "invalid_arguments", "an_error_of_next_year",
		},
	}
	var table []channeltest.Case
	for outcome, names := range byOutcome {
		for _, name := range names {
			table = append(table, channeltest.Case{
				Name: name, Status: 200, Body: `{"ok":false,"error":"` + name + `"}`,
				Want: channels.Result{Outcome: outcome, HTTPStatus: 200, Code: name},
			})
		}
	}
	return append(table, throttles()...)
}

func throttles() []channeltest.Case {
	channel := channelScope(notify.Target{Slack: &notify.SlackTarget{Channel: testChannel}})
	after := func(v string) http.Header { return http.Header{"Retry-After": {v}} }
	limited := `{"ok":false,"error":"ratelimited"}`
	return []channeltest.Case{
		{
			Name: "ratelimited is the method's", Status: 200, Body: limited,
			Want: channels.Result{Outcome: notify.Throttled, Code: "ratelimited", Scope: "chat.postMessage"},
		},
		{
			Name: "ratelimited with status 200 and a time", Status: 200, Header: after("7"), Body: limited,
			Want: channels.Result{Outcome: notify.Throttled, RetryAfter: 7 * time.Second, Scope: "chat.postMessage"},
		},
		{
			Name: "rate_limited is the conversation's", Status: 200, Body: `{"ok":false,"error":"rate_limited"}`,
			Want: channels.Result{Outcome: notify.Throttled, Code: "rate_limited", Scope: channel},
		},
		{
			Name: "message_limit_exceeded is the workspace's, for an hour", Status: 200, Body: `{"ok":false,"error":"message_limit_exceeded"}`,
			Want: channels.Result{Outcome: notify.Throttled, RetryAfter: time.Hour},
		},
		{
			Name: "429 with seconds", Status: 429, Header: after("30"), Body: limited,
			Want: channels.Result{Outcome: notify.Throttled, RetryAfter: 30 * time.Second, HTTPStatus: 429, Scope: "chat.postMessage"},
		},
		{
			Name: "429 with an unknown error", Status: 429, Header: after("30"), Body: `{"ok":false,"error":"slow_down"}`,
			Want: channels.Result{Outcome: notify.Throttled, RetryAfter: 30 * time.Second, Code: "slow_down", Scope: "chat.postMessage"},
		},
		{
			Name: "429 with a negative time", Status: 429, Header: after("-5"), Body: limited,
			Want: channels.Result{Outcome: notify.Throttled, Scope: "chat.postMessage"},
		},
		{
			Name: "429 with a fraction", Status: 429, Header: after("1.5"), Body: limited,
			Want: channels.Result{Outcome: notify.Throttled, Scope: "chat.postMessage"},
		},
	}
}

func TestBotPassesTheSuite(t *testing.T) {
	table := append(
		apiTable(),
		channeltest.Case{
			Name: "ok false without an error", Status: 200, Body: `{"ok":false}`,
			Want: channels.Result{Outcome: notify.Unknown},
		},
		channeltest.Case{
			Name: "ok without a ts", Status: 200, Body: `{"ok":true,"channel":"C0123ABCDEF"}`,
			Want: channels.Result{Outcome: notify.Unknown},
		},
		channeltest.Case{
			Name: "a known error with status 503", Status: 503, Body: `{"ok":false,"error":"service_unavailable"}`,
			Want: channels.Result{Outcome: notify.ProviderUnavailable, HTTPStatus: 503, Code: "service_unavailable"},
		},
		channeltest.Case{
			Name: "an unknown error with status 500", Status: 500, Body: `{"ok":false,"error":"odd"}`,
			Want: channels.Result{Outcome: notify.Unknown, HTTPStatus: 500, Code: "odd"},
		},
		channeltest.Case{Name: "403 page", Status: 403, Body: "<html>", Want: channels.Result{Outcome: notify.AccountRejected}},
		channeltest.Case{Name: "404 page", Status: 404, Body: "<html>", Want: channels.Result{Outcome: notify.MessageRejected}},
	)
	channeltest.Run(t, channeltest.Suite{
		New:     func(t *testing.T, baseURL string) channels.Provider { t.Helper(); return newBot(t, baseURL) },
		Message: func(string) *channels.Message { return botMessage() },
		Accept: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"ok":true,"channel":"C0123ABCDEF","ts":"1712345678.000100","message":{"text":"…"}}`)
		},
		Want:      channels.Result{Outcome: notify.Accepted, Status: notify.Sent, MessageID: "1712345678.000100", HTTPStatus: 200},
		Table:     table,
		Secrets:   []string{testToken, testChannel},
		Ambiguous: true,
	})
}

// capture is a Slack that takes everything and keeps the last request.
type capture struct {
	path string
	head http.Header
	body string
}

func newCapture(t *testing.T, answer string) (*capture, string) {
	t.Helper()
	c := new(capture)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler)
		}
		c.path, c.head, c.body = r.URL.Path, r.Header.Clone(), string(b)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(srv.Close)
	return c, srv.URL
}

func TestBotRequest(t *testing.T) {
	got, base := newCapture(t, `{"ok":true,"ts":"1.2"}`)
	b := newBot(t, base+"/api")
	blocks := `[{"type":"section","text":{"type":"mrkdwn","text":"*hi*"}},{"type":"kind_of_next_year","x":[1,{"y":null}]}]`

	tests := []struct {
		name   string
		change func(*channels.Message)
		want   url.Values
	}{
		{
			"title and body are plain text", func(m *channels.Message) { m.Content.Body = "a <!channel> & *b*\nzweite Zeile 🎉" },
			url.Values{"text": {"Deploy failed\na &lt;!channel&gt; &amp; *b*\nzweite Zeile 🎉"}, "mrkdwn": {"false"}},
		},
		{
			"a text for slack is mrkdwn", func(m *channels.Message) { m.Content.Slack = &notify.SlackContent{Text: "<!here> *b*"} },
			url.Values{"text": {"<!here> *b*"}},
		},
		{
			"blocks go through as they are", func(m *channels.Message) {
				m.Content.Slack = &notify.SlackContent{Text: "short", Blocks: jsontext.Value(blocks)}
			},
			url.Values{"text": {"short"}, "blocks": {blocks}},
		},
		{
			"a reply names its thread", func(m *channels.Message) {
				m.Content.Slack = &notify.SlackContent{Text: "re", Thread: "1712345678.000100"}
			},
			url.Values{"text": {"re"}, "thread_ts": {"1712345678.000100"}},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := botMessage()
			tt.change(m)
			if r := b.Send(t.Context(), m); r.Outcome != notify.Accepted {
				t.Fatalf("outcome %q: %s", r.Outcome, r.Detail)
			}
			if got.path != "/api/chat.postMessage" {
				t.Errorf("path %q", got.path)
			}
			form, err := url.ParseQuery(got.body)
			if err != nil {
				t.Fatal(err)
			}
			tt.want["token"], tt.want["channel"] = []string{testToken}, []string{testChannel}
			tt.want["unfurl_links"], tt.want["unfurl_media"] = []string{"false"}, []string{"false"}
			tt.want["metadata"] = []string{`{"event_type":"dispatcher","event_payload":{"key":"` + m.Key.String() + `"}}`}
			if diff := cmp.Diff(tt.want, form); diff != "" {
				t.Errorf("form (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBotScopesHoldNoAddress(t *testing.T) {
	b := newBot(t, "")
	m := botMessage()
	scopes := b.Scopes(m.To)
	if len(scopes) != 2 || scopes[0] != "chat.postMessage" || !strings.HasPrefix(scopes[1], "channel:") {
		t.Errorf("scopes %q", scopes)
	}
	if strings.Contains(strings.Join(scopes, " "), testChannel) {
		t.Errorf("scopes %q hold the channel", scopes)
	}
}

func TestNewBotReportsEverySetting(t *testing.T) {
	_, err := NewBot("slack-main", BotConfig{BaseURL: "ftp://user:hunter2@example.com"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"slack-main", "token:", "base_url:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %q discloses a password", err)
	}
}

// FuzzAnswer: without Slack's own proof no answer makes a message accepted, and
// none is kept that could hold what was sent.
func FuzzAnswer(f *testing.F) {
	f.Add(200, `{"ok":true,"ts":"1712345678.000100"}`)
	f.Add(200, `{"ok":true,"ts":1}`)
	f.Add(200, `{"ok":false,"error":"ratelimited","ts":"1.2"}`)
	f.Add(429, `ratelimited`)
	f.Add(500, "ok")
	f.Add(0, "")
	b, err := NewBot("slack-main", BotConfig{Token: secret.New(testToken)})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, status int, body string) {
		x := channels.Exchange{Status: status, Header: http.Header{"Retry-After": {body}}, Body: []byte(body), Wrote: true}
		r := b.result(t.Context(), botMessage(), x)
		if r.Outcome == notify.Accepted && (status != 200 || r.MessageID == "" || !strings.Contains(body, "ts")) {
			t.Errorf("%d %q of a bot is %+v", status, body, r)
		}
		h := hookResult(t.Context(), x, "webhook:0")
		if h.Outcome == notify.Accepted && (status != 200 || strings.TrimSpace(body) != "ok") {
			t.Errorf("%d %q of a webhook is %+v", status, body, h)
		}
		for _, r := range []channels.Result{r, h} {
			if !r.Outcome.Valid() || r.RetryAfter < 0 || r.Code != "" && !codePattern.MatchString(r.Code) {
				t.Errorf("%d %q is %+v", status, body, r)
			}
		}
	})
}
