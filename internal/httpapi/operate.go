package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Operations are an operator's hands, and the state of the cluster that they look
// at.
type Operations interface {
	// AllInfos returns every account, whatever projects may use it.
	AllInfos() []channels.Info
	// Sharing returns which accounts of its channel an account shares the deliveries
	// with, those of the same group, and its weight among them.
	Sharing(account string) (group string, weight float64)
	// MaxInFlight is how many calls of a channel one process makes at once.
	MaxInFlight(c notify.Channel) int
	ScopeStates(ctx context.Context, accounts, scopes []string, narrower int) ([]store.ScopeState, error)
	BreakerEvents(ctx context.Context, scope string, limit int) ([]store.BreakerEvent, error)
	OperatorActions(ctx context.Context, limit int) ([]store.OperatorAction, error)
	// Operate puts a decision about a breaker into effect: in this process at once,
	// in the others within a second or so.
	Operate(ctx context.Context, scope string, action store.Action, by resilience.Override) error
	PauseChannel(ctx context.Context, c notify.Channel, by, why string) error
	ResumeChannel(ctx context.Context, c notify.Channel, by, why string) error
}

// Bounds of what an operator gives.
const (
	maxWhy   = 500 // characters
	maxScope = 128 // bytes; with the account's name what the store can hold
)

type breakerRequest struct {
	Action string `json:"action" enum:"open,close,reset" doc:"open: no call passes. close: every call passes, whatever fails. reset: forget what failed, and open the gate."`
	Scope  string `json:"scope,omitzero" maxLength:"128" example:"host:hooks.example.com" doc:"A scope below the account, as GET /v1/channels names it; the account itself if absent."`
	Why    string `json:"why" minLength:"1" maxLength:"500" example:"incident 4711" doc:"Kept beside the decision. No address and no secret belong here."`
	Until  string `json:"until,omitzero" format:"date-time" doc:"When open or close ends by itself; if absent it holds until it is taken back. An open breaker is probed then."`
}

type pauseRequest struct {
	Why string `json:"why" minLength:"1" maxLength:"500" example:"incident 4711" doc:"Kept beside the decision. No address and no secret belong here."`
}

type breakerInput struct {
	Account string `path:"account" doc:"The account's name."`
}

type pauseInput struct {
	Channel string `path:"channel" enum:"push,sms,whatsapp,email,slack,webhook" doc:"The channel."`
}

type breakerOutput struct {
	Body BreakerAnswer
}

// BreakerAnswer is a breaker of an account or of a scope below it.
type BreakerAnswer struct {
	Account string `json:"account"`
	ScopeView
}

type pauseOutput struct {
	Body struct {
		Channel notify.Channel      `json:"channel" enum:"push,sms,whatsapp,email,slack,webhook"`
		Paused  nullable[pauseView] `json:"paused" doc:"null while it runs"`
	}
}

func (a *API) routeOperate() {
	op := func(id, path, summary, text string) huma.Operation {
		return huma.Operation{
			OperationID: id, Method: http.MethodPost, Path: path, Tags: []string{tagChannels}, Summary: summary, Description: text,
			Security: needs(ScopeAdmin), Middlewares: huma.Middlewares{a.withBody}, SkipValidateParams: true,
			Errors: []int{400, 401, 403, 404, 406, 413, 415, 422, 503},
		}
	}
	const breaker, pause, resume = "/v1/channels/{account}/breaker", "/v1/channels/{channel}/pause", "/v1/channels/{channel}/resume"
	huma.Register(a.huma, op("operateBreaker", breaker, "Force a breaker open or closed, or reset it",
		"Every process obeys within about a second. Who and why are kept, see listOperatorActions. What a breaker holds goes on once it is closed."), a.operateBreaker)
	document[breakerRequest](a.huma, breaker, `{"action": "open", "why": "incident 4711", "until": "2026-12-01T08:00:00Z"}`)
	huma.Register(a.huma, op("pauseChannel", pause, "Pause a channel",
		"No call of the channel starts, anywhere, within about a second. Its deliveries wait or fall back. Pausing again replaces who and why."), a.pauseChannel)
	document[pauseRequest](a.huma, pause, `{"why": "incident 4711"}`)
	huma.Register(a.huma, op("resumeChannel", resume, "Let a paused channel go on",
		"What waited goes on within about a second. Resuming a channel that is not paused is no error."), a.resumeChannel)
	document[pauseRequest](a.huma, resume, `{"why": "incident 4711 is over"}`)
}

