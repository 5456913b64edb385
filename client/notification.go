package client

import (
	"encoding/json"
	"fmt"
	"time"
)

// Channel is what a person receives a notification on.
type Channel string

// The channels.
const (
	Push     Channel = "push"
	SMS      Channel = "sms"
	WhatsApp Channel = "whatsapp"
	Email    Channel = "email"
	Slack    Channel = "slack"
	Webhook  Channel = "webhook"
)

// Priority orders work of one channel.
type Priority string

// The priorities; Normal is the default.
const (
	Critical Priority = "critical"
	High     Priority = "high"
	Normal   Priority = "normal"
	Low      Priority = "low"
)

// Mode says how many steps of a chain run.
type Mode string

// The modes. FirstSuccess, the default, stops at the first step that meets its
// success criterion; AllSteps runs every step.
const (
	FirstSuccess Mode = "first"
	AllSteps     Mode = "all"
)

// Success is what must be known for a chain to stop at a step.
type Success string

// The criteria; Accepted is the default. Acknowledged comes from the
// application.
const (
	Accepted     Success = "accepted"
	Delivered    Success = "delivered"
	Read         Success = "read"
	Acknowledged Success = "acknowledged"
)

// Notification is one message to one recipient. Zero fields take the service's
// defaults.
type Notification struct {
	To To `json:"to"`
	// Chain is the steps to try in order, 1 to 10. Without it they are push, sms,
	// whatsapp and email, those that To has an address for.
	Chain    []Step   `json:"chain,omitempty"`
	Mode     Mode     `json:"mode,omitempty"`
	Content  Content  `json:"content"`
	Priority Priority `json:"priority,omitempty"`
	// SendAt is when to send it, at most 5 years ahead; default now.
	SendAt time.Time `json:"send_at,omitzero"`
	// ExpiresAt is after when nothing is sent any more: at most 30 days after
	// SendAt, default 24 h after it.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	// Reference is the caller's own name for it, at most 255 characters.
	Reference string `json:"reference,omitempty"`
	// Metadata is kept and shown as it is, at most 4096 bytes of JSON.
	Metadata map[string]any `json:"metadata,omitempty"`
	// IdempotencyKey, 1 to 255 visible ASCII characters, makes it safe to send the
	// notification again, from another process too. [Client.Send] makes one up
	// where it is empty, [EnqueueTx] does not.
	IdempotencyKey string `json:"-"`
}

// Step is one channel of a chain.
type Step struct {
	Channel Channel `json:"channel"`
	// Account is one configured account of the channel; default all in order.
	Account string  `json:"account,omitempty"`
	Success Success `json:"success,omitempty"`
	// Within bounds the step with all its waits: 1 s to 168 h.
	Within Duration `json:"within,omitzero"`
	// Attempts bounds the calls to each target: 1 to 20, default 4.
	Attempts int `json:"attempts,omitempty"`
	// OnUnknown says what to do when nobody knows whether a call was accepted:
	// reconcile, resend, fallback or assume_sent.
	OnUnknown string `json:"on_unknown,omitempty"`
}

// Duration is a [time.Duration] that JSON writes as Go does: "1m30s".
type Duration time.Duration

// MarshalText implements [encoding.TextMarshaler].
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	*d = Duration(v)
	return nil
}

// To is where a recipient can be reached, by channel; at least one.
type To struct {
	Push     []Device       `json:"push,omitempty"` // at most 100
	SMS      string         `json:"sms,omitempty"`  // E.164, such as +14155550100
	WhatsApp string         `json:"whatsapp,omitempty"`
	Email    *EmailAddress  `json:"email,omitempty"`
	Slack    *SlackTarget   `json:"slack,omitempty"`
	Webhook  *WebhookTarget `json:"webhook,omitempty"`
}

// Device is one push subscription. Provider is fcm or apns with Token, or webpush
// with Endpoint and Keys.
type Device struct {
	Provider string       `json:"provider"`
	Token    string       `json:"token,omitempty"`
	Endpoint string       `json:"endpoint,omitempty"`
	Keys     *WebPushKeys `json:"keys,omitempty"`
}

// WebPushKeys are a subscription's keys as the browser gives them (RFC 8291).
type WebPushKeys struct {
	P256dh string `json:"p256dh"`
	Auth   string `json:"auth"`
}

// EmailAddress is a mailbox.
type EmailAddress struct {
	Address string `json:"address"`
	Name    string `json:"name,omitempty"`
}

// SlackTarget is a conversation through the bot, or an incoming webhook.
type SlackTarget struct {
	Channel    string `json:"channel,omitempty"`
	WebhookURL string `json:"webhook_url,omitempty"`
}

// WebhookTarget is an HTTP endpoint.
type WebhookTarget struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
}

// Content is what the recipient is told. Title, Body and Data hold for every
// channel; what a channel's own part names wins over them.
type Content struct {
	Title    string           `json:"title,omitempty"`
	Body     string           `json:"body,omitempty"`
	Data     map[string]any   `json:"data,omitempty"`
	Push     *PushContent     `json:"push,omitempty"`
	SMS      *SMSContent      `json:"sms,omitempty"`
	WhatsApp *WhatsAppContent `json:"whatsapp,omitempty"`
	Email    *EmailContent    `json:"email,omitempty"`
	Slack    *SlackContent    `json:"slack,omitempty"`
	Webhook  *WebhookContent  `json:"webhook,omitempty"`
}

// PushContent is what only push can use.
type PushContent struct {
	Title       string         `json:"title,omitempty"`
	Body        string         `json:"body,omitempty"`
	Image       string         `json:"image,omitempty"` // a URL
	Data        map[string]any `json:"data,omitempty"`
	CollapseKey string         `json:"collapse_key,omitempty"`
	TTL         Duration       `json:"ttl,omitzero"` // 1 s to 672 h
}

// SMSContent is what only sms can use.
type SMSContent struct {
	Body string `json:"body,omitempty"`
}

// WhatsAppContent is free text inside the 24 h window, or a template.
type WhatsAppContent struct {
	Body     string            `json:"body,omitempty"`
	Template *WhatsAppTemplate `json:"template,omitempty"`
}

// WhatsAppTemplate names an approved template.
type WhatsAppTemplate struct {
	Name      string            `json:"name"`
	Language  string            `json:"language,omitempty"`
	Variables map[string]string `json:"variables,omitempty"`
}

// EmailContent is what only email can use.
type EmailContent struct {
	Subject           string        `json:"subject,omitempty"`
	Text              string        `json:"text,omitempty"`
	HTML              string        `json:"html,omitempty"`
	From              *EmailAddress `json:"from,omitempty"`
	ReplyTo           *EmailAddress `json:"reply_to,omitempty"`
	Attachments       []Attachment  `json:"attachments,omitempty"` // at most 20
	UnsubscribeURL    string        `json:"unsubscribe_url,omitempty"`
	UnsubscribeMailto string        `json:"unsubscribe_mailto,omitempty"`
}

// Attachment is a file by value.
type Attachment struct {
	Filename    string `json:"filename"`
	ContentType string `json:"content_type,omitempty"`
	Content     []byte `json:"content"`
}

// SlackContent is what only Slack can use.
type SlackContent struct {
	Text   string          `json:"text,omitempty"`
	Blocks json.RawMessage `json:"blocks,omitempty"` // an array of Block Kit blocks
	Thread string          `json:"thread,omitempty"` // the ts of the parent message
}

// WebhookContent is the request's body: any JSON, which is sent as it is.
type WebhookContent struct {
	Payload json.RawMessage `json:"payload,omitempty"`
}
