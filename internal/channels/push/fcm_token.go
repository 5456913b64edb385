package push

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/jwt"
	"golang.org/x/sync/singleflight"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const (
	// tokenEarly is how long before its end a token is renewed, so that no send
	// waits for it and a failing token endpoint has time to recover.
	tokenEarly = 5 * time.Minute
	// tokenSpare is the least life that a token is still used with.
	tokenSpare = 10 * time.Second
	// tokenEarlyPause lies between two attempts to renew early.
	tokenEarlyPause = 30 * time.Second
	// tokenTimeout bounds one request to the token endpoint. It belongs to no
	// single send: all that need the token wait for the same request.
	tokenTimeout = 10 * time.Second
	// tokenLife is assumed where the answer names none; it is Google's.
	tokenLife = time.Hour
)

// tokenSource holds the account's OAuth access token.
//
// It does not use [oauth2.ReuseTokenSource], whose callers wait for each other
// without regard to their deadlines and which renews only at the last moment.
type tokenSource struct {
	grant  *jwt.Config
	client *http.Client
	now    func() time.Time
	flight singleflight.Group

	mu        sync.Mutex
	current   *oauth2.Token
	nextEarly time.Time
}

// get returns an access token, or the Result of a send that has none. It returns
// when ctx ends at the latest.
func (s *tokenSource) get(ctx context.Context) (string, *channels.Result) {
	if err := ctx.Err(); err != nil {
		r := channels.Transport(ctx, err, false)
		return "", &r
	}
	token, early := s.cached()
	if early {
		s.fetch(ctx) // nobody waits for it
	}
	if token != "" {
		return token, nil
	}
	select {
	case res := <-s.fetch(ctx):
		if res.Err != nil {
			r := tokenFailure(ctx, res.Err)
			return "", &r
		}
		return res.Val.(string), nil
	case <-ctx.Done():
		r := channels.Transport(ctx, ctx.Err(), false)
		r.Detail = "token endpoint: " + r.Detail
		return "", &r
	}
}

// cached returns the token if it can be used, and whether it is time to renew it.
func (s *tokenSource) cached() (token string, early bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == nil {
		return "", false
	}
	now := s.now()
	left := s.current.Expiry.Sub(now)
	if left <= tokenSpare {
		return "", false
	}
	if left <= tokenEarly && !now.Before(s.nextEarly) {
		s.nextEarly = now.Add(tokenEarlyPause)
		early = true
	}
	return s.current.AccessToken, early
}

// forget drops token, which the provider refused, so that the next send asks for
// another.
func (s *tokenSource) forget(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil && s.current.AccessToken == token {
		s.current = nil
	}
}

// fetch asks the token endpoint, once for all who ask at the same time.
func (s *tokenSource) fetch(ctx context.Context) <-chan singleflight.Result {
	ctx = context.WithoutCancel(ctx)
	return s.flight.DoChan("", func() (any, error) {
		ctx, cancel := context.WithTimeout(ctx, tokenTimeout)
		defer cancel()
		rt := &boundTransport{ctx: ctx, base: s.client.Transport}
		client := &http.Client{Transport: rt, CheckRedirect: s.client.CheckRedirect}
		token, err := s.grant.TokenSource(context.WithValue(ctx, oauth2.HTTPClient, client)).Token()
		switch {
		case rt.err != nil:
			return nil, rt.err
		case err != nil:
			return nil, err
		case token.AccessToken == "":
			return nil, errNoToken
		}
		if token.Expiry.IsZero() {
			token.Expiry = s.now().Add(tokenLife)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.current = token
		return token.AccessToken, nil
	})
}

// boundTransport gives ctx to requests that are made without one, as those of
// package jwt are, and keeps the error that it turns into text.
type boundTransport struct {
	ctx  context.Context // as the transport does, it lives for one request
	base http.RoundTripper
	err  error
}

func (t *boundTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(req.WithContext(t.ctx))
	t.err = err
	return resp, err
}

var errNoToken = errors.New("answer without access token")

// tokenFailure classifies a failed request for a token. No message was sent, so
// nothing is Unknown; the endpoint's "no" means that the account is at fault.
func tokenFailure(ctx context.Context, err error) channels.Result {
	retrieve, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok {
		r := channels.Transport(context.WithoutCancel(ctx), err, false)
		r.Detail = "token endpoint: " + r.Detail
		return r
	}
	x := channels.Exchange{
		Status: retrieve.Response.StatusCode, Header: retrieve.Response.Header, Body: retrieve.Body, ReceivedAt: time.Now(),
	}
	r := x.Default(ctx, false)
	if r.Outcome == notify.MessageRejected {
		r.Outcome = notify.AccountRejected
	}
	var answer struct {
		Error string `json:"error"` // RFC 6749, 5.2, such as invalid_grant
	}
	if json.Unmarshal(x.Body, &answer) == nil {
		r.Code = code(answer.Error, oauthCode, "")
	}
	r.Detail = "token endpoint: " + r.Detail
	return r
}
