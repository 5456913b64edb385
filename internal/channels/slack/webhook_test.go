package slack

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	hookPathText = "/services/T0123/B0456/hooksecrettext"
	hookURL      = "https://hooks.slack.com" + hookPathText
)

func hookMessage() *channels.Message {
	m := botMessage()
	m.To.Slack = &notify.SlackTarget{WebhookURL: hookURL}
	return m
}

func newHook(t *testing.T, cfg WebhookConfig) *Webhook {
	t.Helper()
	w, err := NewWebhook("slack-hooks", cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.client.CloseIdleConnections)
	return w
}

func hookTable() []channeltest.Case {
	type row struct {
		status  int
		outcome notify.Outcome
		dead    bool
	}
	rows := map[string]row{
		"invalid_payload":      {400, notify.MessageRejected, false},
		"invalid_blocks":       {400, notify.MessageRejected, false},
		"no_text":              {400, notify.MessageRejected, false},
		"too_many_attachments": {400, notify.MessageRejected, false},
		"missing_text_or_fallback_or_attachments": {400, notify.MessageRejected, false},
		"user_not_found":                    {400, notify.RecipientRejected, false},
		"action_prohibited":                 {403, notify.RecipientRejected, false},
		"posting_to_general_channel_denied": {403, notify.RecipientRejected, false},
		"invalid_token":                     {403, notify.RecipientRejected, true},
		"channel_not_found":                 {404, notify.RecipientRejected, false},
		"no_service":                        {404, notify.RecipientRejected, true},
		"no_active_hooks":                   {404, notify.RecipientRejected, true},
		"channel_is_archived":               {410, notify.RecipientRejected, false},
		"service_unavailable":               {503, notify.ProviderUnavailable, false},
		"rollup_error":                      {500, notify.Unknown, false},
		"an_error_of_next_year":             {400, notify.MessageRejected, false},
	}
	var table []channeltest.Case
	for name, r := range rows {
		table = append(table, channeltest.Case{
			Name: name, Status: r.status, Body: name,
			Want: channels.Result{Outcome: r.outcome, HTTPStatus: r.status, Code: name, Suppress: r.dead},
		})
	}
	return append(table, channeltest.Case{
		Name: "429", Status: 429, Header: http.Header{"Retry-After": {"30"}}, Body: "rate_limited",
		Want: channels.Result{
			Outcome: notify.Throttled, RetryAfter: 30 * time.Second, HTTPStatus: 429, Code: "rate_limited", Scope: hookScope(hookURL),
		},
	}, channeltest.Case{
		Name: "a known text with status 200", Status: 200, Body: "no_text",
		Want: channels.Result{Outcome: notify.MessageRejected, HTTPStatus: 200, Code: "no_text"},
	})
}

func acceptHook(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") }

func TestWebhookPassesTheSuite(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		New: func(t *testing.T, baseURL string) channels.Provider {
			t.Helper()
			return newHook(t, WebhookConfig{BaseURL: baseURL})
		},
		Message:   func(string) *channels.Message { return hookMessage() },
		Accept:    acceptHook,
		Want:      channels.Result{Outcome: notify.Accepted, Status: notify.Sent, HTTPStatus: 200},
		Table:     hookTable(),
		Secrets:   []string{hookURL, hookPathText, "hooksecrettext"},
		Ambiguous: true,
	})
}

func TestWebhookRequest(t *testing.T) {
	got, base := newCapture(t, "ok")
	w := newHook(t, WebhookConfig{BaseURL: base + "/slack/"})
	m := hookMessage()
	m.Content.Body = "a <!channel> & *b*\nдва"
	m.Content.Slack = &notify.SlackContent{Blocks: jsontext.Value(`[{"type":"divider","of":"next year"}]`)}
	if r := w.Send(t.Context(), m); r.Outcome != notify.Accepted {
		t.Fatalf("outcome %q: %s", r.Outcome, r.Detail)
	}
	if want := "/slack" + hookPathText; got.path != want {
		t.Errorf("path %q, want %q", got.path, want)
	}
	if ct := got.head.Get("Content-Type"); ct != "application/json; charset=utf-8" {
		t.Errorf("content type %q", ct)
	}
	var body map[string]any
	if err := json.Unmarshal([]byte(got.body), &body); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"text":   "Deploy failed\na &lt;!channel&gt; &amp; *b*\nдва",
		"blocks": []any{map[string]any{"type": "divider", "of": "next year"}},
		"mrkdwn": false, "unfurl_links": false, "unfurl_media": false,
	}
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
}

