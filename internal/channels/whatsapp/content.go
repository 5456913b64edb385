// Package whatsapp sends WhatsApp messages: free text inside the 24 hours after
// the recipient last wrote, or an approved template at any time.
package whatsapp

import (
	"fmt"
	"unicode/utf8"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Fields of a request that a [channels.CheckError] points to.
const (
	templateName      = "/content/whatsapp/template/name"
	templateVariables = "/content/whatsapp/template/variables"
)

// template returns the template of a message, which wins over its text: only it
// can open a conversation, and nobody knows here whether one is open.
func template(c notify.Content) *notify.WhatsAppTemplate {
	if c.WhatsApp == nil {
		return nil
	}
	return c.WhatsApp.Template
}

// checkText checks free text, which may have limit characters.
func checkText(c notify.Content, limit int) error {
	text := c.WhatsAppText()
	if text == "" {
		return &channels.CheckError{
			Field: "/content/whatsapp/body", Reason: "is required where content has no template, no title and no body",
		}
	}
	if utf8.RuneCountInString(text) > limit {
		return &channels.CheckError{Field: textField(c), Reason: fmt.Sprintf("must have at most %d characters for whatsapp", limit)}
	}
	return nil
}

// textField points to where the free text comes from.
func textField(c notify.Content) string {
	switch {
	case c.WhatsApp != nil && c.WhatsApp.Body != "":
		return "/content/whatsapp/body"
	case c.Body != "":
		return "/content/body"
	}
	return "/content/title"
}
