package push

import (
	"bytes"
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	testEndpoint = "https://push.example.com/wpush/v2/gAAAAABn-secret-subscription"
	testLocation = "https://push.example.com/m/gAAAAABn-message"
)

var b64 = base64.RawURLEncoding

func vapidConfig(tb testing.TB, base string) WebPushConfig {
	tb.Helper()
	key, err := ecKey().ECDH()
	if err != nil {
		tb.Fatal(err)
	}
	return WebPushConfig{
		VAPIDPublicKey: b64.EncodeToString(key.PublicKey().Bytes()), VAPIDPrivateKey: secret.New(b64.EncodeToString(key.Bytes())),
		Subject: "mailto:ops@example.com", BaseURL: base,
	}
}

func newWebPush(tb testing.TB, cfg WebPushConfig) *WebPush {
	tb.Helper()
	p, err := NewWebPush("webpush-main", cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func acceptWebPush(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Location", testLocation)
	w.WriteHeader(http.StatusCreated)
}

func webPushTable() []channeltest.Case {
	const origin = "origin:push.example.com"
	after := http.Header{"Retry-After": {"120"}}
	autopush := func(errno string) string {
		return `{"code":404,"errno":` + errno + `,"error":"Error","message":"text","more_info":"https://example.com"}`
	}
	throttled := channels.Result{Outcome: notify.Throttled, Scope: origin}
	dead := channels.Result{Outcome: notify.RecipientRejected, Suppress: true}
	recipient := channels.Result{Outcome: notify.RecipientRejected}
	message := channels.Result{Outcome: notify.MessageRejected}
	account := channels.Result{Outcome: notify.AccountRejected, Scope: origin}
	unavailable := channels.Result{Outcome: notify.ProviderUnavailable, Scope: origin}
	with := func(r channels.Result, code string, after time.Duration) channels.Result {
		r.Code, r.RetryAfter = code, after
		return r
	}
	return []channeltest.Case{
		{
			Name: "201 with Location", Status: 201, Header: http.Header{"Location": {testLocation}},
			Want: channels.Result{Outcome: notify.Accepted, Status: notify.Sent, MessageID: testLocation, HTTPStatus: 201},
		},
		{Name: "201 without Location", Status: 201, Want: channels.Result{Outcome: notify.Accepted}},
		{Name: "200", Status: 200, Want: channels.Result{Outcome: notify.Accepted}},
		{Name: "202", Status: 202, Want: channels.Result{Outcome: notify.Accepted}},
		{Name: "204, which no push service answers", Status: 204, Want: channels.Result{Outcome: notify.Unknown, Scope: origin}},
		{Name: "301", Status: 301, Header: http.Header{"Location": {"https://push.example.com/new"}}, Want: recipient},
		{Name: "307", Status: 307, Header: http.Header{"Location": {"https://push.example.com/new"}}, Want: unavailable},
		{Name: "400 of Mozilla", Status: 400, Body: autopush("110"), Want: with(message, "errno 110", 0)},
		{Name: "400 of Apple for another key", Status: 400, Body: `{"reason":"VapidPkHashMismatch"}`, Want: with(recipient, "VapidPkHashMismatch", 0)},
		{Name: "401", Status: 401, Body: autopush("109"), Want: with(account, "errno 109", 0)},
		{Name: "403 of Apple", Status: 403, Body: `{"reason":"BadJwtToken"}`, Want: with(account, "BadJwtToken", 0)},
		{
			Name: "403 of Google for another key", Status: 403,
			Body: "the VAPID credentials in the authorization header do not correspond to the credentials used to create the subscriptions.\n",
			Want: recipient,
		},
		{Name: "403 of Google", Status: 403, Body: "invalid JWT provided\n", Want: account},
		{Name: "404", Status: 404, Body: autopush("102"), Want: with(dead, "errno 102", 0)},
		{Name: "406 of Microsoft", Status: 406, Want: throttled},
		{Name: "410", Status: 410, Body: autopush("106"), Want: with(dead, "errno 106", 0)},
		{Name: "410 of Google", Status: 410, Body: "push subscription has unsubscribed or expired.\n", Want: dead},
		{Name: "413", Status: 413, Body: autopush("104"), Want: with(message, "errno 104", 0)},
		{Name: "429", Status: 429, Want: throttled},
		{Name: "429 with Retry-After", Status: 429, Header: after, Want: with(throttled, "", 2*time.Minute)},
		{Name: "500", Status: 500, Want: unavailable},
		{Name: "502", Status: 502, Want: unavailable},
		{Name: "503 of Mozilla", Status: 503, Header: after, Body: autopush("201"), Want: with(unavailable, "errno 201", 2*time.Minute)},
	}
}

func TestWebPush(t *testing.T) {
	b := newBrowser(t)
	channeltest.Run(t, channeltest.Suite{
		New:        func(t *testing.T, base string) channels.Provider { return newWebPush(t, vapidConfig(t, base)) },
		Message:    func(string) *channels.Message { return b.message(testEndpoint) },
		Accept:     acceptWebPush,
		Want:       channels.Result{Outcome: notify.Accepted, Status: notify.Sent, MessageID: testLocation, HTTPStatus: 201},
		Table:      webPushTable(),
		Secrets:    []string{"gAAAAABn-secret-subscription", vapidConfig(t, "").VAPIDPrivateKey.Reveal(), "vapid t="},
		AnySuccess: true,
	})
}

// pushService keeps the last request.
type pushService struct {
	*httptest.Server
	header http.Header
	uri    string
	body   []byte
}

func newPushService(tb testing.TB) *pushService {
	tb.Helper()
	s := &pushService{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.header, s.uri = r.Header, r.RequestURI
		s.body, _ = io.ReadAll(r.Body)
		acceptWebPush(w, r)
	}))
	tb.Cleanup(s.Close)
	return s
}