func (a *API) operateBreaker(ctx context.Context, in *breakerInput) (*breakerOutput, error) {
	if !a.hasAccount(in.Account) {
		return nil, noAccount()
	}
	var body breakerRequest
	if err := decodeBody(ctx, &body); err != nil {
		return nil, err
	}
	until, problems := body.check(a.now())
	if len(problems) > 0 {
		return nil, bodyProblem(problems)
	}
	by := resilience.Override{Who: operatorOf(ctx), Why: strings.TrimSpace(body.Why), Until: until}
	if err := a.operations.Operate(ctx, scopeName(in.Account, body.Scope), store.Action(body.Action), by); err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	state, err := a.scopeState(ctx, in.Account, body.Scope)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	return &breakerOutput{Body: BreakerAnswer{Account: in.Account, ScopeView: state}}, nil
}

func (a *API) pauseChannel(ctx context.Context, in *pauseInput) (*pauseOutput, error) {
	return a.operateChannel(ctx, in, a.operations.PauseChannel)
}

func (a *API) resumeChannel(ctx context.Context, in *pauseInput) (*pauseOutput, error) {
	return a.operateChannel(ctx, in, a.operations.ResumeChannel)
}

func (a *API) operateChannel(ctx context.Context, in *pauseInput, do func(ctx context.Context, c notify.Channel, by, why string) error) (*pauseOutput, error) {
	c := notify.Channel(in.Channel)
	if !c.Valid() {
		return nil, newProblem(http.StatusNotFound, CodeNotFound, "There is no such channel.")
	}
	var body pauseRequest
	if err := decodeBody(ctx, &body); err != nil {
		return nil, err
	}
	if problems := checkWhy(body.Why); len(problems) > 0 {
		return nil, bodyProblem(problems)
	}
	if err := do(ctx, c, operatorOf(ctx), strings.TrimSpace(body.Why)); err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	pauses, err := a.store.Pauses(ctx)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &pauseOutput{}
	out.Body.Channel, out.Body.Paused = c, nullable[pauseView]{pauseOf(pauses, c)}
	return out, nil
}

// check returns when the decision ends, zero for never, and what is wrong.
func (in *breakerRequest) check(now time.Time) (time.Time, []notify.Problem) {
	problems := checkWhy(in.Why)
	wrong := func(ok bool, pointer, code, detail string) {
		if !ok {
			problems = append(problems, notify.Problem{Pointer: pointer, Code: code, Detail: detail})
		}
	}
	switch store.Action(in.Action) {
	case store.ActionOpen, store.ActionClose, store.ActionReset:
	default:
		wrong(false, "/action", notify.CodeChoice, "must be open, close or reset")
	}
	wrong(in.Scope == "" || validScope(in.Scope), "/scope", notify.CodeFormat, scopeRule)
	until, ok := instant(in.Until)
	wrong(ok, "/until", notify.CodeFormat, "must be an RFC 3339 date-time, such as 2027-12-01T08:00:00Z")
	wrong(!ok || until.IsZero() || until.After(now), "/until", notify.CodeRange, "must be later than now")
	wrong(in.Until == "" || in.Action != string(store.ActionReset), "/until", notify.CodeConflict, "does not go with reset, which is over at once")
	return until, problems
}

func checkWhy(why string) []notify.Problem {
	why = strings.TrimSpace(why)
	if n := utf8.RuneCountInString(why); n >= 1 && n <= maxWhy && !strings.ContainsFunc(why, unicode.IsControl) {
		return nil
	}
	return []notify.Problem{{Pointer: "/why", Code: notify.CodeFormat, Detail: "must be 1 to 500 characters, without control characters"}}
}

const scopeRule = "must be the name of a scope below the account, such as host:hooks.example.com: 1 to 128 visible ASCII characters"

func validScope(scope string) bool {
	return scope != "" && len(scope) <= maxScope && !strings.ContainsFunc(scope, func(r rune) bool { return r <= ' ' || r > '~' })
}

// scopeName is what the store calls a scope below an account, or the account's
// own where scope is empty.
func scopeName(account, scope string) string {
	if scope == "" {
		return account
	}
	return account + "/" + scope
}

func noAccount() *Problem {
	return newProblem(http.StatusNotFound, CodeNotFound, "There is no such account.")
}

func (a *API) hasAccount(account string) bool {
	for _, info := range a.operations.AllInfos() {
		if info.Account == account {
			return true
		}
	}
	return false
}

// scopeState is how one scope fares now.
func (a *API) scopeState(ctx context.Context, account, scope string) (ScopeView, error) {
	states, err := a.operations.ScopeStates(ctx, nil, []string{scopeName(account, scope)}, 0)
	if err != nil {
		return ScopeView{}, err
	}
	if len(states) != 1 {
		return ScopeView{}, errors.New("the store does not show the scope that was asked for")
	}
	return stateView(scope, &states[0], a.now(), true), nil
}

// operatorOf names the key that asks, for people to recognise and for certain.
func operatorOf(ctx context.Context) string {
	key := keyOf(ctx)
	return strings.TrimSpace(key.Name + " (" + key.ID.String() + ")")
}
