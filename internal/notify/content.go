package notify

import (
	"github.com/go-json-experiment/json/jsontext"
)

// Content is what the recipient is told. Title, Body and Data hold for every
// channel; what a channel's own part names wins over them.
type Content struct {
	Title string         `json:"title,omitzero"`
	Body  string         `json:"body,omitzero"`
	Data  jsontext.Value `json:"data,omitzero"` // a JSON object

	Push     *PushContent     `json:"push,omitzero"`
	SMS      *SMSContent      `json:"sms,omitzero"`
	WhatsApp *WhatsAppContent `json:"whatsapp,omitzero"`
	Email    *EmailContent    `json:"email,omitzero"`
	Slack    *SlackContent    `json:"slack,omitzero"`
	Webhook  *WebhookContent  `json:"webhook,omitzero"`
}

// PushContent is what only push can use.
type PushContent struct {
	Title string `json:"title,omitzero"`
	Body  string `json:"body,omitzero"`
	// Image is an https URL.
	Image string `json:"image,omitzero"`
	// Data is a JSON object; values that are not strings reach FCM as JSON text.
	Data jsontext.Value `json:"data,omitzero"`
	// CollapseKey replaces an earlier undelivered message with the same key;
	// default is the delivery's key, so that a repeat collapses on the device.
	CollapseKey string `json:"collapse_key,omitzero"`
	// TTL bounds how long a push service keeps it; default until the
	// notification expires, at most 28 days.
	TTL Duration `json:"ttl,omitzero"`
}

// SMSContent is what only sms can use.
type SMSContent struct {
	Body string `json:"body,omitzero"`
}

// WhatsAppContent is free text inside the 24 h window, or a template.
type WhatsAppContent struct {
	Body     string            `json:"body,omitzero"`
	Template *WhatsAppTemplate `json:"template,omitzero"`
}

// WhatsAppTemplate names an approved template: Meta's template name, or Twilio's
// ContentSid (HX…).
type WhatsAppTemplate struct {
	Name string `json:"name"`
	// Language is Meta's language code (default en_US); Twilio ignores it.
	Language string `json:"language,omitzero"`
	// Variables fill the placeholders: "1", "2", … by position, or by name.
	Variables map[string]string `json:"variables,omitzero"`
}

// EmailContent is what only email can use.
type EmailContent struct {
	Subject string `json:"subject,omitzero"`
	Text    string `json:"text,omitzero"`
	HTML    string `json:"html,omitzero"`
	// From and ReplyTo override the account's; an account may forbid it.
	From        *EmailAddress `json:"from,omitzero"`
	ReplyTo     *EmailAddress `json:"reply_to,omitzero"`
	Attachments []Attachment  `json:"attachments,omitzero"`
	// UnsubscribeURL is an https URL for List-Unsubscribe with one-click
	// (RFC 8058); UnsubscribeMailto an address beside it.
	UnsubscribeURL    string `json:"unsubscribe_url,omitzero"`
	UnsubscribeMailto string `json:"unsubscribe_mailto,omitzero"`
}

// Attachment is a file by value.
type Attachment struct {
	Filename    string `json:"filename"`
	ContentType string `json:"content_type,omitzero"` // default application/octet-stream
	Content     []byte `json:"content"`               // base64 in JSON
}

// SlackContent is what only Slack can use.
type SlackContent struct {
	Text string `json:"text,omitzero"`
	// Blocks is a JSON array of Block Kit blocks.
	Blocks jsontext.Value `json:"blocks,omitzero"`
	// Thread is the ts of the parent message; bot accounts only.
	Thread string `json:"thread,omitzero"`
}

// WebhookContent is the request's body.
type WebhookContent struct {
	// Payload is any JSON value and is sent as it is. Without it the body is
	// {"id","title","body","data","reference","metadata","created_at"}.
	Payload jsontext.Value `json:"payload,omitzero"`
}

// first returns the first text that is not empty.
func first(texts ...string) string {
	for _, t := range texts {
		if t != "" {
			return t
		}
	}
	return ""
}

// PushText returns title and body for push.
func (c Content) PushText() (title, body string) {
	if c.Push != nil {
		return first(c.Push.Title, c.Title), first(c.Push.Body, c.Body)
	}
	return c.Title, c.Body
}

// PushData returns the data object for push, or nil.
func (c Content) PushData() jsontext.Value {
	if c.Push != nil && len(c.Push.Data) > 0 {
		return c.Push.Data
	}
	return c.Data
}

// SMSText returns the text for sms: its own body, else title and body on lines
// of their own.
func (c Content) SMSText() string {
	if c.SMS != nil && c.SMS.Body != "" {
		return c.SMS.Body
	}
	return c.plain()
}

// WhatsAppText returns the free text for whatsapp; empty with a template only.
func (c Content) WhatsAppText() string {
	if c.WhatsApp != nil && (c.WhatsApp.Body != "" || c.WhatsApp.Template != nil) {
		return c.WhatsApp.Body
	}
	return c.plain()
}

// EmailParts returns subject, plain text and HTML for email. The subject falls
// back to the title and the text to the body, also beside HTML, for readers
// that show none.
func (c Content) EmailParts() (subject, text, html string) {
	if e := c.Email; e != nil {
		subject, text, html = e.Subject, e.Text, e.HTML
	}
	return first(subject, c.Title), first(text, c.Body), html
}

// SlackText returns the text for Slack, which is also the notification's text
// where blocks are shown.
func (c Content) SlackText() string {
	if c.Slack != nil && c.Slack.Text != "" {
		return c.Slack.Text
	}
	return c.plain()
}

func (c Content) plain() string {
	if c.Title != "" && c.Body != "" {
		return c.Title + "\n" + c.Body
	}
	return first(c.Title, c.Body)
}
