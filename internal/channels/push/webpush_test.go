package push

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
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

// browser is a subscriber: the receiving half of RFC 8291.
type browser struct {
	key  *ecdh.PrivateKey
	auth []byte
}

func newBrowser(t testing.TB) browser {
	t.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	auth := make([]byte, 16)
	_, _ = rand.Read(auth)
	return browser{key, auth}
}

func (b browser) message(endpoint string) *channels.Message {
	m := deviceMessage(ProviderWebPush)
	m.To.Device = &notify.Device{Provider: ProviderWebPush, Endpoint: endpoint, Keys: &notify.WebPushKeys{
		P256dh: b64.EncodeToString(b.key.PublicKey().Bytes()), Auth: b64.EncodeToString(b.auth),
	}}
	return m
}

// decrypt opens a body as the browser does (RFC 8188, 2; RFC 8291, 3.4).
func (b browser) decrypt(t *testing.T, body []byte) []byte {
	t.Helper()
	const saltLen, pointLen = 16, 65
	if len(body) < 86 || body[20] != pointLen {
		t.Fatalf("body of %d bytes has no aes128gcm header", len(body))
	}
	salt, size, point, sealed := body[:saltLen], binary.BigEndian.Uint32(body[saltLen:]), body[21:86], body[86:]
	if len(sealed) > int(size) {
		t.Fatalf("record of %d bytes, announced as %d", len(sealed), size)
	}
	sender, err := ecdh.P256().NewPublicKey(point)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := b.key.ECDH(sender)
	if err != nil {
		t.Fatal(err)
	}
	derive := func(secret, salt []byte, info string, n int) []byte {
		out, err := hkdf.Key(sha256.New, secret, salt, info, n)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	ikm := derive(shared, b.auth, "WebPush: info\x00"+string(b.key.PublicKey().Bytes())+string(point), 32)
	block, err := aes.NewCipher(derive(ikm, salt, "Content-Encoding: aes128gcm\x00", 16))
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	clear, err := gcm.Open(nil, derive(ikm, salt, "Content-Encoding: nonce\x00", 12), sealed, nil)
	if err != nil {
		t.Fatal(err)
	}
	clear = bytes.TrimRight(clear, "\x00")
	if len(clear) == 0 || clear[len(clear)-1] != 2 {
		t.Fatal("no delimiter of a last record")
	}
	return clear[:len(clear)-1]
}

func vapidConfig(t testing.TB, base string) WebPushConfig {
	t.Helper()
	key, err := ecKey().ECDH()
	if err != nil {
		t.Fatal(err)
	}
	return WebPushConfig{
		VAPIDPublicKey: b64.EncodeToString(key.PublicKey().Bytes()), VAPIDPrivateKey: secret.New(b64.EncodeToString(key.Bytes())),
		Subject: "mailto:ops@example.com", BaseURL: base,
	}
}

func newWebPush(t testing.TB, cfg WebPushConfig) *WebPush {
	t.Helper()
	p, err := NewWebPush("webpush-main", cfg)
	if err != nil {
		t.Fatal(err)
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
		{Name: "201 with Location", Status: 201, Header: http.Header{"Location": {testLocation}},
			Want: channels.Result{Outcome: notify.Accepted, Status: notify.Sent, MessageID: testLocation, HTTPStatus: 201}},
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
		{Name: "403 of Google for another key", Status: 403,
			Body: "the VAPID credentials in the authorization header do not correspond to the credentials used to create the subscriptions.\n",
			Want: recipient},
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

func newPushService(t testing.TB) *pushService {
	t.Helper()
	s := &pushService{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.header, s.uri = r.Header, r.RequestURI
		s.body, _ = io.ReadAll(r.Body)
		acceptWebPush(w, r)
	}))
	t.Cleanup(s.Close)
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

func TestWebPushScopeIsThePushService(t *testing.T) {
	t.Parallel()
	p, b := newWebPush(t, vapidConfig(t, "")), newBrowser(t)
	long := strings.Repeat("a", 63) + ".example.com"
	for endpoint, want := range map[string]string{
		"https://FCM.googleapis.com/fcm/send/x": "origin:fcm.googleapis.com",
		"https://push.example.com:8443/x":       "origin:push.example.com:8443",
		"https://" + long + "/x":                originScope(b.message("https://" + long + "/y").To),
	} {
		got := p.Scopes(b.message(endpoint).To)
		if len(got) != 1 || got[0] != want || len(got[0]) > 64 {
			t.Errorf("scopes %q of %s, want %s", got, endpoint, want)
		}
	}
}

func TestWebPushCallsOnlyPublicAddresses(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	p := newWebPush(t, vapidConfig(t, ""))
	for _, host := range []string{
		"127.0.0.1", "10.0.0.1", "192.168.1.1", "172.16.0.1", "100.100.100.200", "169.254.169.254", "168.63.129.16", "0.0.0.0",
		"[::1]", "[fd00:ec2::254]", "[fe80::1%25lo]", "[::ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "①②⑦.0.0.1", "1.1.1.1:8443", "localhost",
	} {
		r := p.Send(t.Context(), b.message("https://"+host+"/subscription"))
		if r.Outcome != notify.RecipientRejected || r.Suppress {
			t.Errorf("%s: %+v", host, r)
		}
	}
}

func TestWebPushCallsPrivateAddressesThatAreAllowed(t *testing.T) {
	t.Parallel()
	srv, b := newPushService(t), newBrowser(t)
	cfg := vapidConfig(t, "")
	cfg.AllowPrivate = []string{srv.hostPort()}
	if r := newWebPush(t, cfg).Send(t.Context(), b.message(srv.URL+"/subscription")); r.Outcome != notify.Accepted {
		t.Errorf("allowed: %+v", r)
	}
	other := newPushService(t)
	m := b.message("https://" + other.hostPort() + "/subscription")
	if r := newWebPush(t, cfg).Send(t.Context(), m); r.Outcome != notify.RecipientRejected || other.header != nil {
		t.Errorf("another port of the same host: %+v", r)
	}
}

func TestWebPushHostThatDoesNotExistIsTheRecipients(t *testing.T) {
	t.Parallel()
	err := &url.Error{Op: "Post", URL: testEndpoint, Err: &net.DNSError{Err: "no such host", Name: "push.example.com", IsNotFound: true}}
	r := webPushResult(t.Context(), channels.Exchange{Err: err}, newBrowser(t).message(testEndpoint).To)
	if r.Outcome != notify.RecipientUnavailable || r.Detail != "name not resolved" {
		t.Errorf("%+v", r)
	}
}

func TestWebPushMessageURLThatNamesTheSubscriptionIsDropped(t *testing.T) {
	t.Parallel()
	for location, want := range map[string]string{
		testLocation:                 testLocation,
		"/m/relative":                "/m/relative",
		"":                           "",
		testEndpoint:                 "",
		testEndpoint + "/messages/1": "",
	} {
		if got := receiptID(location, testEndpoint); got != want {
			t.Errorf("id %q of %q, want %q", got, location, want)
		}
	}
}

func TestWebPushChecksTheMessage(t *testing.T) {
	t.Parallel()
	b := newBrowser(t)
	p := newWebPush(t, vapidConfig(t, ""))
	endpoint := func(s string) func(*channels.Message) {
		return func(m *channels.Message) { m.To.Device.Endpoint = s }
	}
	const field = "/to/push/endpoint"
	runChecks(t, p, func() *channels.Message { return b.message(testEndpoint) }, []checkCase{
		{"no endpoint", endpoint(""), field},
		{"an endpoint in clear text", endpoint("http://push.example.com/x"), field},
		{"an endpoint with a user", endpoint("https://user@push.example.com/x"), field},
		{"an endpoint of no host", endpoint("https:///x"), field},
		{"an endpoint that is a file", endpoint("file:///etc/passwd"), field},
		{"an endpoint too long", endpoint("https://push.example.com/" + strings.Repeat("x", 2048)), field},
		{"no keys", func(m *channels.Message) { m.To.Device.Keys = nil }, "/to/push/keys"},
		{"a point not on the curve", func(m *channels.Message) {
			m.To.Device.Keys.P256dh = b64.EncodeToString(append([]byte{4}, make([]byte, 64)...))
		}, "/to/push/keys/p256dh"},
		{"a point that is no base64", func(m *channels.Message) { m.To.Device.Keys.P256dh = "*" }, "/to/push/keys/p256dh"},
		{"a short secret", func(m *channels.Message) { m.To.Device.Keys.Auth = "AAAA" }, "/to/push/keys/auth"},
	})
	t.Run("at the size limit", func(t *testing.T) {
		m := b.message(testEndpoint)
		m.Content = notify.Content{Body: "x"}
		_, payload, err := p.read(m)
		if err != nil {
			t.Fatal(err)
		}
		m.Content.Body = strings.Repeat("x", webPushMaxPayload-len(payload)+1)
		checkRefusal(t, p, m, "")
		srv := newPushService(t)
		if r := newWebPush(t, vapidConfig(t, srv.URL)).Send(t.Context(), m); r.Outcome != notify.Accepted || len(srv.body) != 4096 {
			t.Errorf("%+v, %d bytes", r, len(srv.body))
		}
		m.Content.Body += "x"
		checkRefusal(t, p, m, "/content/push")
	})
	checkExpired(t, p, b.message(testEndpoint), time.Now())
}

func TestWebPushConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := NewWebPush("a", WebPushConfig{BaseURL: "https://h/path", AllowPrivate: []string{"nohost"}})
	checkProblems(t, err, []string{"vapid_public_key", "vapid_private_key", "subject", "base_url", "allow_private"})

	_, err = NewWebPush("a", WebPushConfig{VAPIDPublicKey: "AAAA", VAPIDPrivateKey: secret.New("hunter2"), Subject: "http://example.com", BaseURL: "h"})
	checkProblems(t, err, []string{"vapid_public_key", "vapid_private_key", "subject", "base_url"}, "hunter2")

	cfg := vapidConfig(t, "")
	cfg.VAPIDPublicKey = b64.EncodeToString(newBrowser(t).key.PublicKey().Bytes())
	_, err = NewWebPush("a", cfg)
	checkProblems(t, err, []string{"vapid_public_key"}, cfg.VAPIDPrivateKey.Reveal())
}

func BenchmarkWebPushSend(b *testing.B) {
	srv := httptest.NewServer(http.HandlerFunc(acceptWebPush))
	b.Cleanup(srv.Close)
	benchmarkSend(b, newWebPush(b, vapidConfig(b, srv.URL)), newBrowser(b).message(testEndpoint))
}
