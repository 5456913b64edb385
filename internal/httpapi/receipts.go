package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

// Receipts take in what providers report by callback. An answer means that it is
// durable. The error is a [*channels.CallbackError] where the callback is refused,
// else one of the store.
type Receipts interface {
	Receive(ctx context.Context, account string, c *channels.Callback) (channels.CallbackAnswer, error)
}

const (
	receiptsPath = "/v1/receipts/"
	// maxCallback bounds a callback's body, in bytes. Meta puts up to 3 MB of statuses
	// into one, and a bounce may have all of its message in it.
	maxCallback = 4 << 20
	// callbackTimeout bounds a callback from its header to its answer: providers
	// give up after 15 s and send it again.
	callbackTimeout = 10 * time.Second
	// callbacksAtOnce bounds the bodies that are held, and what somebody without a
	// secret can have checked before the first refusal is counted.
	callbacksAtOnce = 32
)

// routeReceipts adds the route of callbacks. It stands beside huma: providers
// authenticate by signatures over exactly what they sent, and have answers of
// their own to get.
func (a *API) routeReceipts() {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		a.mux.HandleFunc(method+" "+receiptsPath+"{account}/{path...}", a.receive)
	}
	documentReceipts(a.huma.OpenAPI())
}

func (a *API) receive(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), callbackTimeout)
	defer cancel()
	// An answer without this would wait for a body that trickles in.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(callbackTimeout)) // a test's recorder has none
	if a.receipts == nil {
		newProblem(http.StatusNotFound, CodeNotFound, "There is nothing at this path.").write(w)
		return
	}
	if p := a.limitRefused(r); p != nil {
		p.write(w)
		return
	}
	select {
	case a.callbacks <- struct{}{}:
		defer func() { <-a.callbacks }()
	case <-ctx.Done():
		unavailable().write(w)
		return
	}
	answer, p := a.takeCallback(ctx, w, r)
	if p != nil {
		if p.Status < http.StatusInternalServerError {
			a.countRefused(r)
		}
		p.write(w)
		return
	}
	writeCallbackAnswer(w, answer)
}

func (a *API) takeCallback(ctx context.Context, w http.ResponseWriter, r *http.Request) (channels.CallbackAnswer, *Problem) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return channels.CallbackAnswer{}, newProblem(http.StatusBadRequest, CodeBadRequest, "The query cannot be read.")
	}
	body, p := readCallback(w, r)
	if p != nil {
		return channels.CallbackAnswer{}, p
	}
	answer, err := a.receipts.Receive(ctx, r.PathValue("account"), &channels.Callback{
		Method: r.Method, URL: a.publicURL(r), Path: r.PathValue("path"), Query: query, Header: r.Header, Body: body,
	})
	if err != nil {
		return channels.CallbackAnswer{}, a.callbackProblem(ctx, err)
	}
	return answer, nil
}

// callbackProblem is the answer to a callback that was not taken. Whoever sent one
// that was not proven is told no more than that.
func (a *API) callbackProblem(ctx context.Context, err error) *Problem {
	refused, ok := errors.AsType[*channels.CallbackError](err)
	if !ok {
		// Whatever it is, the provider is to send the callback again.
		a.fault(ctx, slog.LevelWarn, "a callback cannot be kept", err)
		return unavailable()
	}
	switch refused.Status {
	case http.StatusForbidden:
		return newProblem(http.StatusForbidden, CodeForbidden, "The callback is not proven to be the provider's.")
	case http.StatusNotFound:
		return newProblem(http.StatusNotFound, CodeNotFound, "There is nothing at this path.")
	case http.StatusServiceUnavailable:
		return unavailable()
	}
	return newProblem(http.StatusBadRequest, CodeBadRequest, "The callback cannot be read.")
}

func unavailable() *Problem {
	return newProblem(http.StatusServiceUnavailable, CodeUnavailable, "The service cannot do this now. Try again.").with("Retry-After", "5")
}

