package sms

import (
	"fmt"
	"unicode/utf8"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// maxBody is how many characters Twilio takes in one message (error 21617).
const maxBody = 1600

// Check implements [channels.Checker].
func (p *Provider) Check(m *channels.Message) error {
	text := m.Content.SMSText()
	if text == "" {
		return &channels.CheckError{Field: "/content/sms/body", Reason: "is required where content has no title and no body"}
	}
	if utf8.RuneCountInString(text) > maxBody {
		return &channels.CheckError{
			Field: textField(m.Content), Reason: fmt.Sprintf("must have at most %d characters for sms", maxBody),
		}
	}
	if n, _ := Segments(text); p.maxSegments > 0 && n > p.maxSegments {
		return &channels.CheckError{
			Field: textField(m.Content), Reason: fmt.Sprintf("must fit into %d sms segments", p.maxSegments),
		}
	}
	return nil
}

// textField points to where the text of an SMS comes from.
func textField(c notify.Content) string {
	switch {
	case c.SMS != nil && c.SMS.Body != "":
		return "/content/sms/body"
	case c.Body != "":
		return "/content/body"
	}
	return "/content/title"
}
