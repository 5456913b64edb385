package webhook_test

import (
	"encoding/base64"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/channels/webhook"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const bearer = "Bearer endpoint-token-4711"

// signingSecret is a secret made of one byte, repeated.
func signingSecret(b string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString([]byte(strings.Repeat(b, 32)))
}

// provider makes an account that may call the server at baseURL and nothing else
// that is private.
func provider(t *testing.T, baseURL string, change ...func(*webhook.Config)) *webhook.Provider {
	t.Helper()
	cfg := webhook.Config{
		Secrets:      []secret.Value{secret.New(signingSecret("k"))},
		AllowPrivate: []string{strings.TrimPrefix(baseURL, "http://")},
	}
	for _, f := range change {
		f(&cfg)
	}
	p, err := webhook.New("webhook-main", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func message(baseURL string) *channels.Message {
	return &channels.Message{
		Key:            uuid.MustParse("5f0e6c1e-7d52-5c0a-9d0e-4e6a3f1d2c3b"),
		NotificationID: uuid.MustParse("0193b0c0-0000-7000-8000-000000000001"),
		To: notify.Target{Webhook: &notify.WebhookTarget{
			URL:     baseURL + "/hooks/path-token-42?key=query-token-42",
			Headers: map[string]string{"Authorization": bearer},
		}},
		Content:   notify.Content{Title: "Deploy failed", Body: "3 of 5 pods are down", Data: []byte(`{"service":"api"}`)},
		Reference: "incident-4711",
		Metadata:  []byte(`{"team":"core"}`),
		Trace:     "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		CreatedAt: time.Date(2026, 11, 30, 9, 15, 0, 0, time.FixedZone("CET", 3600)),
	}
}

func TestConformance(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		New: func(t *testing.T, baseURL string) channels.Provider {
			t.Helper()
			return provider(t, baseURL)
		},
		Message:    message,
		Accept:     func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
		Want:       channels.Result{Outcome: notify.Accepted, Status: notify.Delivered, HTTPStatus: 204},
		AnySuccess: true,
		Secrets:    []string{"path-token-42", "query-token-42", "endpoint-token-4711", signingSecret("k"), strings.Repeat("k", 32)},
		Table:      table(),
	})
}

func table() []channeltest.Case {
	rows := []channeltest.Case{
		{Name: "200 with a body", Status: 200, Body: "ok\n", Want: channels.Result{Outcome: notify.Accepted, Status: notify.Delivered}},
		{Name: "202", Status: 202, Want: channels.Result{Outcome: notify.Accepted, Status: notify.Delivered}},
		{
			Name: "2xx asks for nothing", Status: 200, Header: http.Header{"Retry-After": {"30"}},
			Want: channels.Result{Outcome: notify.Accepted},
		},
		{Name: "410 gone", Status: 410, Want: channels.Result{Outcome: notify.RecipientRejected, Suppress: true, HTTPStatus: 410}},
		{Name: "400", Status: 400, Want: channels.Result{Outcome: notify.MessageRejected, HTTPStatus: 400}},
		{Name: "413", Status: 413, Want: channels.Result{Outcome: notify.MessageRejected}},
		{
			Name: "404 with Retry-After", Status: 404, Header: http.Header{"Retry-After": {"60"}},
			Want:  channels.Result{Outcome: notify.RecipientUnavailable, RetryAfter: time.Minute},
			Scope: host,
		},
		{
			Name: "503 with Retry-After", Status: 503, Header: http.Header{"Retry-After": {"120"}},
			Want:  channels.Result{Outcome: notify.ProviderUnavailable, RetryAfter: 2 * time.Minute},
			Scope: host,
		},
		{
			Name: "429 with Retry-After", Status: 429, Header: http.Header{"Retry-After": {"30"}},
			Want:  channels.Result{Outcome: notify.Throttled, RetryAfter: 30 * time.Second},
			Scope: host,
		},
	}
	for _, status := range []int{401, 403, 404, 405, 415, 422} {
		rows = append(rows, row(status, notify.RecipientUnavailable, nil))
	}
	for _, status := range []int{408, 425, 429} {
		rows = append(rows, row(status, notify.Throttled, host))
	}
	for _, status := range []int{500, 501, 502, 503, 504, 599} {
		rows = append(rows, row(status, notify.ProviderUnavailable, nil))
	}
	for _, status := range []int{300, 301, 302, 303, 304, 307, 308} {
		rows = append(rows, row(status, notify.MessageRejected, nil))
	}
	return rows
}

func row(status int, o notify.Outcome, scope func(string) string) channeltest.Case {
	return channeltest.Case{
		Name: strconv.Itoa(status), Status: status, Scope: scope,
		Want: channels.Result{Outcome: o, HTTPStatus: status},
	}
}

// host is the scope of the server at baseURL.
func host(baseURL string) string { return "host:" + strings.TrimPrefix(baseURL, "http://") }

// request is what an endpoint received.
type request struct {
	*http.Request
	body []byte
}

// receive sends m to a server and returns what it got.
func receive(t *testing.T, m func(baseURL string) *channels.Message, change ...func(*webhook.Config)) request {
	t.Helper()
	got := make(chan request, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r, body}
	}))
	t.Cleanup(srv.Close)
	if r := provider(t, srv.URL, change...).Send(t.Context(), m(srv.URL)); r.Outcome != notify.Accepted {
		t.Fatalf("result %+v", r)
	}
	return <-got
}

