package channels

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// maxAnswer bounds how much of an answer's body is read.
const maxAnswer = 64 << 10

// Exchange is one HTTP request and what came back of it.
type Exchange struct {
	Status int // 0 when there was no answer
	Header http.Header
	Body   []byte // at most 64 KiB, or 1 MiB of a listing; the rest is dropped
	// Wrote reports whether the request may have been written whole, after which
	// an error leaves it open whether the provider acted on it.
	Wrote bool
	// Err is the transport's error. With a Status other than 0 it means that the
	// body broke off.
	Err        error
	ReceivedAt time.Time // when the answer's header, or the error, arrived
}

// Do sends req once and reads the answer. It never returns an error of its own:
// what went wrong is in the Exchange. The body is drained and closed.
func Do(client *http.Client, req *http.Request) Exchange { return do(client, req, maxAnswer) }

// DoListing is [Do] for a look-up, whose answer may be a list: it reads up to 1 MiB.
func DoListing(client *http.Client, req *http.Request) Exchange { return do(client, req, maxListing) }

func do(client *http.Client, req *http.Request, limit int64) Exchange {
	var x Exchange
	ctx, wrote := TraceWrite(req.Context())
	resp, err := client.Do(req.WithContext(ctx)) //nolint:gosec // where a URL is the caller's, the client's dialer guards it
	x.ReceivedAt = time.Now()
	x.Wrote = wrote.Load()
	if err != nil {
		x.Err = err
		return x
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end or given up below
	x.Status, x.Header, x.Wrote = resp.StatusCode, resp.Header, true
	x.Body, x.Err = io.ReadAll(io.LimitReader(resp.Body, limit))
	if x.Err == nil {
		// A little more, so that the connection can be used again.
		_, _ = io.CopyN(io.Discard, resp.Body, maxAnswer)
	}
	return x
}

// TraceWrite returns a context that notes when a request under it may have been
// written whole, for adapters whose SDK makes the call. A connection that breaks
// before that can have done no harm.
//
// It counts from the header on, until writing is known to have failed: net/http
// reports the whole request only after its last byte is out, and by then a quick
// server may have acted and hung up.
func TraceWrite(ctx context.Context) (context.Context, *atomic.Bool) {
	wrote := new(atomic.Bool)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		WroteHeaders: func() { wrote.Store(true) },
		WroteRequest: func(info httptrace.WroteRequestInfo) { wrote.Store(info.Err == nil) },
	}), wrote
}

// RetryAfter is what the answer's Retry-After asks for, 0 when it names nothing.
// It is honoured on any answer that is not a success.
func (x Exchange) RetryAfter() time.Duration {
	if x.Status >= 200 && x.Status < 300 {
		return 0
	}
	d, _ := resilience.RetryAfter(x.Header, x.ReceivedAt)
	return d
}

// Default classifies the exchange by what every HTTP API has in common, for
// answers that the provider's own table does not know: transport errors by
// whether the request was written, 408, 425 and 429 as throttled, 401 and 403 as
// the account's fault, 5xx as the provider's, other 4xx as the message's.
// A 2xx is Unknown: success must prove itself, and the caller found no proof.
//
// ambiguous says that a 5xx may come after the provider acted, so that it is
// Unknown too: true for a POST that no key makes idempotent.
func (x Exchange) Default(ctx context.Context, ambiguous bool) Result {
	r := Result{HTTPStatus: x.Status, RetryAfter: x.RetryAfter()}
	switch {
	case x.Status == 0:
		return Transport(ctx, x.Err, x.Wrote)
	case x.Status >= 200 && x.Status < 300:
		r.Outcome, r.Detail = notify.Unknown, "success without proof"
	case x.Status == http.StatusRequestTimeout, x.Status == http.StatusTooEarly, x.Status == http.StatusTooManyRequests:
		r.Outcome = notify.Throttled
	case x.Status == http.StatusUnauthorized, x.Status == http.StatusForbidden:
		r.Outcome = notify.AccountRejected
	case x.Status >= 500 && ambiguous:
		r.Outcome = notify.Unknown
	case x.Status >= 500, x.Status < 400:
		r.Outcome = notify.ProviderUnavailable
	default:
		r.Outcome = notify.MessageRejected
	}
	if r.Detail == "" {
		r.Detail = fmt.Sprintf("http status %d", x.Status)
	}
	return r
}

// Transport classifies a call that got no answer. wrote says whether the request
// had been written whole. A call that we ended ourselves (ctx canceled, as at
// shutdown) before anything was written was not attempted; a deadline that
// passed is the provider's slowness.
func Transport(ctx context.Context, err error, wrote bool) Result {
	detail := transportDetail(err)
	switch {
	case wrote:
		return Result{Outcome: notify.Unknown, Detail: detail + " after the request was written"}
	case errors.Is(ctx.Err(), context.Canceled):
		return Result{Outcome: notify.NotAttempted, Detail: "canceled before the request was written"}
	default:
		return Result{Outcome: notify.ProviderUnavailable, Detail: detail}
	}
}

// transportDetail names the kind of err in words of our own: the text of a
// transport error holds the URL, and a URL may hold a token.
func transportDetail(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	var timeout interface{ Timeout() bool }
	switch {
	case err == nil:
		return "no answer"
	case errors.As(err, &dns):
		return "name not resolved"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timed out"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "connection closed"
	case errors.As(err, &op):
		return "network error on " + op.Op
	default:
		return "network error"
	}
}

// NewHTTPClient returns the client that adapters share the settings of: no
// redirects, no proxy from the environment, keep-alive connections enough for
// perHost calls in flight, HTTP/2 where the server speaks it. Deadlines are the
// callers'.
func NewHTTPClient(perHost int) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:            (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext,
			ForceAttemptHTTP2:      true,
			MaxIdleConns:           4 * perHost,
			MaxIdleConnsPerHost:    perHost,
			IdleConnTimeout:        90 * time.Second,
			TLSHandshakeTimeout:    10 * time.Second,
			ExpectContinueTimeout:  time.Second,
			MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}
