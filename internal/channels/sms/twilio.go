package sms

import (
	"context"
	"errors"
	"time"

	openapi "github.com/twilio/twilio-go/rest/api/v2010"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/twilio"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Limits of Twilio's ValidityPeriod.
const (
	minValidity = time.Second
	maxValidity = 36000 * time.Second
)

// Provider sends SMS through Twilio.
type Provider struct {
	account       string
	from, service string // one of them may be empty
	smartEncoded  bool
	maxSegments   int // 0: no limit
	client        *twilio.Client
	now           func() time.Time
}

var (
	_ channels.Provider       = (*Provider)(nil)
	_ channels.Checker        = (*Provider)(nil)
	_ channels.Scoper         = (*Provider)(nil)
	_ channels.Lookup         = (*Provider)(nil)
	_ channels.CallbackReader = (*Provider)(nil)
	_ channels.Poller         = (*Provider)(nil)
)

// New returns the provider of one account, or every problem of its configuration
// joined, each beginning with its yaml key.
func New(account string, cfg Config) (*Provider, error) {
	client, err := twilio.NewClient(cfg.Account)
	if err := errors.Join(err, cfg.problems()); err != nil {
		return nil, err
	}
	return &Provider{
		account: account, from: cfg.From, service: cfg.MessagingServiceSID,
		smartEncoded: cfg.SmartEncoded, maxSegments: cfg.MaxSegments, client: client, now: time.Now,
	}, nil
}

// Info implements [channels.Provider]. An SMS has no receipt of having been read.
func (p *Provider) Info() channels.Info {
	return channels.Info{Account: p.account, Channel: notify.SMS, Provider: "twilio", MaxObservable: notify.Delivered, Receipts: true}
}

// Scopes implements [channels.Scoper].
func (p *Provider) Scopes(t notify.Target) []string { return twilio.Scopes(notify.SMS, t) }

// Send implements [channels.Provider].
func (p *Provider) Send(ctx context.Context, m *channels.Message) channels.Result {
	validity, ok := p.validity(m)
	if !ok {
		return channels.Result{Outcome: notify.Expired, Detail: "expired before the call"}
	}
	params := &openapi.CreateMessageParams{}
	params.SetTo(m.To.Phone).SetBody(m.Content.SMSText()).SetValidityPeriod(validity)
	if p.from != "" {
		params.SetFrom(p.from)
	}
	if p.service != "" {
		params.SetMessagingServiceSid(p.service)
	}
	if p.smartEncoded {
		params.SetSmartEncoded(true)
	}
	if callback := p.client.StatusCallback(m); callback != "" {
		params.SetStatusCallback(callback)
	}
	return twilio.Result(ctx, p.client.CreateMessage(ctx, params), notify.SMS, m.To)
}

// LookupScopes implements [channels.Lookup]: what limits a sender or a recipient
// does not limit reading.
func (p *Provider) LookupScopes(notify.Target) []string { return nil }

// LookUp implements [channels.Lookup].
func (p *Provider) LookUp(ctx context.Context, m *channels.Message, began, ended time.Time) channels.Sighting {
	text := m.Content.SMSText()
	_, encoding := Segments(text)
	return p.client.LookUp(ctx, twilio.Wanted{
		Channel: notify.SMS, Target: m.To, To: m.To.Phone, From: p.from, Service: p.service, Body: text,
		// A Messaging Service encodes smartly unless it was told not to.
		Altered: encoding != GSM7 && (p.smartEncoded || p.service != ""), Began: began, Ended: ended,
	})
}

// ReadCallback implements [channels.CallbackReader].
func (p *Provider) ReadCallback(_ context.Context, c *channels.Callback) (channels.Report, error) {
	return p.client.ReadCallback(notify.SMS, c)
}

// Poll implements [channels.Poller].
func (p *Provider) Poll(ctx context.Context, messageID string) (channels.Receipt, channels.Result) {
	return p.client.Poll(ctx, messageID)
}

// validity returns for how many seconds Twilio may keep m in its queue, and false
// when m's time is over. A message without an end gets the most that Twilio
// allows.
func (p *Provider) validity(m *channels.Message) (seconds int, ok bool) {
	left := maxValidity
	if !m.ExpiresAt.IsZero() {
		left = m.ExpiresAt.Sub(p.now())
	}
	if left <= 0 {
		return 0, false
	}
	return int(min(max(left, minValidity), maxValidity) / time.Second), true
}
