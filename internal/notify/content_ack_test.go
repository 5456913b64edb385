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
	// Every field alone is enough.
	whole := reflect.ValueOf(everywhere())
	for i := range whole.NumField() {
		var one notify.Content
		reflect.ValueOf(&one).Elem().Field(i).Set(whole.Field(i))
		if !one.AsksForAck() {
			t.Errorf("%s does not ask", whole.Type().Field(i).Name)
		}
	}
}