// hostPort is what allow_private needs of the server's URL.
func (s *pushService) hostPort() string { return strings.TrimPrefix(s.URL, "http://") }

func TestWebPushIsReadByItsBrowserAlone(t *testing.T) {
	t.Parallel()
	srv, b := newPushService(t), newBrowser(t)
	p := newWebPush(t, vapidConfig(t, srv.URL))
	m := b.message(testEndpoint + "?q=1")
	m.Content.Push = &notify.PushContent{Image: "https://example.com/a.png", Data: jsontext.Value(`{"n": 1}`)}
	if r := p.Send(t.Context(), m); r.Outcome != notify.Accepted {
		t.Fatalf("%+v", r)
	}
	if want := "/wpush/v2/gAAAAABn-secret-subscription?q=1"; srv.uri != want {
		t.Errorf("path %s, want %s", srv.uri, want)
	}
	if srv.header.Get("Content-Encoding") != "aes128gcm" || bytes.Contains(srv.body, []byte(testTitle)) {
		t.Error("sent in clear")
	}
	payload := b.decrypt(t, srv.body)
	for path, want := range map[string]string{
		"title": testTitle, "body": testBody, "image": "https://example.com/a.png", "data/n": "1", "tag": testKey.String(),
	} {
		if got := at(t, payload, path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}

func TestWebPushReadsKeysInEveryBase64(t *testing.T) {
	t.Parallel()
	srv, b := newPushService(t), newBrowser(t)
	for name, enc := range map[string]*base64.Encoding{
		"url": base64.URLEncoding, "raw url": base64.RawURLEncoding, "standard": base64.StdEncoding, "raw standard": base64.RawStdEncoding,
	} {
		cfg := vapidConfig(t, srv.URL)
		public, _ := b64.DecodeString(cfg.VAPIDPublicKey)
		private, _ := b64.DecodeString(cfg.VAPIDPrivateKey.Reveal())
		cfg.VAPIDPublicKey, cfg.VAPIDPrivateKey = enc.EncodeToString(public), secret.New(enc.EncodeToString(private))
		p := newWebPush(t, cfg)
		m := b.message(testEndpoint)
		m.To.Device.Keys.P256dh, m.To.Device.Keys.Auth = enc.EncodeToString(b.key.PublicKey().Bytes()), enc.EncodeToString(b.auth)
		if r := p.Send(t.Context(), m); r.Outcome != notify.Accepted {
			t.Errorf("%s: %+v", name, r)
		}
		if got := at(t, b.decrypt(t, srv.body), "title"); got != testTitle {
			t.Errorf("%s: title %q", name, got)
		}
	}
}

func TestWebPushHidesTheLengthWithinSteps(t *testing.T) {
	t.Parallel()
	srv, b := newPushService(t), newBrowser(t)
	p := newWebPush(t, vapidConfig(t, srv.URL))
	for n, want := range map[int]int{1: 512, 300: 512, 400: 1024, 3900: 4096} {
		m := b.message(testEndpoint)
		m.Content = notify.Content{Body: strings.Repeat("x", n)}
		if r := p.Send(t.Context(), m); r.Outcome != notify.Accepted {
			t.Fatalf("%+v", r)
		}
		if len(srv.body) != want {
			t.Errorf("a body of %d bytes makes %d, want %d", n, len(srv.body), want)
		}
		if got := at(t, b.decrypt(t, srv.body), "body"); got != m.Content.Body {
			t.Errorf("a body of %d bytes arrives with %d", n, len(got))
		}
	}
}

func TestWebPushHeaders(t *testing.T) {
	t.Parallel()
	srv, b := newPushService(t), newBrowser(t)
	p := newWebPush(t, vapidConfig(t, srv.URL))
	now := time.Now()
	p.now = func() time.Time { return now }
	m := b.message(testEndpoint)
	m.ExpiresAt = now.Add(time.Hour)
	for priority, want := range map[notify.Priority]string{
		notify.Critical: "high", notify.High: "high", notify.Normal: "normal", notify.Low: "low",
	} {
		m.Priority = priority
		if r := p.Send(t.Context(), m); r.Outcome != notify.Accepted {
			t.Fatalf("%+v", r)
		}
		if got := srv.header.Get("Urgency"); got != want {
			t.Errorf("urgency %q of %s", got, priority)
		}
	}
	if got := srv.header.Get("TTL"); got != "3600" {
		t.Errorf("ttl %q", got)
	}
	first := srv.header.Get("Topic")
	if len(first) != 32 || strings.Trim(first, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" {
		t.Errorf("topic %q", first)
	}
	m.Content.Push = &notify.PushContent{CollapseKey: "ein Vorfall, länger als ein Topic sein darf, mit Umlaut"}
	if r := p.Send(t.Context(), m); r.Outcome != notify.Accepted {
		t.Fatalf("%+v", r)
	}
	if second := srv.header.Get("Topic"); len(second) != 32 || second == first {
		t.Errorf("topic %q of a collapse key", second)
	}
}

func TestWebPushIdentifiesTheSender(t *testing.T) {
	t.Parallel()
	for subject, want := range map[string]string{
		"mailto:ops@example.com":      "mailto:ops@example.com",
		"ops@example.com":             "mailto:ops@example.com",
		"https://example.com/contact": "https://example.com/contact",
	} {
		srv, b := newPushService(t), newBrowser(t)
		cfg := vapidConfig(t, srv.URL)
		cfg.Subject = subject
		if r := newWebPush(t, cfg).Send(t.Context(), b.message(testEndpoint)); r.Outcome != notify.Accepted {
			t.Fatalf("%+v", r)
		}
		token, public, ok := strings.Cut(strings.TrimPrefix(srv.header.Get("Authorization"), "vapid t="), ", k=")
		if !ok || public != cfg.VAPIDPublicKey {
			t.Fatalf("authorization %q", srv.header.Get("Authorization"))
		}
		claims := jwt.MapClaims{}
		if _, err := jwt.ParseWithClaims(token, claims, func(*jwt.Token) (any, error) { return &ecKey().PublicKey, nil },
			jwt.WithValidMethods([]string{"ES256"}), jwt.WithAudience("https://push.example.com"), jwt.WithSubject(want)); err != nil {
			t.Fatalf("subject %s: %v", subject, err)
		}
		if exp, err := claims.GetExpirationTime(); err != nil || time.Until(exp.Time) > 24*time.Hour || time.Until(exp.Time) < time.Hour {
			t.Errorf("expires at %v, %v", exp, err)
		}
	}
}

func BenchmarkWebPushSend(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(acceptWebPush))
	b.Cleanup(srv.Close)
	benchmarkSend(b, newWebPush(b, vapidConfig(b, srv.URL)), newBrowser(b).message(testEndpoint))
}
