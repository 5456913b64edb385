// Package catalog is the list of providers: the one place to add one to. It turns
// accounts of the configuration into providers.
package catalog

import (
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/email"
	"github.com/notification-dispatcher/dispatcher/internal/channels/push"
	"github.com/notification-dispatcher/dispatcher/internal/channels/slack"
	"github.com/notification-dispatcher/dispatcher/internal/channels/sms"
	"github.com/notification-dispatcher/dispatcher/internal/channels/webhook"
	"github.com/notification-dispatcher/dispatcher/internal/channels/whatsapp"
	"github.com/notification-dispatcher/dispatcher/internal/config/strict"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Spec is one provider for one channel.
type Spec struct {
	// Provider is its name in the configuration, unique within the channel.
	Provider string
	Channel  notify.Channel
	// New makes the provider of one account from the settings that are its own.
	// The error is a [*strict.Error] with paths relative to the account.
	New func(account string, settings *yaml.Node) (channels.Provider, error)
}

// All lists every provider, channel by channel.
func All() []Spec {
	return []Spec{
		spec(notify.Push, "fcm", push.NewFCM),
		spec(notify.Push, "apns", push.NewAPNs),
		spec(notify.Push, "webpush", push.NewWebPush),
		spec(notify.SMS, "twilio", sms.New),
		spec(notify.WhatsApp, "twilio", whatsapp.NewTwilio),
		spec(notify.WhatsApp, "meta", whatsapp.NewMeta),
		spec(notify.Email, "smtp", email.New),
		spec(notify.Slack, "slack", slack.NewBot),
		spec(notify.Slack, "slack-webhook", slack.NewWebhook),
		spec(notify.Webhook, "webhook", webhook.New),
	}
}

// Lookup finds the provider of a channel by its name.
func Lookup(c notify.Channel, provider string) (Spec, bool) {
	all := All()
	i := slices.IndexFunc(all, func(s Spec) bool { return s.Channel == c && s.Provider == provider })
	if i < 0 {
		return Spec{}, false
	}
	return all[i], true
}

// Names lists the providers of a channel.
func Names(c notify.Channel) []string {
	var out []string
	for _, s := range All() {
		if s.Channel == c {
			out = append(out, s.Provider)
		}
	}
	return out
}

// spec wires a constructor that takes a configuration of its own type.
func spec[C any, P channels.Provider](c notify.Channel, provider string, construct func(account string, cfg C) (P, error)) Spec {
	return Spec{
		Provider: provider,
		Channel:  c,
		New: func(account string, settings *yaml.Node) (channels.Provider, error) {
			var cfg C
			problems := strict.Decode(settings, "", &cfg)
			p, err := construct(account, cfg)
			if err != nil {
				problems = append(problems, flatten(err, problems)...)
			}
			if len(problems) > 0 {
				locate(problems, settings)
				return nil, problems.Err()
			}
			return p, nil
		},
	}
}
