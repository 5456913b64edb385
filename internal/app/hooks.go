package app

import (
	"log/slog"

	"github.com/notification-dispatcher/dispatcher/internal/channels/webhook"
	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/hooks"
	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// hookAccount is the account that status webhooks are sent through.
func hookAccount(c config.StatusWebhooks, s *store.Store, log *slog.Logger) (*dispatch.Account, error) {
	settings := webhook.Config{AllowPorts: c.Ports(), AllowPrivate: c.AllowPrivate.Items()}
	p, err := hooks.NewProvider(settings, s, log)
	if err != nil {
		return nil, err
	}
	return &dispatch.Account{
		Provider: p, Timeout: hooks.Timeout, OnUnknown: notify.Resend, Hidden: true, Schedule: hooks.Schedule(),
		// The schedule bounds retries already; one project's dead endpoint must not
		// use up what the others may retry.
		Budget: resilience.BudgetConfig{PerFirst: float64(len(hooks.Schedule()))},
	}, nil
}

func (a *App) newHooks() *hooks.Service {
	return hooks.New(hooks.Config{
		Store: a.store, Starter: a.dispatcher, Cursor: httpapi.EventCursor, Log: a.log, Guard: a.guard,
		Check: func(n *notify.Notification) []notify.Problem { return a.dispatcher.Registry().Check(n) },
	})
}
