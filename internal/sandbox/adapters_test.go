package sandbox_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/catalog"
	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// adapters builds every provider from the configuration that points at s.
func adapters(t *testing.T, s *sandbox.Server) []channels.Provider {
	t.Helper()
	text, err := config.Example(config.ExampleOptions{Sandbox: s.HTTPURL(), SMTP: s.SMTPAddr()})
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Parse(text, config.Env{"DATABASE_URL": "postgres://db"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	providers, err := catalog.Build(c.Accounts())
	if err != nil {
		t.Fatal(err)
	}
	return providers
}

// target addresses a scripted recipient as the API's callers do.
func target(s *sandbox.Server, provider, to string) notify.Target {
	switch provider {
	case "fcm", "apns":
		return notify.Target{Device: &notify.Device{Provider: provider, Token: to}}
	case "webpush":
		endpoint, p256dh, auth := s.NewSubscription(to)
		return notify.Target{Device: &notify.Device{
			Provider: provider, Endpoint: endpoint, Keys: &notify.WebPushKeys{P256dh: p256dh, Auth: auth},
		}}
	case "slack":
		return notify.Target{Slack: &notify.SlackTarget{Channel: "#" + to}}
	case "slack-webhook":
		return notify.Target{Slack: &notify.SlackTarget{WebhookURL: s.HTTPURL() + "/services/T1/B1/" + to}}
	case "smtp":
		return notify.Target{Email: &notify.EmailAddress{Address: to + "@sandbox.test"}}
	case "webhook":
		return notify.Target{Webhook: &notify.WebhookTarget{URL: s.HTTPURL() + "/webhook/" + to}}
	}
	return notify.Target{Phone: to}
}

// meant is what a refusal means to the dispatcher, by provider and recipient.
var meant = map[string]map[string]notify.Outcome{
	"twilio": {
		"+15005550001": notify.RecipientRejected, "+15005550002": notify.RecipientRejected, "+15005550003": notify.AccountRejected,
		"+15005550004": notify.Suppressed, "+15005550009": notify.RecipientRejected, "+15005550011": notify.Throttled,
		"+15005550012": notify.ProviderUnavailable,
	},
	"meta": {
		"+15005550001": notify.RecipientRejected, "+15005550002": notify.MessageRejected, "+15005550003": notify.AccountRejected,
		"+15005550004": notify.Suppressed, "+15005550011": notify.Throttled, "+15005550012": notify.ProviderUnavailable,
	},
	"fcm": {
		"unregistered": notify.RecipientRejected, "invalid": notify.RecipientRejected, "auth": notify.AccountRejected,
		"ratelimited": notify.Throttled, "unavailable": notify.Unknown, "flaky": notify.Unknown,
	},
	"apns": {
		"unregistered": notify.RecipientRejected, "invalid": notify.RecipientRejected, "auth": notify.AccountRejected,
		"ratelimited": notify.Throttled, "unavailable": notify.ProviderUnavailable, "flaky": notify.ProviderUnavailable,
	},
	"webpush": {
		"unregistered": notify.RecipientRejected, "invalid": notify.RecipientRejected, "auth": notify.AccountRejected,
		"ratelimited": notify.Throttled, "unavailable": notify.ProviderUnavailable, "flaky": notify.ProviderUnavailable,
	},
	"slack": {
		"archived": notify.RecipientRejected, "unregistered": notify.RecipientRejected, "invalid": notify.RecipientRejected,
		"private": notify.RecipientRejected, "auth": notify.AccountRejected, "toolong": notify.MessageRejected, "broken": notify.Unknown,
		"ratelimited": notify.Throttled, "unavailable": notify.Unknown, "flaky": notify.Unknown,
	},
	"slack-webhook": {
		"unregistered": notify.RecipientRejected, "archived": notify.RecipientRejected, "invalid": notify.MessageRejected,
		"auth": notify.RecipientRejected, "ratelimited": notify.Throttled, "unavailable": notify.ProviderUnavailable,
		"flaky": notify.ProviderUnavailable,
	},
	"smtp": {
		"bounce": notify.RecipientRejected, "full": notify.RecipientUnavailable, "blocked": notify.MessageRejected,
		"greylist": notify.RecipientUnavailable, "ratelimited": notify.RecipientUnavailable, "unavailable": notify.ProviderUnavailable,
	},
}

// TestAdaptersUnderstandEveryScriptedRecipient holds the real adapters, with the
// configuration that people get, against the whole table.
func TestAdaptersUnderstandEveryScriptedRecipient(t *testing.T) {
	s := start(t, sandbox.Config{})
	for _, p := range adapters(t, s) {
		info := p.Info()
		plain := sandbox.Scripted{Provider: info.Provider, To: "plain"}
		if info.Channel == notify.SMS || info.Channel == notify.WhatsApp {
			plain.To = "+14155550100"
		}
		for _, sc := range append(sandbox.ScriptedRecipients(), plain) {
			if sc.Provider != info.Provider || sc.Delay > 0 {
				continue
			}
			t.Run(info.Account+" "+sc.To, func(t *testing.T) {
				m := &channels.Message{
					Key: uuid.New(), NotificationID: uuid.New(), To: target(s, info.Provider, sc.To),
					Content: notify.Content{Title: "Deploy failed", Body: "api: 3 of 5 pods are down"}, Priority: notify.Normal,
					CreatedAt: time.Now(), ExpiresAt: time.Now().Add(time.Hour),
				}
				if c, ok := p.(channels.Checker); ok {
					if err := c.Check(m); err != nil {
						t.Fatalf("refused before the call: %v", err)
					}
				}
				want := notify.Accepted
				if sc.Status != 0 {
					want = meant[sc.Provider][sc.To]
				}
				got := p.Send(t.Context(), m)
				if got.Outcome != want || got.RetryAfter != time.Duration(sc.RetryAfter)*time.Second {
					t.Errorf("outcome %s after %v (%s, %s), want %s", got.Outcome, got.RetryAfter, got.Code, got.Detail, want)
				}
				if sc.Once {
					if got = p.Send(t.Context(), m); got.Outcome != notify.Accepted {
						t.Errorf("the repeat is %s (%s, %s)", got.Outcome, got.Code, got.Detail)
					}
				}
			})
		}
	}
}
