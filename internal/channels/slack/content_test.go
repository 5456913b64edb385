package slack

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestCheckNamesTheField(t *testing.T) {
	bot := newBot(t, "")
	hook := newHook(t, WebhookConfig{})
	blocks := func(b string) func(*channels.Message) {
		return func(m *channels.Message) { m.Content.Slack = &notify.SlackContent{Blocks: jsontext.Value(b)} }
	}
	tests := []struct {
		name   string
		change func(*channels.Message)
		want   string
	}{
		{"a message that is right", func(*channels.Message) {}, ""},
		{"40,000 characters", func(m *channels.Message) { m.Content = notify.Content{Body: strings.Repeat("é", 40_000)} }, ""},
		{"40,001 characters", func(m *channels.Message) { m.Content = notify.Content{Body: strings.Repeat("é", 40_001)} }, "/content/body"},
		{"40,001 characters for slack", func(m *channels.Message) {
			m.Content.Slack = &notify.SlackContent{Text: strings.Repeat("é", 40_001)}
		}, "/content/slack/text"},
		{"nothing to say", func(m *channels.Message) { m.Content = notify.Content{} }, "/content/slack/text"},
		{"blocks alone", func(m *channels.Message) {
			m.Content = notify.Content{Slack: &notify.SlackContent{Blocks: jsontext.Value(`[{"type":"divider"}]`)}}
		}, ""},
		{"no blocks", blocks(`null`), ""},
		{"50 blocks", blocks("[" + strings.Repeat(`{"type":"divider"},`, 49) + `{"type":"divider"}]`), ""},
		{"51 blocks", blocks("[" + strings.Repeat(`{"type":"divider"},`, 50) + `{"type":"divider"}]`), "/content/slack/blocks"},
		{"an empty array", blocks(`[]`), "/content/slack/blocks"},
		{"an object", blocks(`{"type":"divider"}`), "/content/slack/blocks"},
		{"a block without a type", blocks(`[{"type":"divider"},{"text":"x"}]`), "/content/slack/blocks"},
		{"a block that is no object", blocks(`["divider"]`), "/content/slack/blocks"},
		{"a type that is no string", blocks(`[{"type":1}]`), "/content/slack/blocks"},
		{"half an array", blocks(`[{"type":"divider"}`), "/content/slack/blocks"},
		{"two arrays", blocks(`[{"type":"divider"}][]`), "/content/slack/blocks"},
		{"a wrong thread", func(m *channels.Message) {
			m.Content.Slack = &notify.SlackContent{Text: "x", Thread: "last week"}
		}, "/content/slack/thread"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := botMessage()
			tt.change(m)
			wantField(t, bot.Check(m), tt.want)
			if tt.want != "" {
				if r := bot.Send(t.Context(), m); r.Outcome != notify.MessageRejected {
					t.Errorf("Send says %q", r.Outcome)
				}
			}
		})
	}
	t.Run("a webhook cannot reply", func(t *testing.T) {
		m := hookMessage()
		m.Content.Slack = &notify.SlackContent{Text: "x", Thread: "1712345678.000100"}
		wantField(t, hook.Check(m), "/content/slack/thread")
	})
	t.Run("a bot does not serve webhooks", func(t *testing.T) { wantField(t, bot.Check(hookMessage()), "/to/slack") })
	t.Run("webhooks do not serve channels", func(t *testing.T) { wantField(t, hook.Check(botMessage()), "/to/slack") })
	t.Run("neither serves no target", func(t *testing.T) {
		m := botMessage()
		m.To.Slack = nil
		wantField(t, bot.Check(m), "/to/slack")
		wantField(t, hook.Check(m), "/to/slack")
	})
}

func wantField(t *testing.T, err error, field string) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Errorf("Check says %v", err)
		}
		return
	}
	ce, ok := errors.AsType[*channels.CheckError](err)
	if !ok || ce.Field != field {
		t.Errorf("Check says %v, want the field %s", err, field)
	}
}

func FuzzCheckBlocks(f *testing.F) {
	for _, s := range []string{"", "[", `[{"type":"divider"}]`, `[{"type":"a","type":"b"}]`, `[[[[`, "null", "\xff"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if checkBlocks(b) == nil && !jsontext.Value(b).IsValid() {
			t.Errorf("%q passes and is no JSON", b)
		}
	})
}
