package push

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// FCM sends through Firebase Cloud Messaging, HTTP v1.
type FCM struct {
	account  string
	endpoint string
	client   *http.Client
	tokens   *tokenSource
	now      func() time.Time
}

var (
	_ channels.Provider = (*FCM)(nil)
	_ channels.Checker  = (*FCM)(nil)
	_ channels.Scoper   = (*FCM)(nil)
)

// NewFCM returns the named account. The error joins all that is wrong with cfg.
func NewFCM(account string, cfg FCMConfig) (*FCM, error) {
	endpoint, grant, err := cfg.resolve()
	if err != nil {
		return nil, fmt.Errorf("fcm account %s: %w", account, err)
	}
	client := channels.NewHTTPClient(perHost)
	return &FCM{
		account:  account,
		endpoint: endpoint,
		client:   client,
		tokens:   &tokenSource{grant: grant, client: client, now: time.Now},
		now:      time.Now,
	}, nil
}

// Info implements [channels.Provider].
func (p *FCM) Info() channels.Info {
	return channels.Info{Account: p.account, Channel: notify.Push, Provider: ProviderFCM, MaxObservable: notify.Sent}
}

// Scopes implements [channels.Scoper]: FCM limits messages to one device too.
func (p *FCM) Scopes(t notify.Target) []string { return []string{deviceScope(t)} }

// Check implements [channels.Checker].
func (p *FCM) Check(m *channels.Message) error {
	_, _, err := readFCM(m)
	return asError(err)
}

// Send implements [channels.Provider]. Now and then it waits for an access token
// first; while there is none, no message is sent.
func (p *FCM) Send(ctx context.Context, m *channels.Message) channels.Result {
	a, data, cerr := readFCM(m)
	if cerr != nil {
		return refused(cerr)
	}
	now := p.now()
	ttl, over := lifetime(m, now)
	if over {
		return expired()
	}
	body, err := fcmBody(m, a, data, now, ttl)
	if err != nil {
		return refused(&channels.CheckError{Field: fieldPush, Reason: "must be valid UTF-8"})
	}
	token, failure := p.tokens.get(ctx)
	if failure != nil {
		return *failure
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.endpoint, bytes.NewReader(body))
	if err != nil {
		return channels.Result{Outcome: notify.AccountRejected, Detail: "base_url makes no request"}
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	x := channels.Do(p.client, req)
	r := fcmResult(ctx, x, m.To)
	if x.Status == http.StatusUnauthorized && r.Code != fcmThirdPartyAuth {
		p.tokens.forget(token)
	}
	return r
}
