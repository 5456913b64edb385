package sandbox

import (
	"strings"
	"time"
)

// Message is one message call as it is shown. What it holds is read out of the
// call when it is asked for.
type Message struct {
	// Seq numbers calls from 1 in the order of their arrival.
	Seq      int64  `json:"seq"`
	Provider string `json:"provider"`
	// Channel is push, sms, whatsapp, email, slack or webhook.
	Channel string `json:"channel"`
	To      string `json:"to"`
	// From is the sender: a number, a service, a project, a topic, an address.
	From string `json:"from,omitzero"`
	// Title and Text are what a person reads.
	Title string `json:"title,omitzero"`
	Text  string `json:"text,omitzero"`
	// Body is the message as it came: of JSON APIs the JSON, of web push what was
	// encrypted, of Twilio the Body, of mail its text (its HTML where it has none).
	Body string `json:"body"`
	// HTML, Attachments and Source (all of it, as sent) are a mail's.
	HTML        string       `json:"html,omitzero"`
	Attachments []Attachment `json:"attachments,omitzero"`
	Source      string       `json:"source,omitzero"`
	// Headers are the request's, or the mail's, that matter; for Twilio its other
	// form fields.
	Headers    map[string]string `json:"headers"`
	Answer     Answer            `json:"answer"`
	ReceivedAt time.Time         `json:"received_at"`
}

// Filter narrows [Server.Messages]; its zero value is every message.
type Filter struct {
	Provider string
	// To is compared as a [Rule]'s is.
	To string
	// After is the Seq after which to begin, and Since an instant.
	After int64
	Since time.Time
	// Last keeps only so many of the newest; 0 keeps all.
	Last int
}

func (f Filter) wants(e *entry) bool {
	return e.seq > f.After && (f.Provider == "" || f.Provider == e.provider) &&
		(f.To == "" || sameRecipient(e.provider, f.To, e.to)) &&
		(f.Since.IsZero() || e.at.After(f.Since))
}

// Messages returns what was received, oldest first.
func (s *Server) Messages(f Filter) []Message {
	found := s.find(f)
	out := make([]Message, len(found))
	for i, e := range found {
		out[i] = e.view()
	}
	return out
}

func (s *Server) find(f Filter) []*entry {
	var found []*entry
	for _, e := range s.messages.all() {
		if f.wants(e) {
			found = append(found, e)
		}
	}
	if f.Last > 0 && len(found) > f.Last {
		found = found[len(found)-f.Last:]
	}
	return found
}

// Forget drops every recorded message. Numbers go on rising.
func (s *Server) Forget() { s.messages.clear() }

func (e *entry) view() Message {
	m := Message{
		Seq: e.seq, Provider: e.provider, Channel: e.channel, To: e.to, From: e.from,
		Body: valid(string(e.raw)), Headers: map[string]string{}, Answer: e.answer, ReceivedAt: e.at.UTC(),
	}
	headers := e.headers
	switch e.provider {
	case twilio:
		m.Text = twilioText(e)
		m.Body = m.Text
	case meta:
		m.Text = metaText(e)
	case fcm:
		m.Title, m.Text = fcmText(e)
	case apns:
		m.Title, m.Text = apnsText(e)
	case webPush:
		m.Title, m.Text = webPushText(e)
	case slack, slackWebhook:
		m.Text = slackText(e)
	case smtpProvider:
		headers = m.readMail(e)
	default:
		m.Text = m.Body
	}
	for _, h := range headers {
		m.Headers[h.name] = join(m.Headers[h.name], valid(h.value))
	}
	m.Title, m.Text = valid(m.Title), valid(m.Text)
	return m
}

// readMail fills in what only a mail has, and returns its headers.
func (m *Message) readMail(e *entry) []header {
	v := readMail(e.raw)
	m.Title, m.Text, m.HTML, m.Attachments = v.subject, v.text, valid(v.html), v.attachments
	m.Body, m.Source = valid(v.text), m.Body
	if m.Body == "" {
		m.Body = m.HTML
	}
	return v.headers
}

// join keeps every value of a header that came more than once.
func join(have, value string) string {
	if have == "" {
		return value
	}
	return have + ", " + value
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
