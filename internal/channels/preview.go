package channels

import "github.com/notification-dispatcher/dispatcher/internal/notify"

// Preview is what a person would see of a message, as far as that is known
// without sending it. Fields that a channel does not have are empty.
type Preview struct {
	Title   string
	Subject string
	Body    string
	// Template is the name of what the provider would fill in.
	Template string
	// Segments is how many messages an SMS is sent and billed as, and Encoding
	// what it is written in: GSM-7 or UCS-2.
	Segments int
	Encoding string
}

// Previewer is implemented by a provider that knows more of what a person would
// see than the notification's content says.
type Previewer interface {
	Preview(m *Message) Preview
}

// PreviewOf returns what a person would see of a message sent by p.
func PreviewOf(p Provider, m *Message) Preview {
	if v, ok := p.(Previewer); ok {
		return v.Preview(m)
	}
	var v Preview
	switch c := m.Content; p.Info().Channel {
	case notify.Push:
		v.Title, v.Body = c.PushText()
	case notify.SMS:
		v.Body = c.SMSText()
	case notify.WhatsApp:
		v.Body = c.WhatsAppText()
		if c.WhatsApp != nil && c.WhatsApp.Template != nil {
			v.Template = c.WhatsApp.Template.Name
		}
	case notify.Email:
		v.Subject, v.Body, _ = c.EmailParts()
	case notify.Slack:
		v.Body = c.SlackText()
	case notify.Webhook:
		v.Title, v.Body = c.Title, c.Body
		if c.Webhook != nil && len(c.Webhook.Payload) > 0 {
			v.Title, v.Body = "", string(c.Webhook.Payload)
		}
	}
	return v
}
