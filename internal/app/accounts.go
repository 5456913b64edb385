package app

import (
	"fmt"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/catalog"
	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// buildRegistry makes every configured account ready to send. The error holds
// every problem of every account.
func (a *App) buildRegistry(c config.Config) (*dispatch.Registry, error) {
	accounts := c.Accounts()
	providers, err := catalog.Build(accounts)
	if err != nil {
		return nil, fmt.Errorf("configure accounts: %w", err)
	}
	byChannel := map[notify.Channel]dispatch.Channel{}
	for ch, settings := range c.Channels {
		byChannel[ch] = dispatch.Channel{MaxInFlight: settings.MaxInFlight}
	}
	for i, account := range accounts {
		ch := byChannel[account.Channel]
		ch.Accounts = append(ch.Accounts, &dispatch.Account{
			Provider: providers[i], Timeout: account.Timeout, Projects: account.Projects, OnUnknown: account.OnUnknown,
			Retry: resilience.Backoff{Base: account.Retry.Base, Cap: account.Retry.Cap},
			// A recipient that is not there now will not be in a second: the base is
			// the least wait, and the first one lies between it and twice as long.
			SlowRetry: resilience.Backoff{
				Base: 2 * account.Retry.RecipientBase, Cap: account.Retry.RecipientCap, Floor: account.Retry.RecipientBase,
			},
			Breaker: resilience.BreakerConfig{
				Failures: account.Breaker.Failures, OpenFor: account.Breaker.Open, OpenCap: account.Breaker.MaxOpen, Successes: account.Breaker.Successes,
				MinCalls: account.Breaker.MinCalls, FailureRate: account.Breaker.FailureRate, SlowRate: account.Breaker.SlowRate, SlowCall: account.Breaker.SlowCall,
				// A probe that is still calling holds its place.
				ProbeLease: account.Timeout + 2*time.Second,
			},
			Budget: resilience.BudgetConfig{PerFirst: account.Retry.Budget}, MaxPerSecond: account.MaxPerSecond, Weight: account.Weight, ReceiptWindow: account.ReceiptWindow,
		})
		byChannel[account.Channel] = ch
	}
	hook, err := hookAccount(c.StatusWebhooks, a.store, a.log)
	if err != nil {
		return nil, fmt.Errorf("configure status webhooks: %w", err)
	}
	ch := byChannel[notify.Webhook]
	ch.Accounts = append(ch.Accounts, hook)
	byChannel[notify.Webhook] = ch
	return dispatch.NewRegistry(byChannel).WithAckLinks(a.links.sample()), nil
}

// accounts shows the API what is configured and how it fares.
type accounts struct {
	dispatcher *dispatch.Dispatcher
	member     *resilience.Member
}

var _ httpapi.Accounts = accounts{}

// Infos implements [httpapi.Accounts].
func (a accounts) Infos(project string) []channels.Info {
	return a.dispatcher.Registry().Infos(project)
}

// Check implements [httpapi.Accounts].
func (a accounts) Check(n *notify.Notification) []notify.Problem {
	return a.dispatcher.Registry().Check(n)
}

// Health implements [httpapi.Accounts].
func (a accounts) Health(project string) []httpapi.AccountHealth {
	states := map[string]resilience.ScopeState{}
	for _, s := range a.member.Snapshot(time.Now()) {
		states[s.Scope] = s
	}
	infos := a.Infos(project)
	out := make([]httpapi.AccountHealth, len(infos))
	for i, info := range infos {
		out[i] = httpapi.AccountHealth{Info: info, Breaker: httpapi.BreakerHealth{State: string(resilience.Closed)}}
		s, ok := states[info.Account]
		if !ok {
			continue
		}
		out[i].GateUntil = s.GateUntil
		out[i].Breaker = httpapi.BreakerHealth{
			State: string(s.Breaker.State), OpenUntil: s.Breaker.OpenUntil, Forced: s.Breaker.Forced != nil, Because: string(s.Breaker.Reason),
		}
	}
	return out
}
