// Package webhook calls HTTP endpoints that recipients name, signed as Standard
// Webhooks 1.0.0 says (https://www.standardwebhooks.com).
package webhook

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/h1"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// ProviderName is the provider's name in the configuration.
const ProviderName = "webhook"

// Provider calls endpoints for one account. Its scopes are hosts, and so are its
// breakers to be: one dead endpoint says nothing of the others.
type Provider struct {
	account   string
	userAgent string
	signers   []*standardwebhooks.Webhook
	guard     *guard
	client    *h1.Client
	now       func() time.Time
}

var (
	_ channels.Provider = (*Provider)(nil)
	_ channels.Checker  = (*Provider)(nil)
	_ channels.Scoper   = (*Provider)(nil)
)

// New returns the named account. The error joins all that is wrong with cfg.
func New(account string, cfg Config) (*Provider, error) {
	s, err := cfg.resolve()
	if err != nil {
		return nil, fmt.Errorf("webhook account %s: %w", account, err)
	}
	p := assemble(account, s)
	if p.signers, err = signers(s.keys); err != nil {
		return nil, fmt.Errorf("webhook account %s: %w", account, err)
	}
	return p, nil
}

func assemble(account string, s settings) *Provider {
	g := newGuard(s.rules)
	return &Provider{account: account, userAgent: s.userAgent, guard: g, client: g.client(), now: time.Now}
}

func signers(keys [][]byte) ([]*standardwebhooks.Webhook, error) {
	out := make([]*standardwebhooks.Webhook, len(keys))
	for i, key := range keys {
		var err error
		if out[i], err = standardwebhooks.NewWebhookRaw(key); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Info implements [channels.Provider]. A 2xx is the recipient's own answer, so
// that delivery is known.
func (p *Provider) Info() channels.Info {
	return channels.Info{Account: p.account, Channel: notify.Webhook, Provider: ProviderName, MaxObservable: notify.Delivered}
}

// Scopes implements [channels.Scoper].
func (p *Provider) Scopes(t notify.Target) []string {
	if t.Webhook == nil {
		return nil
	}
	e, err := parseEndpoint(t.Webhook.URL)
	if err != nil {
		return nil
	}
	return []string{e.scope()}
}

// Check implements [channels.Checker].
func (p *Provider) Check(m *channels.Message) error {
	if _, err := p.check(m); err != nil {
		return err
	}
	if _, err := payload(m); err != nil {
		return err
	}
	return nil
}

func (p *Provider) check(m *channels.Message) (endpoint, *channels.CheckError) {
	w := m.To.Webhook
	if w == nil {
		return endpoint{}, &channels.CheckError{Field: "/to/webhook", Reason: "must be given"}
	}
	e, err := parseEndpoint(w.URL)
	if err != nil {
		return endpoint{}, err
	}
	if err := p.guard.permits(e); err != nil {
		return endpoint{}, err
	}
	return e, checkHeaders(w.Headers)
}

// Send implements [channels.Provider].
func (p *Provider) Send(ctx context.Context, m *channels.Message) channels.Result {
	return p.send(ctx, m, m.Key.String(), p.signers)
}

func (p *Provider) send(ctx context.Context, m *channels.Message, id string, by []*standardwebhooks.Webhook) channels.Result {
	e, cerr := p.check(m)
	if cerr != nil {
		return channels.Result{Outcome: notify.RecipientRejected, Detail: cerr.Error()}
	}
	body, cerr := payload(m)
	if cerr != nil {
		return channels.Result{Outcome: notify.MessageRejected, Detail: cerr.Error()}
	}
	req := h1.Request{TLS: e.tls, Addr: e.addr, Authority: e.authority, Target: e.path, Header: make(http.Header, 8), Body: body}
	if err := p.setHeaders(req.Header, m, id, by, body); err != nil {
		return channels.Result{Outcome: notify.MessageRejected, Detail: "cannot be signed"}
	}
	return classify(ctx, p.client.Post(ctx, &req), e.scope())
}

func (p *Provider) setHeaders(h http.Header, m *channels.Message, id string, by []*standardwebhooks.Webhook, body []byte) error {
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", p.userAgent)
	setHeaders(h, m.To.Webhook)
	if m.Trace != "" {
		h.Set("Traceparent", m.Trace)
	}
	now := p.now()
	signatures := make([]string, len(by))
	for i, s := range by {
		var err error
		if signatures[i], err = s.Sign(id, now, body); err != nil {
			return fmt.Errorf("sign: %w", err)
		}
	}
	h.Set(standardwebhooks.HeaderWebhookID, id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}

// envelope is the body of a message that brings no payload of its own. It is the
// same in every attempt.
type envelope struct {
	ID        uuid.UUID      `json:"id"` // the notification's
	Title     string         `json:"title,omitzero"`
	Body      string         `json:"body,omitzero"`
	Data      jsontext.Value `json:"data,omitzero"`
	Reference string         `json:"reference,omitzero"`
	Metadata  jsontext.Value `json:"metadata,omitzero"`
	CreatedAt time.Time      `json:"created_at"`
}

// payload returns the request's body.
func payload(m *channels.Message) ([]byte, *channels.CheckError) {
	if w := m.Content.Webhook; w != nil && len(w.Payload) > 0 {
		if !w.Payload.IsValid() {
			return nil, &channels.CheckError{Field: "/content/webhook/payload", Reason: "must be JSON"}
		}
		return w.Payload, nil
	}
	c := m.Content
	body, err := json.Marshal(envelope{m.NotificationID, c.Title, c.Body, c.Data, m.Reference, m.Metadata, m.CreatedAt.UTC()})
	if err != nil {
		return nil, &channels.CheckError{Field: "/content", Reason: "cannot be written as JSON"}
	}
	return body, nil
}
