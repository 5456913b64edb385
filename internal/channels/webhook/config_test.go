package webhook_test

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/webhook"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

func ofBytes(n int) secret.Value {
	return secret.New("whsec_" + base64.StdEncoding.EncodeToString(make([]byte, n)))
}

func TestConfigNamesEverythingThatIsWrong(t *testing.T) {
	_, err := webhook.New("hooks", webhook.Config{
		Secrets:      []secret.Value{secret.New("not-a-secret-4711"), secret.New("whsec_%%%4711")},
		UserAgent:    "two\r\nlines",
		AllowPorts:   []int{80, 70000},
		AllowPrivate: []string{"10.0.0.0/8", "10.0.0.1", "host:port", ":80", "host:0", "10.0.0.0/33"},
	})
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{
		"webhook account hooks: ",
		"secrets[0]: must begin with whsec_", "secrets[1]: must be whsec_ and base64",
		"user_agent: ", "allow_ports[1]: ",
		"allow_private[1]: ", "allow_private[2]: ", "allow_private[3]: ", "allow_private[4]: ", "allow_private[5]: ",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
	if strings.Contains(err.Error(), "4711") {
		t.Errorf("a secret is shown in:\n%v", err)
	}
	if strings.Contains(err.Error(), "allow_private[0]") {
		t.Errorf("what is right is reported in:\n%v", err)
	}
}

func TestSecretsHaveTheLengthOfTheStandard(t *testing.T) {
	for n, ok := range map[int]bool{0: false, 23: false, 24: true, 32: true, 64: true, 65: false} {
		if _, err := webhook.New("hooks", webhook.Config{Secrets: []secret.Value{ofBytes(n)}}); (err == nil) != ok {
			t.Errorf("a secret of %d bytes: %v", n, err)
		}
	}
	for n, ok := range map[int]bool{0: false, 1: true, 2: true, 3: false} {
		secrets := make([]secret.Value, n)
		for i := range secrets {
			secrets[i] = ofBytes(32)
		}
		if _, err := webhook.New("hooks", webhook.Config{Secrets: secrets}); (err == nil) != ok {
			t.Errorf("%d secrets: %v", n, err)
		}
	}
}

func TestConfigInYAML(t *testing.T) {
	t.Setenv("HOOK_SECRET", ofBytes(32).Reveal())
	var cfg webhook.Config
	dec := yaml.NewDecoder(strings.NewReader(`
secrets: [{env: HOOK_SECRET}]
user_agent: acme/2
allow_ports: [443, 8443]
allow_private: ["localhost:8090", "10.0.0.0/8"]
`))
	dec.KnownFields(true)
	if err := dec.Decode(&cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := webhook.New("hooks", cfg); err != nil {
		t.Error(err)
	}
	if cfg.UserAgent != "acme/2" || len(cfg.AllowPorts) != 2 || len(cfg.AllowPrivate) != 2 {
		t.Errorf("%+v", cfg)
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	key := strings.Repeat("k", 32)
	s := signingSecret("k")
	cfg := webhook.Config{Secrets: []secret.Value{secret.New(s)}}
	p, err := webhook.New("hooks", cfg)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("config", slog.Any("config", cfg), slog.Any("provider", p), slog.Any("info", p.Info()))
	for _, text := range []string{log.String(), fmt.Sprintf("%v %+v %#v", cfg, cfg, cfg), fmt.Sprintf("%v %+v %#v", p, p, p)} {
		if strings.Contains(text, s) || strings.Contains(text, key) || strings.Contains(text, strings.TrimPrefix(s, "whsec_")) {
			t.Errorf("a secret is shown in %s", text)
		}
	}
}

func TestHeadersThatCallersMayNotSet(t *testing.T) {
	p := provider(t, "http://example.com:80")
	for _, name := range []string{
		"Host", "Content-Length", "content-length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade", "Expect",
		"Proxy-Authorization", "Proxy-Connection", "HTTP2-Settings", "Webhook-Id", "webhook-signature", "WEBHOOK-TIMESTAMP", "webhook-anything",
		"Traceparent", "Metadata-Flavor", "Metadata", "X-aws-ec2-metadata-token", "", "two words", "colon:", "new\nline", "Ünïcode",
	} {
		wantRefused(t, p, name, "value")
	}
	for _, value := range []string{"two\r\nlines", "nul\x00", "bell\a", "ünïcode", "del\x7f"} {
		wantRefused(t, p, "X-Custom", value)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer x", "X-Custom": "a\tb ~", "Content-Type": "application/cloudevents+json", "Cookie": "a=b", "x-empty": "",
	} {
		m := message("http://example.com")
		m.To.Webhook.Headers = map[string]string{name: value}
		if err := p.Check(m); err != nil {
			t.Errorf("refused %q: %v", name, err)
		}
	}
}

func wantRefused(t *testing.T, p *webhook.Provider, name, value string) {
	t.Helper()
	m := message("http://example.com")
	m.To.Webhook.Headers = map[string]string{"X-Fine": "fine", name: value}
	err := p.Check(m)
	cerr, ok := errors.AsType[*channels.CheckError](err)
	if !ok {
		t.Errorf("accepted header %q: %q, or the error %v is no CheckError", name, value, err)
		return
	}
	if !strings.HasPrefix(cerr.Field, "/to/webhook/headers") || strings.Contains(cerr.Reason, value) {
		t.Errorf("header %q: %q: %v", name, value, cerr)
	}
	if r := p.Send(t.Context(), m); r.Outcome != notify.RecipientRejected {
		t.Errorf("header %q: %q: result %+v", name, value, r)
	}
}

func TestMessagesThatCannotBeSent(t *testing.T) {
	p := provider(t, "http://example.com:80")
	for name, tt := range map[string]struct {
		change func(*channels.Message)
		field  string
		want   notify.Outcome
	}{
		"no target":       {func(m *channels.Message) { m.To.Webhook = nil }, "/to/webhook", notify.RecipientRejected},
		"payload no JSON": {func(m *channels.Message) { m.Content.Webhook = &notify.WebhookContent{Payload: []byte(`{"a":`)} }, "/content/webhook/payload", notify.MessageRejected},
		"data no JSON":    {func(m *channels.Message) { m.Content.Data = []byte(`{"a":`) }, "/content", notify.MessageRejected},
	} {
		t.Run(name, func(t *testing.T) {
			m := message("http://example.com")
			tt.change(m)
			if err, ok := errors.AsType[*channels.CheckError](p.Check(m)); !ok || err.Field != tt.field {
				t.Errorf("Check: %v, want one about %s", err, tt.field)
			}
			if r := p.Send(t.Context(), m); r.Outcome != tt.want {
				t.Errorf("result %+v, want %s", r, tt.want)
			}
		})
	}
}

func TestScopesAreHosts(t *testing.T) {
	p := provider(t, "http://example.com:80")
	long := strings.Repeat("a", 60) + ".example.com"
	for url, want := range map[string]string{
		"https://Hooks.Example.com/a?b":      "host:hooks.example.com",
		"http://hooks.example.com:80/":       "host:hooks.example.com",
		"https://hooks.example.com.:443/":    "host:hooks.example.com",
		"https://hooks.example.com:8443/":    "host:hooks.example.com:8443",
		"https://bücher.example/":            "host:xn--bcher-kva.example",
		"https://[2606:4700:4700::1111]/":    "host:2606:4700:4700::1111",
		"https://" + long + "/":              "host:43c9a14c2b264b704416b07ddee9c87b",
		"ftp://no.url.of.ours.example.com/x": "",
	} {
		m := message("")
		m.To.Webhook.URL = url
		got := strings.Join(p.Scopes(m.To), " ")
		if got != want {
			t.Errorf("scopes of %s: %q, want %q", url, got, want)
		}
	}
	if got := p.Scopes(notify.Target{Phone: "+14155550100"}); got != nil {
		t.Errorf("scopes of a phone: %q", got)
	}
}