func writeCallbackAnswer(w http.ResponseWriter, answer channels.CallbackAnswer) {
	if answer.Status == 0 {
		answer.Status = http.StatusNoContent
	}
	if answer.ContentType != "" {
		w.Header().Set("Content-Type", answer.ContentType)
	}
	w.WriteHeader(answer.Status)
	_, _ = w.Write(answer.Body) // a provider that has gone sends it again
}

// readCallback reads the body exactly as it came.
func readCallback(w http.ResponseWriter, r *http.Request) ([]byte, *Problem) {
	tooLarge := newProblem(http.StatusRequestEntityTooLarge, CodeTooLarge, "The body is too large.")
	if r.ContentLength > maxCallback {
		return nil, tooLarge.with("Connection", "close") // the rest stays unread
	}
	var buf bytes.Buffer
	_, err := io.Copy(&buf, http.MaxBytesReader(w, r.Body, maxCallback))
	var large *http.MaxBytesError
	var network net.Error
	switch {
	case err == nil:
		return buf.Bytes(), nil
	case errors.As(err, &large):
		return nil, tooLarge
	case errors.As(err, &network) && network.Timeout():
		return nil, newProblem(http.StatusRequestTimeout, CodeTimeout, "The body took too long to arrive.")
	}
	return nil, newProblem(http.StatusBadRequest, CodeBadRequest, "The body broke off or was not framed as HTTP demands.")
}

// limitRefused refuses callbacks of an address from which too many were refused.
// Those that are taken cost nothing: a provider sends as many as there are
// messages, and has no key.
func (a *API) limitRefused(r *http.Request) *Problem {
	if a.limits == nil {
		return nil
	}
	d := a.limits.Addresses.Peek(a.callbackAddress(r), a.limits.Address)
	if d.OK {
		return nil
	}
	a.limits.refused(unauthenticated, nil, 1)
	return newProblem(http.StatusTooManyRequests, CodeRateLimited, "Too many callbacks from this address were refused.").
		with("Retry-After", retryAfter(d))
}

func (a *API) countRefused(r *http.Request) {
	if a.limits != nil {
		a.limits.Addresses.Take(r.Context(), a.callbackAddress(r), a.limits.Address, 1)
	}
}

// callbackAddress is what callbacks of an address are counted as: apart from
// requests that lack a key, so that neither uses up the other's.
func (a *API) callbackAddress(r *http.Request) string {
	return "callback/" + addressKey(clientAddress(r, a.limits.TrustedProxies))
}

// publicURL is the URL that the caller used, as far as that can be known: path and
// query exactly as they came, below the configured address. Without one it is
// made of the request, and of what a trusted proxy says of it.
func (a *API) publicURL(r *http.Request) string {
	base := a.publicBase
	if base == "" {
		base = requestBase(r, a.trustedProxies())
	}
	// Of a request line with a whole URL, only the path counts.
	return base + (&url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery, ForceQuery: r.URL.ForceQuery}).RequestURI()
}

func (a *API) trustedProxies() []netip.Prefix {
	if a.limits == nil {
		return nil
	}
	return a.limits.TrustedProxies
}

// requestBase is scheme and host of a request. What a proxy says of them is
// believed as its X-Forwarded-For is; of several values the first is what the
// outermost one saw.
func requestBase(r *http.Request, trusted []netip.Prefix) string {
	scheme, host := "http", r.Host
	if r.TLS != nil {
		scheme = "https"
	}
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !isTrusted(peer.Addr().Unmap(), trusted) {
		return scheme + "://" + host
	}
	first := func(name string) string {
		value, _, _ := strings.Cut(r.Header.Get(name), ",")
		return strings.TrimSpace(value)
	}
	if said := strings.ToLower(first("X-Forwarded-Proto")); said == "http" || said == "https" {
		scheme = said
	}
	if said := first("X-Forwarded-Host"); said != "" {
		host = said
	}
	return scheme + "://" + host
}
