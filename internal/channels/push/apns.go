package push

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// APNs sends through the Apple Push Notification service.
type APNs struct {
	account string
	topic   string
	base    string
	client  *http.Client
	token   *providerToken
	now     func() time.Time
	// proven is set once APNs has known a device. Until then a bad device token
	// may as well be one of the other environment or of another app, and the whole
	// account's devices must not be suppressed for a wrong base_url.
	proven atomic.Bool
}

var (
	_ channels.Provider = (*APNs)(nil)
	_ channels.Checker  = (*APNs)(nil)
	_ channels.Scoper   = (*APNs)(nil)
)

// NewAPNs returns the named account. The error joins all that is wrong with cfg.
func NewAPNs(account string, cfg APNsConfig) (*APNs, error) {
	base, client, key, err := cfg.resolve()
	if err != nil {
		return nil, fmt.Errorf("apns account %s: %w", account, err)
	}
	return &APNs{
		account: account,
		topic:   cfg.Topic,
		base:    base,
		client:  client,
		token:   &providerToken{key: key, keyID: cfg.KeyID, teamID: cfg.TeamID},
		now:     time.Now,
	}, nil
}

// Info implements [channels.Provider].
func (p *APNs) Info() channels.Info {
	return channels.Info{Account: p.account, Channel: notify.Push, Provider: ProviderAPNs, MaxObservable: notify.Sent}
}

// Scopes implements [channels.Scoper]: APNs limits messages to one device too.
func (p *APNs) Scopes(t notify.Target) []string { return []string{deviceScope(t)} }

// Check implements [channels.Checker].
func (p *APNs) Check(m *channels.Message) error {
	_, _, err := apnsPayload(m)
	return asError(err)
}

// Send implements [channels.Provider].
//
// Of a provider token that APNs calls expired, Send makes no second call: it
// renews the token and reports Throttled, so that the retry uses the new one and
// neither an attempt nor the breaker pays for it.
func (p *APNs) Send(ctx context.Context, m *channels.Message) channels.Result {
	a, payload, cerr := apnsPayload(m)
	if cerr != nil {
		return refused(cerr)
	}
	now := p.now()
	ttl, over := lifetime(m, now)
	if over {
		return expired()
	}
	bearer, err := p.token.get(now)
	if err != nil {
		return channels.Result{Outcome: notify.AccountRejected, Detail: "private_key cannot sign"}
	}
	target := p.base + "/3/device/" + url.PathEscape(m.To.Device.Token)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(payload))
	if err != nil {
		return channels.Result{Outcome: notify.AccountRejected, Detail: "base_url makes no request"}
	}
	req.Header = http.Header{
		"Authorization":    {"bearer " + bearer},
		"Content-Type":     {"application/json"},
		"Apns-Id":          {m.Key.String()},
		"Apns-Topic":       {p.topic},
		"Apns-Push-Type":   {"alert"},
		"Apns-Priority":    {apnsPriority(m.Priority)},
		"Apns-Expiration":  {apnsExpiration(now, ttl)},
		"Apns-Collapse-Id": {a.group},
	}
	return p.result(ctx, channels.Do(p.client, req), m.To, bearer)
}
