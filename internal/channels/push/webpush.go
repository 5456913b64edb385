package push

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	webpush "github.com/SherClockHolmes/webpush-go"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// WebPush sends to browsers (RFC 8030), encrypted for each (RFC 8291).
type WebPush struct {
	account  string
	settings webPushSettings
	client   *http.Client
	now      func() time.Time
}

var (
	_ channels.Provider = (*WebPush)(nil)
	_ channels.Checker  = (*WebPush)(nil)
	_ channels.Scoper   = (*WebPush)(nil)
)

// NewWebPush returns the named account. The error joins all that is wrong with cfg.
func NewWebPush(account string, cfg WebPushConfig) (*WebPush, error) {
	s, err := cfg.resolve()
	if err != nil {
		return nil, fmt.Errorf("webpush account %s: %w", account, err)
	}
	return &WebPush{account: account, settings: s, client: newGuardedClient(s.allow), now: time.Now}, nil
}

// Info implements [channels.Provider].
func (p *WebPush) Info() channels.Info {
	return channels.Info{Account: p.account, Channel: notify.Push, Provider: ProviderWebPush, MaxObservable: notify.Sent}
}

// Scopes implements [channels.Scoper]: every push service is one of its own.
func (p *WebPush) Scopes(t notify.Target) []string {
	if t.Device == nil {
		return nil
	}
	return []string{originScope(t)}
}

// originScope names the push service, by a hash where its host is too long.
func originScope(t notify.Target) string {
	const prefix, limit = "origin:", 64
	u, err := url.Parse(t.Device.Endpoint)
	if err != nil {
		u = &url.URL{}
	}
	host := strings.ToLower(u.Host)
	if len(prefix)+len(host) <= limit {
		return prefix + host
	}
	sum := sha256.Sum256([]byte(host))
	return prefix + hex.EncodeToString(sum[:16])
}

// Check implements [channels.Checker].
func (p *WebPush) Check(m *channels.Message) error {
	_, _, err := p.read(m)
	return asError(err)
}

// Send implements [channels.Provider].
func (p *WebPush) Send(ctx context.Context, m *channels.Message) channels.Result {
	a, payload, cerr := p.read(m)
	if cerr != nil {
		return refused(cerr)
	}
	ttl, over := lifetime(m, p.now())
	if over {
		return expired()
	}
	req, err := p.request(ctx, m, a, payload, ttl)
	if err != nil {
		return channels.Result{Outcome: notify.MessageRejected, Detail: "message cannot be encrypted"}
	}
	return webPushResult(ctx, channels.Do(p.client, req), m.To)
}

// request lets webpush-go encrypt and sign, and keeps the request that it makes.
func (p *WebPush) request(ctx context.Context, m *channels.Message, a alert, payload []byte, ttl time.Duration) (*http.Request, error) {
	d := m.To.Device
	var kept keeper
	resp, err := webpush.SendNotificationWithContext(ctx, payload, &webpush.Subscription{
		Endpoint: d.Endpoint,
		Keys:     webpush.Keys{Auth: d.Keys.Auth, P256dh: d.Keys.P256dh},
	}, &webpush.Options{
		HTTPClient:      &kept,
		RecordSize:      recordSize(len(payload)),
		Subscriber:      p.settings.subscriber,
		VAPIDPublicKey:  p.settings.publicKey,
		VAPIDPrivateKey: p.settings.privateKey,
		TTL:             int(ttl / time.Second),
		Urgency:         urgency(m.Priority),
		Topic:           topic(a.group),
	})
	if resp != nil {
		_ = resp.Body.Close() // there is none: the keeper answers nothing
	}
	if kept.req == nil {
		return nil, err
	}
	if base := p.settings.base; base != nil {
		kept.req.URL.Scheme, kept.req.URL.Host, kept.req.Host = base.Scheme, base.Host, base.Host
	}
	return kept.req, nil
}

// keeper is a client that keeps the request instead of sending it.
type keeper struct{ req *http.Request }

var errKept = errors.New("request kept")

// Do implements [webpush.HTTPClient].
func (k *keeper) Do(req *http.Request) (*http.Response, error) {
	k.req = req
	return nil, errKept
}

// urgency is how much of the device's battery the message is worth (RFC 8030, 5.3).
func urgency(p notify.Priority) webpush.Urgency {
	switch p {
	case notify.Critical, notify.High:
		return webpush.UrgencyHigh
	case notify.Low:
		return webpush.UrgencyLow
	case notify.Normal:
		return webpush.UrgencyNormal
	}
	return webpush.UrgencyNormal
}
