package push

import (
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

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
		t.Parallel()
		m := b.message(testEndpoint)
		m.Content = notify.Content{Body: "x"}
		_, payload, err := p.read(m)
		if err != nil {
			t.Fatal(err)
		}
		m.Content.Body = strings.Repeat("x", 3993-len(payload)+1)
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
