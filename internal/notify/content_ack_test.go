package notify_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// everywhere has the placeholder in each text that a person may get to see.
func everywhere() notify.Content {
	const p = "see " + notify.AckPlaceholder + " now"
	value := jsontext.Value(`{"button":{"url":"` + notify.AckPlaceholder + `"}}`)
	return notify.Content{
		Title: p, Body: p, Data: value,
		Push:     &notify.PushContent{Title: p, Body: p, Data: value},
		SMS:      &notify.SMSContent{Body: p},
		WhatsApp: &notify.WhatsAppContent{Body: p, Template: &notify.WhatsAppTemplate{Name: "t", Variables: map[string]string{"1": p}}},
		Email: &notify.EmailContent{
			Subject: p, Text: p, HTML: `<a href="` + notify.AckPlaceholder + `">ok</a>`,
			Attachments: []notify.Attachment{{Filename: "a", Content: []byte(notify.AckPlaceholder)}},
		},
		Slack:   &notify.SlackContent{Text: p, Blocks: jsontext.Value(`[{"url":"` + notify.AckPlaceholder + `"}]`)},
		Webhook: &notify.WebhookContent{Payload: value},
	}
}

func TestTheAckLinkIsPutIntoEveryText(t *testing.T) {
	t.Parallel()
	const link = "https://n.example.com/a/x-Y_9"
	before := everywhere()
	after := before.WithAckURL(link)
	if !reflect.DeepEqual(before, everywhere()) {
		t.Error("the content that was given has changed")
	}
	text, err := json.Marshal(after)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(string(text), link); got != 15 {
		t.Errorf("the link stands in %d places, want 15: %s", got, text)
	}
	if strings.Contains(string(text), "ack_url") {
		t.Errorf("a placeholder is left: %s", text)
	}
	if string(after.Email.Attachments[0].Content) != notify.AckPlaceholder {
		t.Error("an attachment was changed")
	}
}

func TestContentAsksForAckWhereverThePlaceholderStands(t *testing.T) {
	t.Parallel()
	if (notify.Content{Title: "t", Body: "{{other}}", Data: jsontext.Value(`{}`)}).AsksForAck() {
		t.Error("asks without a placeholder")
	}
	// Every field alone is enough, those inside of a channel's part too: what remains
	// of the whole when one place after the other is filled must ask until the last.
	text, err := json.Marshal(everywhere())
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(text), notify.AckPlaceholder)
	for i := 1; i < len(parts); i++ {
		one := strings.Join(parts[:i], "x") + notify.AckPlaceholder + strings.Join(parts[i:], "x")
		var c notify.Content
		if err := json.Unmarshal([]byte(one), &c); err != nil {
			t.Fatal(err)
		}
		if !c.AsksForAck() {
			t.Errorf("does not ask: %s", one)
		}
	}
	if len(parts)-1 != 15 {
		t.Errorf("%d places were tried, want all 15", len(parts)-1)
	}
}

func TestToAskForAckCopiesNothing(t *testing.T) {
	c := everywhere().WithAckURL("https://n.example.com/a/x")
	if n := testing.AllocsPerRun(100, func() { c.AsksForAck() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
