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
func buildRegistry(c config.Config) (*dispatch.Registry, error) {
	accounts := c.Accounts()
	providers, err := catalog.Build(accounts)
	if err != nil {
		return nil, fmt.Errorf("configure accounts: %w", err)
	}
	byChannel := map[notify.Channel]dispatch.Channel{}
	for ch, settings := range c.Channels {
		byChannel[ch] = dispatch.Channel{MaxInFlight: settings.MaxInFlight}
	}
	for i, a := range accounts {
		ch := byChannel[a.Channel]
		ch.Accounts = append(ch.Accounts, &dispatch.Account{
			Provider: providers[i], Timeout: a.Timeout, Projects: a.Projects, OnUnknown: a.OnUnknown,
			Retry: resilience.Backoff{Base: a.Retry.Base, Cap: a.Retry.Cap},
			// A recipient that is not there now will not be in a second: the base is
			// the least wait, and the first one lies between it and twice as long.
			SlowRetry: resilience.Backoff{
				Base: 2 * a.Retry.RecipientBase, Cap: a.Retry.RecipientCap, Floor: a.Retry.RecipientBase,
			},
			Breaker: resilience.BreakerConfig{
				Failures: a.Breaker.Failures, OpenFor: a.Breaker.Open, OpenCap: a.Breaker.MaxOpen, Successes: a.Breaker.Successes,
				MinCalls: a.Breaker.MinCalls, FailureRate: a.Breaker.FailureRate, SlowRate: a.Breaker.SlowRate, SlowCall: a.Breaker.SlowCall,
				// A probe that is still calling holds its place.
				ProbeLease: a.Timeout + 2*time.Second,
			},
			Budget: resilience.BudgetConfig{PerFirst: a.Retry.Budget}, MaxPerSecond: a.MaxPerSecond,
		})
		byChannel[a.Channel] = ch
	}
	return dispatch.NewRegistry(byChannel), nil
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
