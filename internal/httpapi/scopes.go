package httpapi

import (
	"math"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// maxNarrower is how many scopes below an account are shown.
const maxNarrower = 50

// accountState is how an account fares in the whole cluster.
type accountState struct {
	Account       string        `json:"account"`
	Provider      string        `json:"provider" example:"twilio"`
	MaxObservable notify.Status `json:"max_observable" enum:"sent,delivered,read" doc:"The best that this account can ever show of a message."`
	ScopeView
	Share      float64     `json:"share" doc:"The part of its channel's new deliveries that it gets now, 0 to 1. Push and Slack: of those that need its provider."`
	Weight     float64     `json:"weight,omitzero" doc:"As configured; absent where accounts are asked in order."`
	Passed     string      `json:"passed_over,omitzero" enum:"breaker_open,throttled,returning" doc:"Why others are called for it; breaker and gate say more. returning: its breaker has closed, and its calls come back little by little. Absent where it is not."`
	Scopes     []ScopeView `json:"scopes,omitempty" doc:"Scopes below the account that are in trouble, such as a webhook's host: the 50 that changed last. Only for scope admin."`
	MoreScopes bool        `json:"more_scopes,omitzero" doc:"There are more than those."`
}

// ScopeView is how a scope fares: an account, or what is below it.
type ScopeView struct {
	Scope   string       `json:"scope,omitzero" example:"host:hooks.example.com" doc:"What it is below the account; absent for the account itself."`
	Breaker breakerState `json:"breaker"`
	Gate    gateView     `json:"gate"`
}

// breakerState is a breaker of the whole cluster.
type breakerState struct {
	State       string               `json:"state" enum:"closed,open,half_open"`
	Since       *time.Time           `json:"since" doc:"Of its last change; null where there was none lately."`
	Because     string               `json:"because,omitzero" example:"failures" doc:"The last change's reason."`
	Code        string               `json:"code,omitzero" example:"20003" doc:"The provider's code, of the answer that opened it; absent where no single one did."`
	OpenUntil   *time.Time           `json:"open_until" doc:"When an open breaker lets a probe through; null where it is not open, or open until an operator says otherwise."`
	ProbeUntil  *time.Time           `json:"probe_until" doc:"When the probe that is under way is given up; null without one."`
	Opened      int                  `json:"opened" doc:"How often it opened since it was last healthy for an hour."`
	Failures    int                  `json:"failures_in_a_row" doc:"Of all processes together."`
	LastMinute  nullable[minuteView] `json:"last_minute" doc:"Calls of the last minute that speak for or against it; null where there were none."`
	Forced      bool                 `json:"forced" doc:"An operator holds it in this state."`
	ForcedBy    string               `json:"forced_by,omitzero" doc:"Who. Only for scope admin."`
	ForcedWhy   string               `json:"forced_why,omitzero" doc:"Why. Only for scope admin."`
	ForcedUntil *time.Time           `json:"forced_until,omitempty" doc:"Until when; absent for no end."`
}

type minuteView struct {
	Calls   int     `json:"calls"`
	Success float64 `json:"success_percent" doc:"The share that did not fail, to a tenth."`
	Slow    int     `json:"slow"`
}

// stateView shows a scope. What operators wrote is for those who have scope admin.
func stateView(name string, s *store.ScopeState, now time.Time, admin bool) ScopeView {
	b := s.Breaker
	v := ScopeView{Scope: name, Breaker: breakerState{
		State: string(b.State), Since: utc(b.ChangedAt), Because: string(b.Reason), Code: b.Code, OpenUntil: utc(b.OpenUntil), ProbeUntil: utc(b.ProbeUntil),
		Opened: b.OpenCount, Failures: b.Failures, Forced: b.Forced != nil,
	}}
	if s.Calls > 0 {
		share := float64(max(s.Calls-s.Failures, 0)) / float64(s.Calls)
		v.Breaker.LastMinute.value = &minuteView{Calls: s.Calls, Success: math.Round(share*1000) / 10, Slow: s.Slow}
	}
	if b.Forced != nil {
		v.Breaker.ForcedUntil = utc(b.Forced.Until)
		if admin {
			v.Breaker.ForcedBy, v.Breaker.ForcedWhy = b.Forced.Who, b.Forced.Why
		}
	}
	if s.GateUntil.After(now) {
		v.Gate = gateView{Shut: true, Until: utc(s.GateUntil)}
	}
	return v
}

// accountStates are a channel's accounts, in their order.
func (a *API) accountStates(infos []channels.Info, states []store.ScopeState, c notify.Channel, now time.Time, admin bool) []accountState {
	out := []accountState{}
	var fares []fallback.Candidate
	for _, info := range infos {
		if info.Channel != c {
			continue
		}
		v := accountState{
			Account: info.Account, Provider: info.Provider, MaxObservable: info.MaxObservable,
			ScopeView: ScopeView{Breaker: breakerState{State: string(resilience.Closed)}},
		}
		fare := fallback.Candidate{Share: 1}
		for i := range states {
			account, scope, narrower := strings.Cut(states[i].Scope, "/")
			switch {
			case account != info.Account:
			case !narrower:
				v.ScopeView = stateView("", &states[i], now, admin)
				fare = fareOf(&states[i], now)
			case !admin: // other projects' hosts are no business of this one
			case len(v.Scopes) == maxNarrower:
				v.MoreScopes = true
			default:
				v.Scopes = append(v.Scopes, stateView(scope, &states[i], now, admin))
			}
		}
		out, fares = append(out, v), append(fares, fare)
	}
	a.share(out, fares)
	return out
}
