package notify

import (
	"bytes"
	"maps"
	"strings"
)

// AckPlaceholder stands, in any text of a [Content], for the link by which the
// person acknowledges the notification. It is the same in every channel.
const AckPlaceholder = "{{ack_url}}"

// AsksForAck reports whether the placeholder stands anywhere in c. It is asked for
// every message and copies nothing.
func (c Content) AsksForAck() bool {
	if asks(c.Title, c.Body) || asksRaw(c.Data) {
		return true
	}
	if p := c.Push; p != nil && (asks(p.Title, p.Body) || asksRaw(p.Data)) {
		return true
	}
	if c.SMS != nil && asks(c.SMS.Body, "") {
		return true
	}
	if w := c.WhatsApp; w != nil {
		if asks(w.Body, "") {
			return true
		}
		if w.Template != nil {
			for _, value := range w.Template.Variables {
				if asks(value, "") {
					return true
				}
			}
		}
	}
	if e := c.Email; e != nil && (asks(e.Subject, e.Text) || asks(e.HTML, "")) {
		return true
	}
	if s := c.Slack; s != nil && (asks(s.Text, "") || asksRaw(s.Blocks)) {
		return true
	}
	return c.Webhook != nil && asksRaw(c.Webhook.Payload)
}

func asks(one, other string) bool {
	return strings.Contains(one, AckPlaceholder) || strings.Contains(other, AckPlaceholder)
}

func asksRaw(b []byte) bool { return bytes.Contains(b, []byte(AckPlaceholder)) }

// WithAckURL returns c with url in every place of the placeholder; c itself is
// not changed. The url has to be plain ASCII without what JSON or HTML would
// escape, since it is put into both.
func (c Content) WithAckURL(url string) Content {
	return c.edit(func(s string) string { return strings.ReplaceAll(s, AckPlaceholder, url) })
}

// edit returns a copy of c in which every text that a person or a program of
// theirs may get to see went through change. Attachments are files and stay.
func (c Content) edit(change func(string) string) Content {
	raw := func(b []byte) []byte {
		if !asksRaw(b) {
			return b
		}
		return []byte(change(string(b)))
	}
	c.Title, c.Body, c.Data = change(c.Title), change(c.Body), raw(c.Data)
	if c.Push != nil {
		p := *c.Push
		p.Title, p.Body, p.Data = change(p.Title), change(p.Body), raw(p.Data)
		c.Push = &p
	}
	if c.SMS != nil {
		c.SMS = &SMSContent{Body: change(c.SMS.Body)}
	}
	if c.WhatsApp != nil {
		w := *c.WhatsApp
		w.Body = change(w.Body)
		if w.Template != nil {
			t := *w.Template
			t.Variables = maps.Clone(t.Variables)
			for name, value := range t.Variables {
				t.Variables[name] = change(value)
			}
			w.Template = &t
		}
		c.WhatsApp = &w
	}
	if c.Email != nil {
		e := *c.Email
		e.Subject, e.Text, e.HTML = change(e.Subject), change(e.Text), change(e.HTML)
		c.Email = &e
	}
	if c.Slack != nil {
		s := *c.Slack
		s.Text, s.Blocks = change(s.Text), raw(s.Blocks)
		c.Slack = &s
	}
	if c.Webhook != nil {
		c.Webhook = &WebhookContent{Payload: raw(c.Webhook.Payload)}
	}
	return c
}
