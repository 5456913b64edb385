package httpapi

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// AccountHealth is the state of one account now.
type AccountHealth struct {
	channels.Info
	Breaker BreakerHealth
	// GateUntil is when the quiet that the provider asked for ends; zero or past
	// for no quiet.
	GateUntil time.Time
}

// BreakerHealth is the state of an account's breaker.
type BreakerHealth struct {
	State string // closed, open or half_open
	// OpenUntil is when an open breaker lets a probe through; zero otherwise.
	OpenUntil time.Time
	Forced    bool   // an operator holds it in this state
	Because   string // why it is not closed, without addresses; may be empty
}

type channelView struct {
	Channel  notify.Channel `json:"channel" enum:"push,sms,whatsapp,email,slack,webhook"`
	Paused   *pauseView     `json:"paused,omitempty" doc:"Since when an operator has stopped the channel; absent while it runs."`
	InFlight int            `json:"max_in_flight" doc:"How many calls each process makes at once."`
	Accounts []accountState `json:"accounts" doc:"In the order in which they are used."`
	Backlog  backlogView    `json:"backlog" doc:"What is ahead: of the key's project, or with scope admin of all projects."`
}

type pauseView struct {
	By     string    `json:"by,omitzero" doc:"Who. Only for scope admin."`
	Reason string    `json:"reason,omitzero" doc:"Why. Only for scope admin."`
	Since  time.Time `json:"since"`
}

type accountView struct {
	Account       string        `json:"account"`
	Provider      string        `json:"provider" example:"twilio"`
	MaxObservable notify.Status `json:"max_observable" enum:"sent,delivered,read" doc:"The best that this account can ever show of a message."`
	Breaker       breakerView   `json:"breaker"`
	Gate          gateView      `json:"gate"`
}

type breakerView struct {
	State     string     `json:"state" enum:"closed,open,half_open"`
	OpenUntil *time.Time `json:"open_until" doc:"When an open breaker lets a probe through; null otherwise."`
	Forced    bool       `json:"forced" doc:"An operator holds it in this state."`
	Because   string     `json:"because,omitzero"`
}

type gateView struct {
	Shut  bool       `json:"shut" doc:"The provider asked to be left alone."`
	Until *time.Time `json:"until" doc:"Until when; null while it is open."`
}

type backlogView struct {
	Waiting          map[notify.WaitReason]int64 `json:"waiting" doc:"Deliveries that wait, by reason."`
	Queued           int64                       `json:"queued" doc:"Deliveries that can run now, or are running."`
	OldestAgeSeconds float64                     `json:"oldest_age_seconds" doc:"For how long the oldest has been due without moving."`
	OldestHeld       float64                     `json:"oldest_held_seconds" doc:"For how long the oldest has been held by a breaker, a gate, a pause or a limit."`
}

type channelsOutput struct {
	Body struct {
		Items []channelView `json:"items"`
	}
}

func (a *API) routeChannels() {
	huma.Register(a.huma, huma.Operation{
		OperationID: "listChannels", Method: http.MethodGet, Path: "/v1/channels", Tags: []string{tagChannels},
		Summary: "See the health of the channels",
		Description: "Accounts with breaker and gate as they are in the whole cluster, and the backlog. A key without scope admin sees the accounts and " +
			"the backlog of its own project, and not what operators wrote.",
		Security: needs(ScopeRead), SkipValidateParams: true, Errors: []int{401, 403, 406, 422, 503},
	}, a.listChannels)
}

func (a *API) listChannels(ctx context.Context, _ *struct{}) (*channelsOutput, error) {
	key, infos, narrower := keyOf(ctx), a.operations.AllInfos(), maxNarrower+1
	project, admin := "", slices.Contains(key.Scopes, ScopeAdmin)
	if !admin {
		project, infos, narrower = key.Project, a.accounts.Infos(key.Project), 0
	}
	backlog, err := a.store.Backlog(ctx, project)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	pauses, err := a.store.Pauses(ctx)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	names := make([]string, len(infos))
	for i, info := range infos {
		names[i] = info.Account
	}
	states, err := a.operations.ScopeStates(ctx, names, nil, narrower)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	now, out := a.now(), &channelsOutput{}
	for _, c := range notify.Channels() {
		v := channelView{
			Channel: c, Paused: pauseOf(pauses, c), InFlight: a.operations.MaxInFlight(c),
			Accounts: a.accountStates(infos, states, c, now, admin), Backlog: backlogOf(backlog, c, now),
		}
		if v.Paused != nil && !admin {
			v.Paused.By, v.Paused.Reason = "", ""
		}
		out.Body.Items = append(out.Body.Items, v)
	}
	return out, nil
}

func pauseOf(pauses []store.Pause, c notify.Channel) *pauseView {
	for _, p := range pauses {
		if p.Channel == c {
			return &pauseView{By: p.By, Reason: p.Reason, Since: p.Since.UTC()}
		}
	}
	return nil
}

func accountsOf(health []AccountHealth, c notify.Channel, now time.Time) []accountView {
	out := []accountView{}
	for _, h := range health {
		if h.Channel != c {
			continue
		}
		v := accountView{
			Account: h.Account, Provider: h.Provider, MaxObservable: h.MaxObservable,
			Breaker: breakerView{
				State: h.Breaker.State, OpenUntil: utc(h.Breaker.OpenUntil), Forced: h.Breaker.Forced, Because: h.Breaker.Because,
			},
		}
		if h.GateUntil.After(now) {
			v.Gate = gateView{Shut: true, Until: utc(h.GateUntil)}
		}
		out = append(out, v)
	}
	return out
}

func backlogOf(backlog []store.Backlog, c notify.Channel, now time.Time) backlogView {
	v := backlogView{Waiting: map[notify.WaitReason]int64{}}
	for _, b := range backlog {
		if b.Channel != c {
			continue
		}
		v.Queued += b.Queued
		for reason, n := range b.Waiting {
			v.Waiting[reason] += n
		}
		if !b.OldestDue.IsZero() {
			v.OldestAgeSeconds = max(v.OldestAgeSeconds, now.Sub(b.OldestDue).Seconds())
		}
		for _, since := range b.OldestHeld {
			v.OldestHeld = max(v.OldestHeld, now.Sub(since).Seconds())
		}
	}
	return v
}
