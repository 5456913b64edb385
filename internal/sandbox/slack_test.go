package sandbox_test

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/slack-go/slack"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

func slackClient(s *sandbox.Server, token string) *slack.Client {
	return slack.New(token, slack.OptionAPIURL(s.HTTPURL()+"/api/"))
}

func TestSlackPostsThroughTheVendorsAPI(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	c := slackClient(s, "xoxb-1")
	blocks := slack.MsgOptionBlocks(slack.NewSectionBlock(slack.NewTextBlockObject("mrkdwn", "in a block", false, false), nil, nil))
	channel, first, err := c.PostMessageContext(t.Context(), "#ops", slack.MsgOptionText("one", false))
	if err != nil || channel != "COPS" {
		t.Fatalf("posted to %q: %v", channel, err)
	}
	_, second, err := c.PostMessageContext(t.Context(), "C012AB3CD", blocks)
	if err != nil {
		t.Fatal(err)
	}
	if first == second {
		t.Error("two messages have one time stamp")
	}
	if m := last(t, s); m.To != "C012AB3CD" || m.Text != "in a block" || m.Answer.ID != second {
		t.Errorf("recorded %+v", m)
	}
	who, err := c.AuthTestContext(t.Context())
	if err != nil || who.Team != "Sandbox" {
		t.Errorf("auth.test: %+v %v", who, err)
	}
}

func TestSlackHistoryShowsWhatWasPostedThere(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	c := slackClient(s, "xoxb-1")
	var stamps []string
	for _, text := range []string{"one", "two", "three"} {
		_, ts, err := c.PostMessageContext(t.Context(), "ops", slack.MsgOptionText(text, false),
			slack.MsgOptionMetadata(slack.SlackMetadata{EventType: "sent", EventPayload: map[string]any{"key": text}}))
		if err != nil {
			t.Fatal(err)
		}
		stamps = append(stamps, ts)
	}
	if _, _, err := c.PostMessageContext(t.Context(), "elsewhere", slack.MsgOptionText("four", false)); err != nil {
		t.Fatal(err)
	}
	h, err := c.GetConversationHistoryContext(t.Context(), &slack.GetConversationHistoryParameters{
		ChannelID: "COPS", Oldest: stamps[0], Limit: 10, IncludeAllMetadata: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(h.Messages) != 2 || h.HasMore || h.Messages[0].Text != "three" || h.Messages[1].Timestamp != stamps[1] ||
		h.Messages[0].Metadata.EventPayload["key"] != "three" {
		t.Errorf("history %+v", h.Messages)
	}
	if h, err = c.GetConversationHistoryContext(t.Context(), &slack.GetConversationHistoryParameters{ChannelID: "ops", Limit: 1}); err != nil || !h.HasMore {
		t.Errorf("a page of one: %+v %v", h, err)
	}
}

func TestSlackRefusesInItsOwnWords(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	c := slackClient(s, "xoxb-1")
	for channel, want := range map[string]string{"": "channel_not_found", "archived": "is_archived", "#archived-7": "is_archived"} {
		_, _, err := c.PostMessageContext(t.Context(), channel, slack.MsgOptionText("x", false))
		if err == nil || err.Error() != want {
			t.Errorf("channel %q: %v, want %s", channel, err, want)
		}
	}
	if _, _, err := c.PostMessageContext(t.Context(), "ops"); err == nil || err.Error() != "no_text" {
		t.Errorf("nothing to say: %v", err)
	}
	if _, _, err := slackClient(s, "bad").PostMessageContext(t.Context(), "ops", slack.MsgOptionText("x", false)); err == nil || err.Error() != "invalid_auth" {
		t.Errorf("a token that is none: %v", err)
	}
	if a := send(t, http.MethodPost, s.HTTPURL()+"/api/chat.postMessage", `{`, "Authorization", "Bearer xoxb-1", "Content-Type", "application/json"); a.json(t)["error"] != "invalid_json" {
		t.Errorf("broken JSON: %s", a.body)
	}
	var limited *slack.RateLimitedError
	_, _, err := c.PostMessageContext(t.Context(), "ratelimited", slack.MsgOptionText("x", false))
	if !errors.As(err, &limited) || limited.RetryAfter != 2*time.Second {
		t.Errorf("first try: %v", err)
	}
	if _, _, err := c.PostMessageContext(t.Context(), "ratelimited", slack.MsgOptionText("x", false)); err != nil {
		t.Errorf("second try: %v", err)
	}
}

func TestSlackWebhooksAnswerOK(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	target := s.HTTPURL() + "/services/T1/B1/abc"
	if err := slack.PostWebhookContext(t.Context(), target, &slack.WebhookMessage{Text: "hi"}); err != nil {
		t.Fatal(err)
	}
	if m := last(t, s); m.Provider != "slack-webhook" || m.To != target || m.Text != "hi" {
		t.Errorf("recorded %+v", m)
	}
	if a := send(t, http.MethodPost, target, `{}`); a.status != 400 || a.body != "no_text" {
		t.Errorf("nothing to say: %d %s", a.status, a.body)
	}
	if a := send(t, http.MethodPost, target, `payload=%7B%22text%22%3A%22form%22%7D`, "Content-Type", "application/x-www-form-urlencoded"); a.body != "ok" || last(t, s).Text != "form" {
		t.Errorf("a form: %d %s", a.status, a.body)
	}
}
