package httpapi

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// limitView is a limit as it is shown and set.
type limitView struct {
	PerSecond float64 `json:"per_second" minimum:"0.0002777777777777778" maximum:"1000000" example:"100" doc:"Requests that come back each second."`
	Burst     int     `json:"burst" minimum:"1" maximum:"1000000" example:"1000" doc:"Requests that may come at once after a rest."`
}

// limitsView are the limits of a key.
type limitsView struct {
	Write *limitView `json:"write,omitempty" doc:"Of routes that need scope send; each row of a batch counts."`
	Read  *limitView `json:"read,omitempty"`
	Admin *limitView `json:"admin,omitempty"`
}

func limitsOut(l store.KeyLimits) *limitsView {
	if len(l) == 0 {
		return nil
	}
	of := func(class store.RouteClass) *limitView {
		limit, ok := l[class]
		if !ok {
			return nil
		}
		v := limitView(limit)
		return &v
	}
	return &limitsView{Write: of(store.ClassWrite), Read: of(store.ClassRead), Admin: of(store.ClassAdmin)}
}

// keyChange is the body of a change, a JSON Merge Patch (RFC 7396): what is absent
// stays, and null takes a limit back.
type keyChange struct {
	Limits map[string]*limitView `json:"limits"`
}

// keyChangeDoc is keyChange for the document.
type keyChangeDoc struct {
	Limits struct {
		Write nullable[limitView] `json:"write,omitempty"`
		Read  nullable[limitView] `json:"read,omitempty"`
		Admin nullable[limitView] `json:"admin,omitempty"`
	} `json:"limits" doc:"By class; null takes the key's own limit back, and the configured one applies."`
}

func (a *API) routeKeyLimits() {
	const path = "/v1/keys/{id}"
	huma.Register(a.huma, huma.Operation{
		OperationID: "changeKey", Method: http.MethodPatch, Path: path, Tags: []string{tagKeys},
		Summary: "Limit an API key",
		Description: "Gives the key limits of its own, by class of route, in place of the configured ones. They apply within a second, " +
			"everywhere. Classes that are not named stay as they are (RFC 7396).",
		Security: needs(ScopeAdmin), Middlewares: huma.Middlewares{a.withBody},
		SkipValidateParams: true, Errors: []int{400, 401, 403, 404, 406, 413, 415, 422, 503},
	}, a.changeKey)
	documentBody[keyChangeDoc](a.huma, a.huma.OpenAPI().Paths[path].Patch, `{"limits": {"write": {"per_second": 100, "burst": 1000}, "read": null}}`)
}

func (a *API) changeKey(ctx context.Context, in *keyInput) (*keyOutput, error) {
	var body keyChange
	if err := decodeBody(ctx, &body); err != nil {
		return nil, err
	}
	id, err := parseID(in.ID)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	change, problems := body.check()
	if len(problems) > 0 {
		return nil, bodyProblem(problems)
	}
	key, err := a.keys.LimitKey(ctx, keyOf(ctx).Project, id, change)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	return &keyOutput{Body: keyOut(key)}, nil
}

func (c *keyChange) check() (map[store.RouteClass]*resilience.Limit, []notify.Problem) {
	if len(c.Limits) == 0 {
		return nil, []notify.Problem{{Pointer: "/limits", Code: notify.CodeRequired, Detail: "must have one or more of write, read, admin"}}
	}
	change := map[store.RouteClass]*resilience.Limit{}
	for _, class := range store.RouteClasses() {
		if limit, named := c.Limits[string(class)]; named {
			change[class] = (*resilience.Limit)(limit)
		}
	}
	if len(change) < len(c.Limits) {
		return nil, []notify.Problem{{Pointer: "/limits", Code: notify.CodeUnknownMember, Detail: "has a member beside write, read and admin"}}
	}
	var problems []notify.Problem
	for _, class := range store.RouteClasses() {
		if limit := change[class]; limit != nil {
			if err := limit.Check(); err != nil {
				problems = append(problems, notify.Problem{Pointer: "/limits/" + string(class), Code: notify.CodeRange, Detail: err.Error()})
			}
		}
	}
	return change, problems
}
