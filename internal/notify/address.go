package notify

import "crypto/sha256"

// address is the canonical text of a target, for hashing only.
func (t Target) address() string {
	switch {
	case t.Device != nil && t.Device.Endpoint != "":
		return t.Device.Provider + ":" + t.Device.Endpoint
	case t.Device != nil:
		return t.Device.Provider + ":" + t.Device.Token
	case t.Email != nil:
		return lowerASCII(t.Email.Address)
	case t.Slack != nil && t.Slack.WebhookURL != "":
		return t.Slack.WebhookURL
	case t.Slack != nil:
		return t.Slack.Channel
	case t.Webhook != nil:
		return t.Webhook.URL
	}
	return t.Phone
}

// Hash identifies the address on channel c without disclosing it: the first 16
// bytes of SHA-256 over channel and address. It names suppressions and scopes.
func (t Target) Hash(c Channel) [16]byte {
	sum := sha256.Sum256([]byte(string(c) + "\x00" + t.address()))
	return [16]byte(sum[:16])
}

// Valid reports whether a request may name the address of t on channel c. Nothing
// else of the target, such as the keys of a subscription, is looked at.
func (t Target) Valid(c Channel) bool {
	switch {
	case t.Device != nil && t.Device.Endpoint != "":
		return c == Push && validURL(t.Device.Endpoint)
	case t.Device != nil:
		return c == Push && visibleASCII(t.Device.Token, MaxToken)
	case t.Email != nil:
		return c == Email && validEmail(t.Email.Address)
	case t.Slack != nil && t.Slack.WebhookURL != "":
		return c == Slack && validURL(t.Slack.WebhookURL)
	case t.Slack != nil:
		return c == Slack && visible(t.Slack.Channel, 80)
	case t.Webhook != nil:
		return c == Webhook && validURL(t.Webhook.URL)
	}
	return (c == SMS || c == WhatsApp) && validPhone(t.Phone)
}

// lowerASCII is s with its ASCII letters in lower case. Mail systems take Ana@ and
// ana@ for one mailbox, whatever RFC 5321 lets them do; letters beyond ASCII stay,
// since what lower case is of them depends on whom one asks, and enqueue in SQL must
// come to the same.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + ('a' - 'A')
		}
	}
	return string(b)
}