func TestWebhookServesTheAccountsOwnURL(t *testing.T) {
	got, base := newCapture(t, "ok")
	w := newHook(t, WebhookConfig{BaseURL: base, WebhookURL: secret.New(hookURL), Channel: "#ops"})
	for name, target := range map[string]notify.SlackTarget{
		"for a target that names nothing":     {},
		"for a target that names its channel": {Channel: "#ops"},
	} {
		t.Run(name, func(t *testing.T) {
			m := hookMessage()
			m.To.Slack = &target
			got.path = ""
			if r := w.Send(t.Context(), m); r.Outcome != notify.Accepted || got.path != hookPathText {
				t.Errorf("outcome %q on path %q: %s", r.Outcome, got.path, r.Detail)
			}
		})
	}
	t.Run("not for another channel", func(t *testing.T) {
		m := hookMessage()
		m.To.Slack = &notify.SlackTarget{Channel: "#random"}
		got.path = ""
		if r := w.Send(t.Context(), m); r.Outcome != notify.RecipientRejected || got.path != "" {
			t.Errorf("outcome %q on path %q", r.Outcome, got.path)
		}
	})
}

func TestWebhookTakesItsOwnDeadURLForTheAccountsFault(t *testing.T) {
	_, base := newCapture(t, "no_service")
	w := newHook(t, WebhookConfig{BaseURL: base, WebhookURL: secret.New(hookURL)})
	m := hookMessage()
	m.To.Slack = &notify.SlackTarget{}
	r := w.Send(t.Context(), m)
	if r.Outcome != notify.AccountRejected || r.Suppress {
		t.Errorf("outcome %q, suppress %t", r.Outcome, r.Suppress)
	}
}

func TestWebhookCallsSlackOnly(t *testing.T) {
	w := newHook(t, WebhookConfig{})
	for raw, want := range map[string]bool{
		hookURL: true,
		"https://hooks.slack-gov.com/services/T0/B0/x":         true,
		"https://HOOKS.slack.com/services/T0/B0/x":             true,
		"http://hooks.slack.com/services/T0/B0/x":              false,
		"https://hooks.slack.com:8443/services/T/B/x":          false,
		"https://hooks.slack.com.example.com/services/T0/B0/x": false,
		"https://example.com/services/T0/B0/x":                 false,
		"https://169.254.169.254/services/T0/B0/x":             false,
		"https://u@hooks.slack.com/services/T0/B0/x":           false,
		"https://hooks.slack.com@example.com/services/T0/B0/x": false,
		"https://hooks.slack.com/services/../api/T0":           false,
		"https://hooks.slack.com/services/%2e%2e/T0/B0":        false,
		"https://hooks.slack.com/services/T0/B0/x?y=z":         false,
		"https://hooks.slack.com/api/chat.postMessage":         false,
		"ftp://hooks.slack.com/services/T0/B0/x":               false,
		"hooks.slack.com/services/T0/B0/x":                     false,
		"https://hooks.slack.com/services/T0/B0/x\r\nX: y":     false,
	} {
		m := hookMessage()
		m.To.Slack.WebhookURL = raw
		if err := w.Check(m); (err == nil) != want {
			t.Errorf("%q: Check says %v", raw, err)
		}
		if !want {
			if r := w.Send(t.Context(), m); r.Outcome != notify.RecipientRejected {
				t.Errorf("%q: Send says %q", raw, r.Outcome)
			}
		}
	}
}

func TestNewWebhookReportsEverySetting(t *testing.T) {
	_, err := NewWebhook("slack-hooks", WebhookConfig{WebhookURL: secret.New("https://example.com/hunter2"), BaseURL: "here"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"slack-hooks", "webhook_url:", "base_url:"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %q lacks %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %q discloses the URL", err)
	}
	if _, err := NewWebhook("slack-hooks", WebhookConfig{Channel: "#ops"}); err == nil || !strings.Contains(err.Error(), "channel:") {
		t.Errorf("a channel without webhook_url: %v", err)
	}
}
