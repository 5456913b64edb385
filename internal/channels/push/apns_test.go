package push

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

func apnsConfig(tb testing.TB, base string) APNsConfig {
	tb.Helper()
	return APNsConfig{
		KeyID: "ABC123DEFG", TeamID: "DEF123GHIJ", PrivateKey: secret.New(pemOf(tb, ecKey())), Topic: "com.example.app", BaseURL: base,
	}
}

func newAPNs(tb testing.TB, base string) *APNs {
	tb.Helper()
	p, err := NewAPNs("apns-main", apnsConfig(tb, base))
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func acceptAPNs(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("apns-id", testKey.String())
	w.WriteHeader(http.StatusOK)
}

func apnsTable() []channeltest.Case {
	device := deviceScope(deviceMessage(ProviderAPNs).To)
	after := http.Header{"Retry-After": {"7"}}
	row := func(status int, reason string, want channels.Result) channeltest.Case {
		want.HTTPStatus, want.Code = status, reason
		return channeltest.Case{Name: reason, Status: status, Body: `{"reason":"` + reason + `"}`, Want: want}
	}
	recipient := channels.Result{Outcome: notify.RecipientRejected}
	dead := channels.Result{Outcome: notify.RecipientRejected, Suppress: true}
	account := channels.Result{Outcome: notify.AccountRejected}
	message := channels.Result{Outcome: notify.MessageRejected}
	unavailable := channels.Result{Outcome: notify.ProviderUnavailable}
	return []channeltest.Case{
		row(400, "BadDeviceToken", recipient),
		row(400, "DeviceTokenNotForTopic", recipient),
		row(400, "MissingDeviceToken", recipient),
		row(400, "BadTopic", account),
		row(400, "MissingTopic", account),
		row(400, "TopicDisallowed", account),
		row(400, "BadCertificateEnvironment", account),
		row(400, "BadCollapseId", message),
		row(400, "BadExpirationDate", message),
		row(400, "BadMessageId", message),
		row(400, "BadPriority", message),
		row(400, "InvalidPushType", message),
		row(400, "PayloadEmpty", message),
		row(400, "DuplicateHeaders", message),
		row(400, "IdleTimeout", unavailable),
		// The token is as new as can be, so that another would not help.
		row(403, "ExpiredProviderToken", account),
		row(403, "InvalidProviderToken", account),
		row(403, "MissingProviderToken", account),
		row(403, "BadCertificate", account),
		row(403, "Forbidden", account),
		row(404, "BadPath", message),
		row(405, "MethodNotAllowed", message),
		row(410, "ExpiredToken", dead),
		{
			Name: "Unregistered", Status: 410, Body: `{"reason":"Unregistered","timestamp":1796115600000}`,
			Want: channels.Result{Outcome: notify.RecipientRejected, Suppress: true, Code: "Unregistered", Detail: "dead since 2026-12-01T09:00:00Z"},
		},
		{Name: "410 without a reason", Status: 410, Want: recipient},
		row(413, "PayloadTooLarge", message),
		row(429, "TooManyRequests", channels.Result{Outcome: notify.Throttled, Scope: device}),
		row(429, "TooManyProviderTokenUpdates", channels.Result{Outcome: notify.Throttled}),
		row(500, "InternalServerError", unavailable),
		row(503, "ServiceUnavailable", unavailable),
		row(503, "Shutdown", unavailable),
		{
			Name: "503 with Retry-After", Status: 503, Header: after, Body: `{"reason":"ServiceUnavailable"}`,
			Want: channels.Result{Outcome: notify.ProviderUnavailable, RetryAfter: 7 * time.Second},
		},
		{
			Name: "a reason of tomorrow", Status: 400, Body: `{"reason":"SomethingNew"}`,
			Want: channels.Result{Outcome: notify.MessageRejected, Code: "SomethingNew"},
		},
		{Name: "403 without a reason", Status: 403, Body: "<html>", Want: account},
		{Name: "success with an id that is none", Status: 200, Header: http.Header{"Apns-Id": {"x"}}, Want: channels.Result{Outcome: notify.Unknown}},
	}
}

func TestAPNs(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		New:     func(t *testing.T, base string) channels.Provider { return newAPNs(t, base) },
		Message: func(string) *channels.Message { return deviceMessage(ProviderAPNs) },
		Accept:  acceptAPNs,
		Want:    channels.Result{Outcome: notify.Accepted, Status: notify.Sent, MessageID: testKey.String(), HTTPStatus: 200},
		Table:   apnsTable(),
		Secrets: []string{"bearer ", "ABC123DEFG", "DEF123GHIJ"},
	})
}

