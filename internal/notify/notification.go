package notify

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// Notification is one message to one recipient, as accepted: every default is
// filled in and nothing in it changes afterwards, unless an operator starts it
// again, which gives it another Round and ExpiresAt.
type Notification struct {
	ID        uuid.UUID // UUIDv7, made by the accepting node
	Project   string
	To        To
	Chain     []Step
	Mode      Mode
	Content   Content
	Priority  Priority
	Reference string         // the caller's own name for it; not unique
	Metadata  jsontext.Value // a JSON object, or nil
	Trace     string         // W3C traceparent of the request, or empty
	CreatedAt time.Time
	SendAt    time.Time // CreatedAt where the caller named none
	ExpiresAt time.Time // no call starts after it
	Round     int       // how many times it was started again
}

// Step is one channel of a chain.
type Step struct {
	Channel Channel `json:"channel"`
	// Account pins the step to one configured account of the channel; empty
	// means the channel's accounts in order.
	Account string `json:"account,omitzero"`
	// Success is what must be known for the chain to stop here; default accepted.
	Success Criterion `json:"success,omitzero"`
	// Within bounds the step and all its waits, from the instant it becomes due.
	// Zero means the default: 2 min (critical 30 s) where a next step exists,
	// else until the notification expires.
	Within Duration `json:"within,omitzero"`
	// Attempts bounds the calls of each delivery, over all accounts; 1 to 20,
	// default 4 (one call and three retries).
	Attempts int `json:"attempts,omitzero"`
	// OnUnknown overrides the account's policy for unknown outcomes.
	OnUnknown UnknownPolicy `json:"on_unknown,omitzero"`
}

// To is where a recipient can be reached, by channel.
type To struct {
	Push     Devices        `json:"push,omitzero"`
	SMS      string         `json:"sms,omitzero"`
	WhatsApp string         `json:"whatsapp,omitzero"`
	Email    *EmailAddress  `json:"email,omitzero"`
	Slack    *SlackTarget   `json:"slack,omitzero"`
	Webhook  *WebhookTarget `json:"webhook,omitzero"`
}

// Devices is one or more push devices. In JSON a single device may stand without
// a list around it.
type Devices []Device

// Device is one push subscription.
type Device struct {
	// Provider is fcm, apns or webpush.
	Provider string `json:"provider"`
	// Token addresses the device at FCM and APNs.
	Token string `json:"token,omitzero"`
	// Endpoint and Keys are a Web Push subscription as the browser gives it.
	Endpoint string       `json:"endpoint,omitzero"`
	Keys     *WebPushKeys `json:"keys,omitzero"`
}

// WebPushKeys are the subscription's keys, base64url without padding.
type WebPushKeys struct {
	P256dh string `json:"p256dh"`
	Auth   string `json:"auth"`
}

// EmailAddress is a mailbox. In JSON it may be the address alone.
type EmailAddress struct {
	Address string `json:"address"`
	Name    string `json:"name,omitzero"`
}

// SlackTarget is a conversation through the bot, or an incoming webhook.
type SlackTarget struct {
	Channel    string `json:"channel,omitzero"`
	WebhookURL string `json:"webhook_url,omitzero"`
}

// WebhookTarget is an HTTP endpoint.
type WebhookTarget struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitzero"`
}

// Target is one address of one channel; exactly one field is set.
type Target struct {
	Device  *Device
	Phone   string // sms, whatsapp: E.164
	Email   *EmailAddress
	Slack   *SlackTarget
	Webhook *WebhookTarget
}

// Targets returns the addresses of channel c, in the caller's order; none when
// the recipient cannot be reached on it.
func (t To) Targets(c Channel) []Target {
	switch c {
	case Push:
		out := make([]Target, len(t.Push))
		for i := range t.Push {
			out[i] = Target{Device: &t.Push[i]}
		}
		return out
	case SMS:
		if t.SMS != "" {
			return []Target{{Phone: t.SMS}}
		}
	case WhatsApp:
		if t.WhatsApp != "" {
			return []Target{{Phone: t.WhatsApp}}
		}
	case Email:
		if t.Email != nil {
			return []Target{{Email: t.Email}}
		}
	case Slack:
		if t.Slack != nil {
			return []Target{{Slack: t.Slack}}
		}
	case Webhook:
		if t.Webhook != nil {
			return []Target{{Webhook: t.Webhook}}
		}
	}
	return nil
}

// DeliveryKey is the idempotency key of one delivery: stable over attempts,
// crashes and accounts, different for each step, target and round.
func DeliveryKey(id uuid.UUID, step, target, round int) uuid.UUID {
	return uuid.NewSHA1(id, []byte{byte(step), byte(target), byte(round), byte(round >> 8)})
}
