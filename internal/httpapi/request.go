package httpapi

import (
	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// The types of this file describe the body of a POST for the OpenAPI document.
// The body itself is read by [notify.Parse], whose rules they repeat as far as a
// schema can; a test holds the two together.

type notificationRequest struct {
	To        recipient     `json:"to" doc:"Where the person can be reached. At least one address."`
	Chain     []StepRequest `json:"chain,omitempty" minItems:"1" maxItems:"10" doc:"The steps, in order. Without it: push, sms, whatsapp, email, those that to has an address for."`
	Mode      string        `json:"mode,omitempty" enum:"first,all" default:"first" doc:"first stops at the first step that meets its success criterion; all runs every step, at once."`
	Content   content       `json:"content" doc:"What the person is told: title, body and data for every channel, and per channel what wins over them. At most 256 KiB besides attachments."`
	Priority  string        `json:"priority,omitempty" enum:"critical,high,normal,low" default:"normal"`
	SendAt    string        `json:"send_at,omitempty" format:"date-time" doc:"Not before this instant, at most 5 years ahead. In the past means now."`
	ExpiresAt string        `json:"expires_at,omitempty" format:"date-time" doc:"No call starts after it. At most 30 days after send_at; default 24 hours after it."`
	Reference string        `json:"reference,omitempty" maxLength:"255" doc:"Your own name for it, to find it by. Not unique." example:"incident-4711"`
	Metadata  objectJSON    `json:"metadata,omitempty" doc:"Your own data, at most 4096 bytes. It is given back, and part of a plain webhook's body."`
}

// StepRequest is a step as it is asked for, and as an accepted one is answered.
type StepRequest struct {
	Channel   string `json:"channel" enum:"push,sms,whatsapp,email,slack,webhook"`
	Account   string `json:"account,omitempty" doc:"One configured account of the channel; default is all of them, in their order."`
	Success   string `json:"success,omitempty" enum:"accepted,delivered,read,acknowledged" default:"accepted" doc:"What must be known for the chain to stop here. A success that the channel cannot show is refused."`
	Within    string `json:"within,omitempty" pattern:"^([0-9]{1,9}(\\.[0-9]{1,9})?(ms|s|m|h)){1,4}$" example:"90s" doc:"How long the step may take, with all its waits: 1s to 168h. Default 2m (critical 30s) where a next step exists, else until the notification expires."`
	Attempts  int    `json:"attempts,omitempty" minimum:"1" maximum:"20" default:"4" doc:"Calls to each target at most, over all accounts."`
	OnUnknown string `json:"on_unknown,omitempty" enum:"reconcile,resend,fallback,assume_sent" doc:"What to do when a call ended and nobody knows whether it was accepted. Default is the account's policy."`
}

func stepView(s notify.Step) StepRequest {
	v := StepRequest{
		Channel: string(s.Channel), Account: s.Account, Success: string(s.Success), Attempts: s.Attempts, OnUnknown: string(s.OnUnknown),
	}
	if s.Within != 0 {
		v.Within = s.Within.Std().String()
	}
	return v
}

type recipient struct {
	Push     devices       `json:"push,omitempty" doc:"A device, or up to 100 of them. The step is accepted when one of them is."`
	SMS      string        `json:"sms,omitempty" pattern:"^\\+[1-9][0-9]{6,14}$" doc:"A phone number in E.164 form." example:"+14155550100"`
	WhatsApp string        `json:"whatsapp,omitempty" pattern:"^\\+[1-9][0-9]{6,14}$" doc:"A phone number in E.164 form." example:"+14155550100"`
	Email    mailbox       `json:"email,omitempty" doc:"An address, alone or with a name."`
	Slack    *slackTarget  `json:"slack,omitempty" doc:"Either a channel, through the bot, or an incoming webhook."`
	Webhook  *targetedHook `json:"webhook,omitempty"`
}

// device is one push subscription.
type device struct {
	Provider string       `json:"provider" enum:"fcm,apns,webpush"`
	Token    string       `json:"token,omitempty" maxLength:"4096" doc:"Of fcm and apns."`
	Endpoint string       `json:"endpoint,omitempty" maxLength:"2048" doc:"Of webpush."`
	Keys     *webPushKeys `json:"keys,omitempty" doc:"Of webpush."`
}

type webPushKeys struct {
	P256dh string `json:"p256dh" pattern:"^[A-Za-z0-9_-]{87}$" doc:"base64url without padding"`
	Auth   string `json:"auth" pattern:"^[A-Za-z0-9_-]{22}$" doc:"base64url without padding"`
}

// devices is a device or a list of them.
type devices []device

// Schema implements huma.SchemaProvider.
func (devices) Schema(r huma.Registry) *huma.Schema {
	one, least, most := schemaOf[device](r), 1, notify.MaxDevices
	return &huma.Schema{OneOf: []*huma.Schema{one, {Type: huma.TypeArray, Items: one, MinItems: &least, MaxItems: &most}}}
}

type mailboxObject struct {
	Address string `json:"address" maxLength:"254" example:"ana@example.com"`
	Name    string `json:"name,omitempty" maxLength:"200" example:"Ana Pérez"`
}

// mailbox is an address alone or with a name.
type mailbox mailboxObject

// Schema implements huma.SchemaProvider.
func (mailbox) Schema(r huma.Registry) *huma.Schema {
	most := 254
	return &huma.Schema{OneOf: []*huma.Schema{{Type: huma.TypeString, MaxLength: &most}, schemaOf[mailboxObject](r)}}
}

type slackTarget struct {
	Channel    string `json:"channel,omitempty" maxLength:"80" example:"C0123456789"`
	WebhookURL string `json:"webhook_url,omitempty" maxLength:"2048"`
}

type targetedHook struct {
	URL     string            `json:"url" maxLength:"2048" example:"https://example.com/hooks/deploys"`
	Headers map[string]string `json:"headers,omitempty" maxProperties:"20" doc:"Sent along, at most 20."`
}

type content struct {
	Title    string           `json:"title,omitempty" example:"Deploy failed"`
	Body     string           `json:"body,omitempty" example:"api: 3 of 5 pods are down"`
	Data     objectJSON       `json:"data,omitempty" doc:"For programs: reaches push and webhook."`
	Push     *pushContent     `json:"push,omitempty"`
	SMS      *smsContent      `json:"sms,omitempty"`
	WhatsApp *whatsAppContent `json:"whatsapp,omitempty" doc:"Free text inside WhatsApp's 24 hour window, or a template."`
	Email    *emailContent    `json:"email,omitempty"`
	Slack    *slackContent    `json:"slack,omitempty"`
	Webhook  *webhookContent  `json:"webhook,omitempty"`
}

type pushContent struct {
	Title       string     `json:"title,omitempty"`
	Body        string     `json:"body,omitempty"`
	Image       string     `json:"image,omitempty" maxLength:"2048" doc:"A URL."`
	Data        objectJSON `json:"data,omitempty"`
	CollapseKey string     `json:"collapse_key,omitempty" doc:"Replaces an earlier message with the same key that was not shown yet."`
	TTL         string     `json:"ttl,omitempty" example:"1h" doc:"How long a push service keeps it: 1s to 672h; default until it expires."`
}

type smsContent struct {
	Body string `json:"body,omitempty"`
}

type whatsAppContent struct {
	Body     string            `json:"body,omitempty"`
	Template *whatsAppTemplate `json:"template,omitempty"`
}

type whatsAppTemplate struct {
	Name      string            `json:"name" doc:"Meta's name of the template, or Twilio's ContentSid."`
	Language  string            `json:"language,omitempty" example:"en_US"`
	Variables map[string]string `json:"variables,omitempty" doc:"By position (\"1\", \"2\", …) or by name."`
}

type emailContent struct {
	Subject           string       `json:"subject,omitempty" maxLength:"998" doc:"Default is the title."`
	Text              string       `json:"text,omitempty" doc:"Default is the body."`
	HTML              string       `json:"html,omitempty"`
	From              mailbox      `json:"from,omitempty" doc:"In place of the account's, which may forbid it."`
	ReplyTo           mailbox      `json:"reply_to,omitempty"`
	Attachments       []attachment `json:"attachments,omitempty" maxItems:"20"`
	UnsubscribeURL    string       `json:"unsubscribe_url,omitempty" maxLength:"2048" doc:"For one-click unsubscription (RFC 8058)."`
	UnsubscribeMailto string       `json:"unsubscribe_mailto,omitempty" maxLength:"254"`
}

type attachment struct {
	Filename    string `json:"filename" minLength:"1" maxLength:"255"`
	ContentType string `json:"content_type,omitempty" maxLength:"127" doc:"Default application/octet-stream."`
	Content     string `json:"content" minLength:"1" contentEncoding:"base64"`
}

type slackContent struct {
	Text   string  `json:"text,omitempty"`
	Blocks anyList `json:"blocks,omitempty" doc:"Block Kit blocks."`
	Thread string  `json:"thread,omitempty" pattern:"^[0-9]+\\.[0-9]+$" doc:"The ts of the parent message; through the bot only."`
}

type webhookContent struct {
	Payload anyJSON `json:"payload,omitempty" doc:"The request's body, any JSON. Without it: id, title, body, data, reference, metadata, created_at."`
}

// anyJSON is any JSON value, anyList an array of them.
type (
	anyJSON jsontext.Value
	anyList jsontext.Value
)

// Schema implements huma.SchemaProvider.
func (anyJSON) Schema(huma.Registry) *huma.Schema { return &huma.Schema{} }

// Schema implements huma.SchemaProvider.
func (anyList) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, Items: &huma.Schema{}}
}
