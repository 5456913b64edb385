// Package channeltest is the suite that every provider over HTTP must pass, and
// the check of a [channels.Result] that the others share. It is for tests only.
package channeltest

import (
	"net/http"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Suite describes one provider to [Run]. New, Message, Accept and Want must be
// set.
type Suite struct {
	// New makes an account that calls the server at baseURL, such as
	// "http://127.0.0.1:40123". The server speaks HTTP/1.1, and HTTP/2 to a client
	// that begins with it in clear text (http.Protocols.SetUnencryptedHTTP2).
	New func(t *testing.T, baseURL string) channels.Provider
	// Message makes a message that the provider sends happily. baseURL is for
	// those whose recipient names the server: webhooks, web push.
	Message func(baseURL string) *channels.Message
	// Accept answers as the vendor does when it takes a message.
	Accept http.HandlerFunc
	// Want is what Accept leads to. Outcome must be set; the other fields are
	// compared as those of a [Case] are.
	Want channels.Result
	// Table has one row for each documented answer of the vendor.
	Table []Case
	// Secrets are texts that may never appear in a Result: tokens, keys,
	// passwords. Those of the message (addresses, texts) are known to the suite.
	Secrets []string

	// Ambiguous says that a 5xx may come after the vendor took the message, so
	// that it is Unknown instead of ProviderUnavailable.
	Ambiguous bool
	// ServerErrors are the exceptions to that, by status: 500, 502, 503 or 504.
	ServerErrors map[int]notify.Outcome
	// AnySuccess says that a 2xx is proof in itself, whatever the body.
	AnySuccess bool
	// Aside are requests other than the message's, by path, such as a token
	// endpoint's. They are answered so in every check and are not counted.
	Aside map[string]http.HandlerFunc
}

// Case is one row of a provider's golden table: an answer and what it means.
type Case struct {
	Name   string
	Status int
	// Header is the answer's. Content-Type defaults to JSON for a body that
	// begins as JSON does, else to plain text.
	Header http.Header
	Body   string
	// Message replaces the suite's for this row.
	Message func(baseURL string) *channels.Message
	// Scope replaces Want.Scope where that depends on the server's address.
	Scope func(baseURL string) string
	// Want's Outcome, RetryAfter, Suppress and SuppressFor are always compared,
	// Scope where it is set or the outcome is Throttled, the other fields where
	// they are set.
	Want channels.Result
}

// Run checks the provider.
func Run(t *testing.T, s Suite) {
	t.Helper()
	if s.New == nil || s.Message == nil || s.Accept == nil || s.Want.Outcome == "" {
		t.Fatal("channeltest: New, Message, Accept and Want must be set")
	}
	t.Run("describes itself", s.checkInfo)
	t.Run("accepts what the vendor accepts", s.checkAccept)
	t.Run("reads the vendor's table", s.checkTable)
	t.Run("asks for proof of success", s.checkProof)
	t.Run("classifies server errors", s.checkServerErrors)
	t.Run("reads Retry-After", s.checkRetryAfter)
	t.Run("does not follow redirects", s.checkRedirects)
	t.Run("bounds what it reads", s.checkHugeBody)
	t.Run("gives up a slow header at the deadline", s.checkSlowHeader)
	t.Run("gives up a slow body at the deadline", s.checkSlowBody)
	t.Run("reports a broken answer", s.checkBrokenAnswer)
	t.Run("reports a connection closed after the request", s.checkClosedAfterRequest)
	t.Run("reports a refused connection", s.checkRefused)
	t.Run("makes no call under a canceled context", s.checkCanceledBefore)
	t.Run("is canceled in mid call", s.checkCanceledDuring)
	t.Run("does not repeat what a vendor echoes", s.checkEcho)
	t.Run("sends concurrently", s.checkConcurrent)
}

// serverError is what a 5xx without a body that the vendor documents means.
func (s Suite) serverError(status int) notify.Outcome {
	if o, ok := s.ServerErrors[status]; ok {
		return o
	}
	if s.Ambiguous {
		return notify.Unknown
	}
	return notify.ProviderUnavailable
}

// unproven is what a 2xx means whose body proves nothing.
func (s Suite) unproven() notify.Outcome {
	if s.AnySuccess {
		return notify.Accepted
	}
	return notify.Unknown
}