// apnsServer is APNs over TLS, with a certificate of its own making.
type apnsServer struct {
	*httptest.Server
	caFile  string
	request chan *http.Request
	body    chan string
}

func newAPNsServer(t *testing.T, http2 bool, h http.HandlerFunc) *apnsServer {
	t.Helper()
	s := &apnsServer{request: make(chan *http.Request, 10), body: make(chan string, 10)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.request <- r
		s.body <- string(body)
		h(w, r)
	}))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that fail as they should
	s.EnableHTTP2 = http2
	s.StartTLS()
	t.Cleanup(s.Close)
	s.caFile = filepath.Join(t.TempDir(), "ca.pem")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	if err := os.WriteFile(s.caFile, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// provider trusts the server's certificate.
func (s *apnsServer) provider(t *testing.T) *APNs {
	t.Helper()
	cfg := apnsConfig(t, s.URL)
	cfg.CAFile = s.caFile
	p, err := NewAPNs("apns-main", cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAPNsRequestOverTLS(t *testing.T) {
	t.Parallel()
	srv := newAPNsServer(t, true, acceptAPNs)
	p := srv.provider(t)
	now := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	p.now = func() time.Time { return now }
	m := deviceMessage(ProviderAPNs)
	m.ExpiresAt = now.Add(time.Hour)
	m.Content.Push = &notify.PushContent{Image: "https://example.com/a.png", CollapseKey: "incident-4711"}
	m.Content.Data = jsontext.Value(`{"incident":4711,"tags":["a"]}`)
	if r := p.Send(t.Context(), m); r.Outcome != notify.Accepted {
		t.Fatalf("%+v", r)
	}
	r := <-srv.request
	if r.ProtoMajor != 2 || r.URL.Path != "/3/device/"+testToken || r.Method != http.MethodPost {
		t.Errorf("%s %s over %s", r.Method, r.URL.Path, r.Proto)
	}
	for name, want := range map[string]string{
		"apns-id": testKey.String(), "apns-topic": "com.example.app", "apns-push-type": "alert", "apns-priority": "10",
		"apns-expiration": "1796115600", "apns-collapse-id": "incident-4711",
	} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	body := []byte(<-srv.body)
	for path, want := range map[string]string{
		"aps/alert/title": testTitle, "aps/alert/body": testBody, "aps/sound": "default", "aps/mutable-content": "1",
		"image": "https://example.com/a.png", "incident": "4711", "tags": `["a"]`,
	} {
		if got := at(t, body, path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}

func TestAPNsTrustsNoUnknownCertificate(t *testing.T) {
	t.Parallel()
	srv := newAPNsServer(t, true, acceptAPNs)
	r := newAPNs(t, srv.URL).Send(t.Context(), deviceMessage(ProviderAPNs))
	if r.Outcome != notify.ProviderUnavailable {
		t.Errorf("%+v", r)
	}
	if len(srv.request) != 0 {
		t.Error("the request was sent")
	}
}

func TestAPNsSpeaksHTTP2Alone(t *testing.T) {
	t.Parallel()
	t.Run("in clear text", func(t *testing.T) {
		t.Parallel()
		proto := make(chan string, 1)
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			proto <- r.Proto
			acceptAPNs(w, r)
		}))
		srv.Config.Protocols = new(http.Protocols)
		srv.Config.Protocols.SetHTTP1(true)
		srv.Config.Protocols.SetUnencryptedHTTP2(true)
		srv.Start()
		defer srv.Close()
		if r := newAPNs(t, srv.URL).Send(t.Context(), deviceMessage(ProviderAPNs)); r.Outcome != notify.Accepted {
			t.Fatalf("%+v", r)
		}
		if got := <-proto; got != "HTTP/2.0" {
			t.Errorf("spoke %s", got)
		}
	})
	t.Run("to a server that cannot", func(t *testing.T) {
		t.Parallel()
		srv := newAPNsServer(t, false, acceptAPNs)
		r := srv.provider(t).Send(t.Context(), deviceMessage(ProviderAPNs))
		if r.Outcome != notify.ProviderUnavailable || len(srv.request) != 0 {
			t.Errorf("%+v after %d requests", r, len(srv.request))
		}
	})
}

func TestAPNsQuietMessage(t *testing.T) {
	t.Parallel()
	srv := newAPNsServer(t, true, acceptAPNs)
	p := srv.provider(t)
	now := time.Now()
	p.now = func() time.Time { return now }
	m := deviceMessage(ProviderAPNs)
	m.Priority = notify.Low
	m.ExpiresAt = now.Add(time.Millisecond)
	if r := p.Send(t.Context(), m); r.Outcome != notify.Accepted {
		t.Fatalf("%+v", r)
	}
	h := (<-srv.request).Header
	if h.Get("apns-priority") != "5" || h.Get("apns-expiration") != "0" || h.Get("apns-collapse-id") != testKey.String() {
		t.Errorf("header %v", h)
	}
	if got := at(t, []byte(<-srv.body), "aps/sound"); got != "" {
		t.Errorf("sound %q", got)
	}
}

// A wrong base_url makes every token a bad one.
func TestAPNsSuppressesABadTokenOnlyOnceItHasKnownADevice(t *testing.T) {
	t.Parallel()
	for name, known := range map[string]string{
		"an accepted message":    "",
		"an unregistered device": `{"reason":"Unregistered"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := func(status int, body string) http.HandlerFunc {
				return func(w http.ResponseWriter, _ *http.Request) {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, body)
				}
			}
			bad := answer(http.StatusBadRequest, `{"reason":"BadDeviceToken"}`)
			current := bad
			srv := newAPNsServer(t, true, func(w http.ResponseWriter, r *http.Request) { current(w, r) })
			p := srv.provider(t)
			send := func() channels.Result { return p.Send(t.Context(), deviceMessage(ProviderAPNs)) }
			if r := send(); r.Outcome != notify.RecipientRejected || r.Suppress {
				t.Errorf("before: %+v", r)
			}
			current = acceptAPNs
			if known != "" {
				current = answer(http.StatusGone, known)
			}
			send()
			current = bad
			if r := send(); r.Outcome != notify.RecipientRejected || !r.Suppress {
				t.Errorf("after: %+v", r)
			}
		})
	}
}

func TestAPNsChecksTheMessage(t *testing.T) {
	t.Parallel()
	p := newAPNs(t, "http://127.0.0.1:1")
	runChecks(t, p, func() *channels.Message { return deviceMessage(ProviderAPNs) }, []checkCase{
		{"no token", func(m *channels.Message) { m.To.Device.Token = "" }, "/to/push/token"},
		{"a token that is a path", func(m *channels.Message) { m.To.Device.Token = "../3/device/x" }, "/to/push/token"},
		{"Apple's own key", func(m *channels.Message) { m.Content.Data = jsontext.Value(`{"aps":{}}`) }, "/content/data"},
		{"a key image beside an image", func(m *channels.Message) {
			m.Content.Push = &notify.PushContent{Image: "https://example.com/a.png", Data: jsontext.Value(`{"image":1}`)}
		}, "/content/push/data"},
		{"a key image without an image", func(m *channels.Message) { m.Content.Data = jsontext.Value(`{"image":1}`) }, ""},
		{"a collapse key of 65 bytes", func(m *channels.Message) {
			m.Content.Push = &notify.PushContent{CollapseKey: strings.Repeat("k", 65)}
		}, "/content/push/collapse_key"},
	})
	t.Run("at the size limit", func(t *testing.T) {
		t.Parallel()
		m := deviceMessage(ProviderAPNs)
		m.Content.Data, m.Content.Title = nil, ""
		m.Content.Body = strings.Repeat("x", apnsMaxPayload-len(`{"aps":{"alert":{"body":""},"sound":"default"}}`))
		checkRefusal(t, p, m, "")
		m.Content.Body += "x"
		checkRefusal(t, p, m, "/content/push")
	})
	checkExpired(t, p, deviceMessage(ProviderAPNs), time.Now())
}

func TestAPNsConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := NewAPNs("a", APNsConfig{BaseURL: "x", CAFile: "/does/not/exist"})
	checkProblems(t, err, []string{"key_id", "team_id", "private_key", "topic", "base_url", "ca_file"})

	p384, kerr := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if kerr != nil {
		t.Fatal(kerr)
	}
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]string{"no PEM": "hunter2", "RSA": pemOf(t, rsaKey()), "P-384": pemOf(t, p384)} {
		_, err := NewAPNs("a", APNsConfig{KeyID: "short", TeamID: "DEF123GHI-", PrivateKey: secret.New(key), Topic: "a b", CAFile: empty})
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkProblems(t, err, []string{"key_id", "team_id", "private_key", "topic", "ca_file"}, "hunter2", "PRIVATE")
		})
	}
	if p := newAPNs(t, ""); p.base != "https://api.push.apple.com" {
		t.Errorf("base %s", p.base)
	}
}

func BenchmarkAPNsSend(b *testing.B) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(acceptAPNs))
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	b.Cleanup(srv.Close)
	benchmarkSend(b, newAPNs(b, srv.URL), deviceMessage(ProviderAPNs))
}
