package channels

import (
	"encoding/hex"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// RecipientScope names the scope of one recipient under an account, for limits
// that hold between a sender and one address: "to:" and 16 hexadecimal digits of
// the address's hash.
func RecipientScope(c notify.Channel, t notify.Target) string {
	h := t.Hash(c)
	return "to:" + hex.EncodeToString(h[:8])
}

// RequiredProvider names the provider that a target can be reached by, empty
// where any of the channel's accounts will do.
func RequiredProvider(t notify.Target) string {
	switch {
	case t.Device != nil:
		return t.Device.Provider
	case t.Slack != nil && t.Slack.WebhookURL != "":
		return "slack-webhook"
	case t.Slack != nil:
		return "slack"
	}
	return ""
}
