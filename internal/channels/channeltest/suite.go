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
	// Skip names checks that this provider cannot meet, each with the reason.
	Skip map[string]string
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
	checks := []struct {
		name string
		run  func(*testing.T, Suite)
	}{
		{"describes itself", checkInfo},
		{"accepts what the vendor accepts", checkAccept},
		{"reads the vendor's table", checkTable},
		{"asks for proof of success", checkProof},
		{"classifies server errors", checkServerErrors},
		{"reads Retry-After", checkRetryAfter},
		{"does not follow redirects", checkRedirects},
		{"bounds what it reads", checkHugeBody},
		{"gives up a slow header at the deadline", checkSlowHeader},
		{"gives up a slow body at the deadline", checkSlowBody},
		{"reports a broken answer", checkBrokenAnswer},
		{"reports a connection closed after the request", checkClosedAfterRequest},
		{"reports a refused connection", checkRefused},
		{"makes no call under a canceled context", checkCanceledBefore},
		{"is canceled in mid call", checkCanceledDuring},
		{"does not repeat what a vendor echoes", checkEcho},
		{"sends concurrently", checkConcurrent},
	}
	known := map[string]bool{}
	for _, c := range checks {
		known[c.name] = true
		t.Run(c.name, func(t *testing.T) {
			if why := s.Skip[c.name]; why != "" {
				t.Skip(why)
			}
			c.run(t, s)
		})
	}
	for name := range s.Skip {
		if !known[name] {
			t.Errorf("channeltest: Skip names %q, which is no check", name)
		}
	}
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