func TestRequestIsSignedWithEverySecret(t *testing.T) {
	r := receive(t, message, func(c *webhook.Config) {
		c.Secrets = []secret.Value{secret.New(signingSecret("o")), secret.New(signingSecret("n"))}
	})
	for _, s := range []string{"o", "n"} {
		verifier, err := standardwebhooks.NewWebhook(signingSecret(s))
		if err != nil {
			t.Fatal(err)
		}
		if err := verifier.Verify(r.body, r.Header); err != nil {
			t.Errorf("secret %q: %v", s, err)
		}
		if err := verifier.Verify(append(r.body, ' '), r.Header); err == nil {
			t.Errorf("secret %q: another body verifies", s)
		}
	}
	other, err := standardwebhooks.NewWebhook(signingSecret("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Verify(r.body, r.Header); err == nil {
		t.Error("another secret verifies")
	}
	if got, want := r.Header.Get("webhook-id"), message("").Key.String(); got != want {
		t.Errorf("webhook-id %q, want the delivery's key %q", got, want)
	}
}

func TestRequestCarriesTheNotification(t *testing.T) {
	r := receive(t, message)
	want := `{"id":"0193b0c0-0000-7000-8000-000000000001","title":"Deploy failed","body":"3 of 5 pods are down",` +
		`"data":{"service":"api"},"reference":"incident-4711","metadata":{"team":"core"},"created_at":"2026-11-30T08:15:00Z"}`
	if diff := cmp.Diff(want, string(r.body)); diff != "" {
		t.Errorf("body (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/json", "User-Agent": "notification-dispatcher/1", "Authorization": bearer,
		"Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if r.Method != http.MethodPost || r.URL.RequestURI() != "/hooks/path-token-42?key=query-token-42" {
		t.Errorf("%s %s", r.Method, r.URL.RequestURI())
	}
}

func TestPayloadIsSentAsItIs(t *testing.T) {
	const payload = `{ "text" : "a <b> & c", "n" : 1.0 }`
	r := receive(t, func(baseURL string) *channels.Message {
		m := message(baseURL)
		m.Content.Webhook = &notify.WebhookContent{Payload: []byte(payload)}
		m.To.Webhook.Headers = map[string]string{
			"content-type": "application/cloudevents+json", "User-Agent": "acme", "Idempotency-Key": "mine",
		}
		return m
	})
	if string(r.body) != payload {
		t.Errorf("body %s, want %s", r.body, payload)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/cloudevents+json", "User-Agent": "acme", "Idempotency-Key": "mine",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestOneCallThoughTheTargetSetsIdempotencyKey: net/http's client would send a
// request with this header again by itself when a kept connection breaks.
func TestOneCallThoughTheTargetSetsIdempotencyKey(t *testing.T) {
	var calls atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if calls.Add(1) > 1 {
			panic(http.ErrAbortHandler)
		}
	}))
	p, m := provider(t, srv.URL), message(srv.URL)
	m.To.Webhook.Headers = map[string]string{"Idempotency-Key": "mine", "X-Idempotency-Key": "mine"}
	p.Send(t.Context(), m)
	if r := p.Send(t.Context(), m); r.Outcome != notify.Unknown {
		t.Errorf("result %+v, want unknown", r)
	}
	srv.Close()
	if n := calls.Load(); n != 2 {
		t.Errorf("two sends made %d calls", n)
	}
}

func TestUntrustedCertificateIsAPassingFailure(t *testing.T) {
	var called atomic.Bool
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called.Store(true) }))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	p := provider(t, "", func(c *webhook.Config) { c.AllowPrivate = []string{strings.TrimPrefix(srv.URL, "https://")} })
	r := p.Send(t.Context(), message(srv.URL))
	if r.Outcome != notify.ProviderUnavailable || called.Load() {
		t.Errorf("result %+v, called %t; want provider_unavailable and no call", r, called.Load())
	}
}
