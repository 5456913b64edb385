package whatsapp

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"time"

	openapi "github.com/twilio/twilio-go/rest/api/v2010"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/twilio"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// TwilioConfig is an account at Twilio for WhatsApp.
//
// What it takes to send for real: a WhatsApp sender registered in the Twilio
// Console (Messaging > Senders), which links a number to a WhatsApp Business
// Account, and templates made in its Content Template Builder and approved by
// WhatsApp. The Console's sandbox number works at once for those who join it.
type TwilioConfig struct {
	twilio.Account `yaml:",inline"`
	// From is the sender's number in E.164, with or without "whatsapp:" before it.
	From string `yaml:"from"`
	// MessagingServiceSID is MG and 32 hexadecimal digits: a service with a
	// WhatsApp sender in its pool. Either it or From is required; with both, From
	// must be in the pool.
	MessagingServiceSID string `yaml:"messaging_service_sid"`
}

// prefix marks an address of WhatsApp's at Twilio.
const prefix = twilio.WhatsAppPrefix

var (
	number     = regexp.MustCompile(`^\+[1-9][0-9]{5,14}$`)
	contentSID = regexp.MustCompile(`^HX[0-9a-fA-F]{32}$`)
)

// maxTwilioBody is how many characters Twilio takes in Body.
const maxTwilioBody = 1600

// problems returns what is wrong with c beside its account.
func (c TwilioConfig) problems() error {
	var problems []error
	switch {
	case c.From == "" && c.MessagingServiceSID == "":
		problems = append(problems, errors.New("from: is required, or messaging_service_sid"))
	case c.From != "" && !number.MatchString(strings.TrimPrefix(c.From, prefix)):
		problems = append(problems, errors.New("from: must be a number in E.164"))
	}
	if c.MessagingServiceSID != "" && !twilio.IsSID("MG", c.MessagingServiceSID) {
		problems = append(problems, errors.New("messaging_service_sid: must be MG and 32 hexadecimal digits"))
	}
	return errors.Join(problems...)
}

// Twilio sends WhatsApp messages through Twilio.
type Twilio struct {
	account string
	from    string // with its prefix, or empty
	service string
	client  *twilio.Client
}

var (
	_ channels.Provider       = (*Twilio)(nil)
	_ channels.Checker        = (*Twilio)(nil)
	_ channels.Scoper         = (*Twilio)(nil)
	_ channels.Lookup         = (*Twilio)(nil)
	_ channels.CallbackReader = (*Twilio)(nil)
	_ channels.Poller         = (*Twilio)(nil)
)

// NewTwilio returns the provider of one account, or every problem of its
// configuration joined, each beginning with its yaml key.
func NewTwilio(account string, cfg TwilioConfig) (*Twilio, error) {
	client, err := twilio.NewClient(cfg.Account)
	if err := errors.Join(err, cfg.problems()); err != nil {
		return nil, err
	}
	p := &Twilio{account: account, service: cfg.MessagingServiceSID, client: client}
	if cfg.From != "" {
		p.from = prefix + strings.TrimPrefix(cfg.From, prefix)
	}
	return p, nil
}

// Info implements [channels.Provider]. A person may have turned off that others
// see what they have read; such messages stay delivered.
func (p *Twilio) Info() channels.Info {
	return channels.Info{Account: p.account, Channel: notify.WhatsApp, Provider: "twilio", MaxObservable: notify.Read, Receipts: true}
}

// Scopes implements [channels.Scoper].
func (p *Twilio) Scopes(t notify.Target) []string { return twilio.Scopes(notify.WhatsApp, t) }

// Check implements [channels.Checker].
func (p *Twilio) Check(m *channels.Message) error {
	if t := template(m.Content); t != nil {
		if !contentSID.MatchString(t.Name) {
			return &channels.CheckError{Field: templateName, Reason: "must be a content sid of twilio: HX and 32 hexadecimal digits"}
		}
		return nil
	}
	return checkText(m.Content, maxTwilioBody)
}

// Send implements [channels.Provider]. A template goes alone: beside a body,
// Twilio may take the body for the message.
func (p *Twilio) Send(ctx context.Context, m *channels.Message) channels.Result {
	params := &openapi.CreateMessageParams{}
	params.SetTo(prefix + m.To.Phone)
	if p.from != "" {
		params.SetFrom(p.from)
	}
	if p.service != "" {
		params.SetMessagingServiceSid(p.service)
	}
	if t := template(m.Content); t == nil {
		params.SetBody(m.Content.WhatsAppText())
	} else {
		params.SetContentSid(t.Name)
		if len(t.Variables) > 0 {
			// A map of strings has JSON, its keys in order.
			variables, _ := json.Marshal(t.Variables)
			params.SetContentVariables(string(variables))
		}
	}
	if callback := p.client.StatusCallback(m); callback != "" {
		params.SetStatusCallback(callback)
	}
	return twilio.Result(ctx, p.client.CreateMessage(ctx, params), notify.WhatsApp, m.To)
}

// LookupScopes implements [channels.Lookup]: what limits a sender or a recipient
// does not limit reading.
func (p *Twilio) LookupScopes(notify.Target) []string { return nil }

// LookUp implements [channels.Lookup]. A template cannot be found again: Twilio
// shows the text that it made of it, and neither its name nor its variables.
func (p *Twilio) LookUp(ctx context.Context, m *channels.Message, began, ended time.Time) channels.Sighting {
	if template(m.Content) != nil {
		return channels.Sighting{Call: channels.Result{Outcome: notify.NotAttempted, Detail: "a template cannot be looked up"}}
	}
	return p.client.LookUp(ctx, twilio.Wanted{
		Channel: notify.WhatsApp, Target: m.To, To: prefix + m.To.Phone, From: p.from, Service: p.service,
		Body: m.Content.WhatsAppText(), Began: began, Ended: ended,
	})
}

// ReadCallback implements [channels.CallbackReader].
func (p *Twilio) ReadCallback(_ context.Context, c *channels.Callback) (channels.Report, error) {
	return p.client.ReadCallback(notify.WhatsApp, c)
}

// Poll implements [channels.Poller].
func (p *Twilio) Poll(ctx context.Context, messageID string) (channels.Receipt, channels.Result) {
	return p.client.Poll(ctx, messageID)
}
