package app

import (
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/dispatch"
	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

var _ httpapi.Planner = accounts{}

// Plan implements [httpapi.Planner].
func (a accounts) Plan(n *notify.Notification) []httpapi.PlannedStep {
	now := time.Now()
	var held []string
	for _, s := range a.member.Snapshot(now) {
		open := s.Breaker.State == resilience.Open && (s.Breaker.OpenUntil.IsZero() || s.Breaker.OpenUntil.After(now))
		if open || s.GateUntil.After(now) {
			held = append(held, s.Scope)
		}
	}
	fares := func(account *dispatch.Account, scopes []string) resilience.Health {
		info := account.Provider.Info()
		return a.member.Health(info.Account, scopes, info.Channel == notify.Webhook, now)
	}
	steps := a.dispatcher.Registry().Plan(n, held, fares, now)
	out := make([]httpapi.PlannedStep, len(steps))
	for i, s := range steps {
		out[i] = httpapi.PlannedStep{
			Targets: s.Targets, Accounts: s.Accounts, Held: s.Held, Preview: s.Preview, Problems: s.Problems, Latest: s.Latest,
			Passed: make([]httpapi.PassedOver, len(s.Passed)),
		}
		for j, p := range s.Passed {
			out[i].Passed[j] = httpapi.PassedOver(p)
		}
	}
	return out
}
