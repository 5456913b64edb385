package catalog_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/catalog"
	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// target is a recipient at the sandbox for a provider.
func target(s *sandbox.Server, info channels.Info) notify.Target {
	switch info.Channel {
	case notify.Push:
		d := &notify.Device{Provider: info.Provider, Token: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"}
		if info.Provider == "webpush" {
			endpoint, p256dh, auth := s.NewSubscription("browser")
			d = &notify.Device{Provider: "webpush", Endpoint: endpoint, Keys: &notify.WebPushKeys{P256dh: p256dh, Auth: auth}}
		}
		return notify.Target{Device: d}
	case notify.SMS, notify.WhatsApp:
		return notify.Target{Phone: "+14155550100"}
	case notify.Email:
		return notify.Target{Email: &notify.EmailAddress{Address: "ana@sandbox.test"}}
	case notify.Slack:
		if info.Provider == "slack-webhook" {
			return notify.Target{Slack: &notify.SlackTarget{WebhookURL: "https://hooks.slack.com/services/T0000/B0000/key"}}
		}
		return notify.Target{Slack: &notify.SlackTarget{Channel: "C0123456789"}}
	case notify.Webhook:
		return notify.Target{Webhook: &notify.WebhookTarget{URL: s.HTTPURL() + "/webhook/hello"}}
	}
	return notify.Target{}
}

func TestEveryAccountOfTheSandboxExampleSendsToTheSandbox(t *testing.T) {
	s, err := sandbox.New(sandbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	s.Start(t.Context())
	text, err := config.Example(config.ExampleOptions{Sandbox: s.HTTPURL(), SMTP: s.SMTPAddr()})
	if err != nil {
		t.Fatal(err)
	}
	providers, err := catalog.Build(parse(t, string(text)).Accounts())
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range providers {
		t.Run(p.Info().Account, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			m := &channels.Message{
				Key: uuid.New(), NotificationID: uuid.New(), To: target(s, p.Info()), CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour),
				Content: notify.Content{Title: "Deploy failed", Body: "api: 3 of 5 pods are down"}, Priority: notify.Normal,
			}
			if c, ok := p.(channels.Checker); ok {
				if err := c.Check(m); err != nil {
					t.Fatalf("Check: %v", err)
				}
			}
			if r := p.Send(ctx, m); r.Outcome != notify.Accepted {
				t.Errorf("Send = %+v", r)
			}
		})
	}
	if got := len(s.Messages(sandbox.Filter{})); got != len(providers) {
		t.Errorf("the sandbox received %d messages, want one of each of the %d accounts", got, len(providers))
	}
}
