package twilio

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	sdk "github.com/twilio/twilio-go/client"
	openapi "github.com/twilio/twilio-go/rest/api/v2010"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// connections is how many idle connections to Twilio are kept: as many as a
// channel has calls in flight by default.
const connections = 256

// Client creates messages for one account, asks what became of them, and reads
// Twilio's callbacks. It is safe for concurrent use.
type Client struct {
	sid         string
	credentials func() (user, password string) // not the values, which %+v of the fields would print
	tokens      []secret.Value                 // that callbacks may be signed with
	base        string
	http        *http.Client
}

// NewClient returns the client of a, or every problem of a joined, each beginning
// with its yaml key.
func NewClient(a Account) (*Client, error) {
	base, err := channels.BaseURL(a.BaseURL, vendorURL)
	if err := errors.Join(a.validate(), err); err != nil {
		return nil, err
	}
	return &Client{
		sid: a.AccountSID, credentials: a.credentials, tokens: a.callbackTokens(), base: base,
		http: channels.NewHTTPClient(connections),
	}, nil
}

// get asks for a resource of the account, whose path below the account is given
// with its query.
func (c *Client) get(ctx context.Context, path string, do func(*http.Client, *http.Request) channels.Exchange) channels.Exchange {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/2010-04-01/Accounts/"+c.sid+path, http.NoBody)
	if err != nil {
		return channels.Exchange{Err: err}
	}
	req.Header.Set("Accept", "application/json")
	req.SetBasicAuth(c.credentials())
	return do(c.http, req)
}

// CreateMessage makes the one call that sends a message and returns what came of
// it. Read it with [Result].
func (c *Client) CreateMessage(ctx context.Context, p *openapi.CreateMessageParams) channels.Exchange {
	k := &call{ctx: ctx, client: c}
	// Not sdk.NewRequestHandler, which takes region and edge from the environment.
	service := openapi.NewApiService(&sdk.RequestHandler{Client: k})
	if _, err := service.CreateMessage(p); err != nil && !errors.Is(err, errRecorded) {
		k.exchange.Err = err // it never came to a call
	}
	return k.exchange
}

// errRecorded stops the SDK where its reading of an answer would begin. That
// reading loses status and headers on errors, leaks the body, and takes a
// redirect for success.
var errRecorded = errors.New("exchange recorded")

// call is one request as the SDK's transport. The SDK has no context, so that the
// transport carries it, for the length of the call.
type call struct {
	ctx      context.Context
	client   *Client
	exchange channels.Exchange
}

var _ sdk.BaseClient = (*call)(nil)

// SendRequest sends what the SDK made of the parameters, to the account's own
// base URL, and records what comes back. Its error is never nil.
func (k *call) SendRequest(
	method, rawURL string, data url.Values, headers map[string]any, _ ...byte,
) (*http.Response, error) {
	path, ok := strings.CutPrefix(rawURL, vendorURL)
	if !ok {
		return nil, errors.New("sdk calls another host")
	}
	req, err := http.NewRequestWithContext(k.ctx, method, k.client.base+path, strings.NewReader(data.Encode()))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for name, value := range headers {
		req.Header.Set(name, fmt.Sprint(value))
	}
	req.Header.Set("Accept", "application/json")
	req.SetBasicAuth(k.client.credentials())
	k.exchange = channels.Do(k.client.http, req)
	return nil, errRecorded
}

// AccountSid is the SID in the request's path.
func (k *call) AccountSid() string { return k.client.sid }

// SetTimeout does nothing: the deadline is the context's.
func (k *call) SetTimeout(time.Duration) {}

// SetOauth does nothing: authentication is the account's.
func (k *call) SetOauth(sdk.OAuth) {}

// OAuth returns nil.
func (k *call) OAuth() sdk.OAuth { return nil }
