// Package client sends notifications through Dispatcher: over its HTTP API with
// [Client], and with [EnqueueTx] inside a transaction of the caller's own
// database, committed or rolled back together with the caller's rows.
//
// Calls are repeated when repeating is safe and likely to help: a connection that
// fails, 429, and a 502, 503 or 504. [Client.Send] carries an idempotency key, so
// that a repeat is recognized and nothing is sent twice. [Client.Events] follows
// what happens over broken connections, without a gap or a repeat.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Defaults of a [Client].
const (
	// DefaultAttempts is how many times a call is tried.
	DefaultAttempts = 6
	// DefaultTimeout bounds one try of the client's own http.Client.
	DefaultTimeout = 30 * time.Second
)

const (
	backoffBase = 200 * time.Millisecond
	backoffCap  = 10 * time.Second
	maxAnswer   = 32 << 20
)

// Client calls the API of one service. It is safe for concurrent use.
type Client struct {
	base     *url.URL
	key      string
	http     *http.Client
	agent    string
	attempts int
}

// Option changes a [Client].
type Option func(*Client)

// WithHTTPClient makes calls go through c; default is a client of its own with
// [DefaultTimeout].
func WithHTTPClient(c *http.Client) Option { return func(to *Client) { to.http = c } }

// WithAttempts tries each call so many times at most, with waits between them;
// 1 never repeats. Default is [DefaultAttempts]; less than 1 counts as 1.
func WithAttempts(n int) Option { return func(to *Client) { to.attempts = max(n, 1) } }

// WithUserAgent names the caller's program; default dispatcher-go.
func WithUserAgent(name string) Option { return func(to *Client) { to.agent = name } }

// New returns a client of the service at baseURL, such as
// https://dispatcher.example.com, which is called with an API key.
func New(baseURL, key string, options ...Option) (*Client, error) {
	base, err := url.Parse(baseURL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" || base.User != nil {
		return nil, errors.New("client: the base URL must be an absolute http or https URL without user name")
	}
	if key == "" || strings.ContainsAny(key, "\r\n") {
		return nil, errors.New("client: an API key is needed")
	}
	base.RawQuery, base.Fragment = "", ""
	c := &Client{
		base: base, key: key, http: &http.Client{Timeout: DefaultTimeout}, agent: "dispatcher-go", attempts: DefaultAttempts,
	}
	for _, o := range options {
		o(c)
	}
	return c, nil
}

// call is one call of the API, however often it is tried.
type call struct {
	method string
	path   []string
	query  url.Values
	key    string // Idempotency-Key
	body   []byte
	accept string // default JSON
	last   string // Last-Event-ID
}

// do makes a call and decodes its answer into out. It returns a [*Problem] where
// the service refused, and otherwise an error about the connection.
func (c *Client) do(ctx context.Context, what call, out any) error {
	for n := 1; ; n++ {
		again, wait, err := c.try(ctx, &what, out)
		if err == nil || !again || n >= c.attempts || ctx.Err() != nil {
			return err
		}
		wait = max(wait, backoff(n))
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < wait {
			return err // the answer that is known says more than "deadline exceeded"
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// backoff is how long to wait after try n, counted from 1: exponential, with
// jitter over its upper half.
func backoff(n int) time.Duration {
	d := min(backoffBase<<min(n-1, 16), backoffCap)
	return d/2 + rand.N(d/2)
}

// try makes a call once. again says that another try may help, after wait at the
// earliest.
func (c *Client) try(ctx context.Context, what *call, out any) (again bool, wait time.Duration, err error) {
	r, err := c.request(ctx, what)
	if err != nil {
		return false, 0, err
	}
	response, err := c.http.Do(r)
	if err != nil {
		return true, 0, fmt.Errorf("client: %s %s: %w", what.method, c.base.Redacted(), cause(err))
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return true, 0, fmt.Errorf("client: read the answer: %w", err)
	}
	if response.StatusCode/100 == 2 {
		if err := json.Unmarshal(body, out); err != nil {
			return false, 0, fmt.Errorf("client: the answer is not what the API says: %w", err)
		}
		return false, 0, nil
	}
	p := problemOf(response, body)
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		again = true
	}
	return again, p.RetryAfter, p
}

func (c *Client) request(ctx context.Context, what *call) (*http.Request, error) {
	target := c.base.JoinPath(what.path...)
	target.RawQuery = what.query.Encode()
	r, err := http.NewRequestWithContext(ctx, what.method, target.String(), bytes.NewReader(what.body))
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("Accept", first(what.accept, "application/json, application/problem+json"))
	r.Header.Set("User-Agent", c.agent)
	if what.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if what.key != "" {
		r.Header.Set("Idempotency-Key", strconv.Quote(what.key))
	}
	if what.last != "" {
		r.Header.Set("Last-Event-ID", what.last)
	}
	return r, nil
}

// cause takes the URL out of an error of net/http: a query may hold an address.
func cause(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

// problemOf reads the problem document of a refusal, or makes one up for an
// answer that is not the service's own.
func problemOf(r *http.Response, body []byte) *Problem {
	p := &Problem{}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/problem+json" || json.Unmarshal(body, p) != nil {
		p = &Problem{Title: http.StatusText(r.StatusCode), Detail: "the answer is not the service's own"}
	}
	p.Status, p.RetryAfter = r.StatusCode, retryAfter(r.Header.Get("Retry-After"))
	return p
}

// retryAfter reads the header of RFC 9110, section 10.2.3: seconds or a date.
func retryAfter(s string) time.Duration {
	if seconds, err := strconv.Atoi(s); err == nil && seconds >= 0 && seconds < 1<<31 {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(s); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}
