package httpapi

import (
	"math"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// fareOf is how an account fares in the whole cluster, for new deliveries.
func fareOf(s *store.ScopeState, now time.Time) fallback.Candidate {
	b := s.Breaker
	f := fallback.Candidate{Share: 1}
	switch {
	case b.State == resilience.Open:
		f.Bar = fallback.Bar{Reason: notify.WaitBreakerOpen, Scope: s.Scope, Until: b.OpenUntil}
	case b.State == resilience.HalfOpen: // one probe at a time is no share
		f.Bar = fallback.Bar{Reason: notify.WaitBreakerOpen, Scope: s.Scope, Until: b.ProbeUntil}
	case b.Forced == nil && (b.Reason == resilience.ReasonProbesSucceeded || b.Reason == resilience.ReasonReset):
		f.Share = resilience.ReturnShare(now.Sub(b.ChangedAt), b.Trips)
	}
	forGood := f.Bar.Reason != "" && f.Bar.Until.IsZero()
	if s.GateUntil.After(now) && s.GateUntil.After(f.Bar.Until) && !forGood {
		f.Bar = fallback.Bar{Reason: notify.WaitThrottled, Scope: s.Scope, Until: s.GateUntil}
	}
	return f
}

// share sets which part of their channel's new deliveries the accounts get, and
// why those that others are called for are passed over. fares and accounts are in
// one order.
func (a *API) share(accounts []accountState, fares []fallback.Candidate) {
	groups := map[string][]int{}
	weights := make([]float64, len(accounts))
	for i := range accounts {
		var group string
		group, weights[i] = a.operations.Sharing(accounts[i].Account)
		groups[group] = append(groups[group], i)
	}
	for _, of := range groups {
		mine, parts := make([]fallback.Candidate, len(of)), make([]float64, len(of))
		for k, i := range of {
			mine[k], parts[k] = fares[i], weights[i]
		}
		for k, share := range fallback.Shares(mine, parts) {
			v := &accounts[of[k]]
			v.Share, v.Weight = math.Round(share*1000)/1000, parts[k]
			switch {
			case mine[k].Bar.Reason != "":
				v.Passed = string(mine[k].Bar.Reason)
			case mine[k].Share < 1:
				v.Passed = fallback.PassedReturning
			}
		}
	}
}
