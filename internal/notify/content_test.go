package notify_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// said is what every channel would say of a content, a line each.
func said(c notify.Content) string {
	pushTitle, pushBody := c.PushText()
	subject, text, html := c.EmailParts()
	lines := []string{
		"push " + pushTitle + "/" + pushBody + "/" + string(c.PushData()), "sms " + c.SMSText(), "whatsapp " + c.WhatsAppText(),
		"email " + subject + "/" + text + "/" + html, "slack " + c.SlackText(),
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), "\n", "+")
}

func TestContentOfAChannelWinsOverTheCommonOne(t *testing.T) {
	title := notify.Content{Title: "T"}
	common := notify.Content{Title: "T", Body: "B", Data: jsontext.Value(`{"d":1}`)}
	with := func(change func(*notify.Content)) notify.Content {
		c := common
		change(&c)
		return c
	}
	own := with(func(c *notify.Content) {
		c.Push = &notify.PushContent{Title: "pt", Body: "pb", Data: jsontext.Value(`{"p":1}`)}
		c.SMS, c.WhatsApp = &notify.SMSContent{Body: "sb"}, &notify.WhatsAppContent{Body: "wb"}
		c.Email = &notify.EmailContent{Subject: "es", Text: "et", HTML: "eh"}
		c.Slack = &notify.SlackContent{Text: "st"}
	})
	tests := []struct {
		name    string
		content notify.Content
		want    string
	}{
		{"nothing", notify.Content{}, "push //; sms ; whatsapp ; email //; slack "},
		{"a title alone", title, "push T//; sms T; whatsapp T; email T//; slack T"},
		{"a body alone", notify.Content{Body: "B"}, "push /B/; sms B; whatsapp B; email /B/; slack B"},
		{"both, on lines of their own in plain text", common, `push T/B/{"d":1}; sms T+B; whatsapp T+B; email T/B/; slack T+B`},
		{"everything of the channels' own", own, `push pt/pb/{"p":1}; sms sb; whatsapp wb; email es/et/eh; slack st`},
		{
			"parts that are there and empty",
			with(func(c *notify.Content) {
				c.Push, c.SMS, c.WhatsApp = &notify.PushContent{}, &notify.SMSContent{}, &notify.WhatsAppContent{}
				c.Email, c.Slack = &notify.EmailContent{}, &notify.SlackContent{}
			}),
			`push T/B/{"d":1}; sms T+B; whatsapp T+B; email T/B/; slack T+B`,
		},
		{
			"a title or a subject alone leaves the common body",
			with(func(c *notify.Content) {
				c.Push, c.Email = &notify.PushContent{Title: "pt"}, &notify.EmailContent{Subject: "es"}
			}),
			`push pt/B/{"d":1}; sms T+B; whatsapp T+B; email es/B/; slack T+B`,
		},
		{
			"the body stands beside HTML for readers that show none",
			with(func(c *notify.Content) { c.Email = &notify.EmailContent{HTML: "eh"} }),
			`push T/B/{"d":1}; sms T+B; whatsapp T+B; email T/B/eh; slack T+B`,
		},
		{
			"a template has no free text",
			with(func(c *notify.Content) {
				c.WhatsApp = &notify.WhatsAppContent{Template: &notify.WhatsAppTemplate{Name: "t"}}
			}),
			`push T/B/{"d":1}; sms T+B; whatsapp ; email T/B/; slack T+B`,
		},
		{
			"blocks leave the common text for the notification",
			with(func(c *notify.Content) { c.Slack = &notify.SlackContent{Blocks: jsontext.Value(`[{}]`)} }),
			`push T/B/{"d":1}; sms T+B; whatsapp T+B; email T/B/; slack T+B`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := said(tt.content); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}
