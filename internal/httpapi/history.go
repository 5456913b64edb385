package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// maxTransitions is how many changes of a breaker are shown.
const maxTransitions = 50

type historyInput struct {
	Account string `path:"account" doc:"The account's name."`
	Scope   string `query:"scope" maxLength:"128" doc:"A scope below the account; the account itself if absent."`
}

type historyOutput struct {
	Body struct {
		BreakerAnswer
		Transitions []transitionView `json:"transitions" doc:"The last 50 changes, newest first."`
	}
}

type transitionView struct {
	At     time.Time  `json:"at"`
	From   string     `json:"from" enum:"closed,open,half_open"`
	To     string     `json:"to" enum:"closed,open,half_open"`
	Reason string     `json:"reason" example:"failures" doc:"failures, failure_rate, slow, account_rejected, probe, probe_failed, probes_succeeded, forced, forced_until_over or reset."`
	Code   string     `json:"code,omitzero" example:"20003" doc:"The provider's code, where one answer opened it."`
	Until  *time.Time `json:"until" doc:"The end of the open or forced time; null where there is none."`
	By     string     `json:"by,omitzero" doc:"The operator: the name and id of an API key."`
	Why    string     `json:"why,omitzero"`
	Node   string     `json:"node,omitzero" doc:"The process that saw it; absent where an operator did it."`
}

type actionsInput struct {
	Limit int `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"How many at most."`
}

type actionsOutput struct {
	Body struct {
		Items []actionView `json:"items"`
	}
}

type actionView struct {
	At     time.Time  `json:"at"`
	Action string     `json:"action" enum:"open,close,reset,pause,resume"`
	Target string     `json:"target" example:"twilio-main" doc:"An account, an account and a scope below it, or a channel."`
	By     string     `json:"by" example:"on call (0193a1b2-0000-7000-8000-000000000001)" doc:"The name and id of an API key."`
	Why    string     `json:"why"`
	Until  *time.Time `json:"until" doc:"When it ends by itself; null for never."`
}

func (a *API) routeHistory() {
	huma.Register(a.huma, huma.Operation{
		OperationID: "getBreaker", Method: http.MethodGet, Path: "/v1/channels/{account}/breaker", Tags: []string{tagChannels},
		Summary: "See a breaker and its history", Description: "Of the whole cluster: every process shows the same.",
		Security: needs(ScopeAdmin), SkipValidateParams: true, Errors: []int{401, 403, 404, 406, 422, 503},
	}, a.getBreaker)
	huma.Register(a.huma, huma.Operation{
		OperationID: "listOperatorActions", Method: http.MethodGet, Path: "/v1/channels/actions", Tags: []string{tagChannels},
		Summary: "List what operators did by hand", Description: "Breakers forced and reset, channels paused and resumed, newest first.",
		Security: needs(ScopeAdmin), SkipValidateParams: true, Errors: []int{401, 403, 406, 422, 503},
	}, a.listOperatorActions)
}

func (a *API) getBreaker(ctx context.Context, in *historyInput) (*historyOutput, error) {
	if !a.hasAccount(in.Account) {
		return nil, noAccount()
	}
	if in.Scope != "" && !validScope(in.Scope) {
		return nil, parameterProblem("query.scope", notify.CodeFormat, scopeRule)
	}
	state, err := a.scopeState(ctx, in.Account, in.Scope)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	events, err := a.operations.BreakerEvents(ctx, scopeName(in.Account, in.Scope), maxTransitions)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &historyOutput{}
	out.Body.BreakerAnswer = BreakerAnswer{Account: in.Account, ScopeView: state}
	out.Body.Transitions = make([]transitionView, len(events))
	for i, e := range events {
		v := transitionView{
			At: e.At.UTC(), From: e.From, To: e.To, Reason: e.Reason, Code: e.Code, Until: utc(e.Until), By: e.By, Why: e.Why, Node: e.Node,
		}
		if v.By != "" {
			v.Node = ""
		}
		out.Body.Transitions[i] = v
	}
	return out, nil
}

func (a *API) listOperatorActions(ctx context.Context, in *actionsInput) (*actionsOutput, error) {
	if in.Limit < 1 || in.Limit > maxPage {
		return nil, parameterProblem("query.limit", notify.CodeRange, "must be 1 to 100")
	}
	actions, err := a.operations.OperatorActions(ctx, in.Limit)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &actionsOutput{}
	out.Body.Items = make([]actionView, len(actions))
	for i, d := range actions {
		out.Body.Items[i] = actionView{At: d.At.UTC(), Action: string(d.Action), Target: d.Target, By: d.By, Why: d.Why, Until: utc(d.Until)}
	}
	return out, nil
}
