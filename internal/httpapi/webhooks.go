package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/hooks"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Webhooks are the status webhooks; [hooks.Service] is what does it.
type Webhooks interface {
	Create(ctx context.Context, w store.Webhook) (store.Webhook, secret.Value, error)
	List(ctx context.Context, project string) ([]store.Webhook, error)
	Get(ctx context.Context, project string, id uuid.UUID) (store.Webhook, error)
	Update(ctx context.Context, project string, id uuid.UUID, c store.WebhookChange) (store.Webhook, error)
	Delete(ctx context.Context, project string, id uuid.UUID) error
	Rotate(ctx context.Context, project string, id uuid.UUID, overlap time.Duration) (store.Webhook, secret.Value, error)
	CheckURL(project, url string) []notify.Problem
	Calls(ctx context.Context, project string, id, before uuid.UUID, limit int) ([]hooks.Call, error)
	Test(ctx context.Context, project string, id uuid.UUID) (hooks.Call, error)
	Replay(ctx context.Context, project string, id, call uuid.UUID) (hooks.Call, error)
	ReplaySince(ctx context.Context, project string, id uuid.UUID, since time.Time, after int64) (hooks.Replayed, error)
}

var _ Webhooks = (*hooks.Service)(nil)

type webhookRequest struct {
	URL         string   `json:"url" minLength:"1" maxLength:"2048" format:"uri" doc:"Called with POST. Only public addresses, unless the service is configured otherwise." example:"https://example.com/hooks/dispatcher"`
	Description string   `json:"description,omitempty" maxLength:"200" doc:"To tell webhooks apart."`
	Events      []string `json:"events,omitempty" doc:"Types of events as GET /v1/events has them; empty or absent for all." example:"delivered,failed"`
}

type webhookChange struct {
	URL         *string   `json:"url,omitempty" minLength:"1" maxLength:"2048" format:"uri" doc:"For events from now on and for replays; calls that wait go where they were to go."`
	Description *string   `json:"description,omitempty" maxLength:"200"`
	Events      *[]string `json:"events,omitempty" doc:"Types of events as GET /v1/events has them; empty for all."`
	Enabled     *bool     `json:"enabled,omitempty" doc:"false: call it no more. true: call it again, from now on; what it missed can be replayed."`
}

type webhookView struct {
	ID          uuid.UUID `json:"id" format:"uuid"`
	URL         string    `json:"url"`
	Description string    `json:"description,omitzero"`
	Events      []string  `json:"events" doc:"Types of events as GET /v1/events has them; empty for all."`
	CreatedAt   time.Time `json:"created_at"`
	Enabled     bool      `json:"enabled"`

	DisabledAt      *time.Time `json:"disabled_at" doc:"Since when it is called no more; null while it is."`
	DisabledBecause string     `json:"disabled_because,omitzero" enum:"gone,failing,paused" doc:"gone: it answered 410. failing: every call for three days failed. paused: by PATCH."`
	FailingSince    *time.Time `json:"failing_since" doc:"When the first of the failures came that no success has followed; null for none."`
	OldSecretUntil  *time.Time `json:"old_secret_until,omitempty" doc:"Until when the former secret signs too."`

	Secret string `json:"secret,omitzero" doc:"What calls are signed with: only in the answer that makes it." example:"whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"`
}

type webhookOutput struct {
	Body webhookView
}

type newWebhookOutput struct {
	Location string `header:"Location"`
	Body     webhookView
}

type webhooksOutput struct {
	Body struct {
		Items []webhookView `json:"items"`
	}
}

type webhookInput struct {
	ID string `path:"id" format:"uuid" doc:"The webhook's id."`
}

// secretRotation is the body of a rotation.
type secretRotation struct {
	Overlap string `json:"overlap,omitempty" pattern:"^([0-9]{1,9}(\\.[0-9]{1,9})?(ms|s|m|h)){1,4}$" default:"24h" doc:"For how long calls are signed with the old secret too: 0s to 168h."`
}

// webhookOperation describes an operation on webhooks. Those with a body read it.
func (a *API) webhookOperation(id, method, path, summary, text string, errs ...int) huma.Operation {
	op := huma.Operation{
		OperationID: id, Method: method, Path: path, Tags: []string{tagWebhooks}, Summary: summary, Description: text,
		Security: needs(ScopeAdmin), SkipValidateParams: true, Middlewares: huma.Middlewares{a.hasWebhooks},
		Errors: append([]int{401, 403, 404, 406, 422, 503}, errs...),
	}
	if method == http.MethodPost || method == http.MethodPatch {
		op.Middlewares = append(op.Middlewares, a.withBody)
		op.Errors = append(op.Errors, 400, 413, 415)
	}
	slices.Sort(op.Errors)
	return op
}

// hasWebhooks refuses what this process has not.
func (a *API) hasWebhooks(ctx huma.Context, next func(huma.Context)) {
	if a.webhooks == nil {
		refuse(ctx, newProblem(http.StatusServiceUnavailable, CodeUnavailable, "This process has no webhooks.").with("Retry-After", "1"))
		return
	}
	next(ctx)
}

func (a *API) routeWebhooks() {
	const all, one, rotate = "/v1/webhooks", "/v1/webhooks/{id}", "/v1/webhooks/{id}/rotate"
	create := a.webhookOperation("createWebhook", http.MethodPost, all, "Register a webhook",
		"From now on the endpoint is told of the project's events, each once, with calls signed as Standard Webhooks 1.0.0 says. "+
			"The secret is in this answer and nowhere else. A call that fails is tried again, eight times in a little more than a day. "+
			"An endpoint that answers 410, or fails for three days, is disabled, which is an event too.", 409)
	create.DefaultStatus = http.StatusCreated
	huma.Register(a.huma, create, a.createWebhook)
	document[webhookRequest](a.huma, all, `{"url": "https://example.com/hooks/dispatcher", "events": ["delivered", "failed"]}`)
	huma.Register(a.huma, a.webhookOperation("listWebhooks", http.MethodGet, all, "List the project's webhooks", "Newest first."), a.listWebhooks)
	huma.Register(a.huma, a.webhookOperation("getWebhook", http.MethodGet, one, "Look at a webhook", ""), a.getWebhook)
	huma.Register(a.huma, a.webhookOperation("changeWebhook", http.MethodPatch, one, "Change a webhook, or enable it again",
		"What is not named stays as it is (RFC 7396)."), a.changeWebhook)
	documentBody[webhookChange](a.huma, a.huma.OpenAPI().Paths[one].Patch, `{"enabled": true}`)
	huma.Register(a.huma, a.webhookOperation("deleteWebhook", http.MethodDelete, one, "Remove a webhook", "Calls that wait are not made."), a.deleteWebhook)
	huma.Register(a.huma, a.webhookOperation("rotateWebhook", http.MethodPost, rotate, "Change a webhook's secret",
		"Calls are signed with both secrets until the overlap is over, so that the receiver can be changed without a gap. "+
			"The new secret is in this answer and nowhere else."), a.rotateWebhook)
	document[secretRotation](a.huma, rotate, `{"overlap": "24h"}`)
	a.huma.OpenAPI().Paths[rotate].Post.RequestBody.Required = false
}

func (a *API) createWebhook(ctx context.Context, _ *struct{}) (*newWebhookOutput, error) {
	var in webhookRequest
	if err := decodeBody(ctx, &in); err != nil {
		return nil, err
	}
	project := keyOf(ctx).Project
	if problems := a.checkWebhook(project, &in.URL, &in.Description, in.Events); len(problems) > 0 {
		return nil, bodyProblem(problems)
	}
	w, key, err := a.webhooks.Create(ctx, store.Webhook{Project: project, URL: in.URL, Description: in.Description, Events: in.Events})
	if errors.Is(err, store.ErrTooManyWebhooks) {
		return nil, newProblem(http.StatusConflict, CodeTooManyWebhooks, "The project has as many webhooks as it may have. Delete one.")
	}
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &newWebhookOutput{Location: "/v1/webhooks/" + w.ID.String(), Body: a.webhookOut(w)}
	out.Body.Secret = key.Reveal()
	return out, nil
}

// checkWebhook says what is wrong with a webhook; nil is not to be checked.
func (a *API) checkWebhook(project string, url, description *string, events []string) []notify.Problem {
	var problems []notify.Problem
	if url != nil {
		for _, p := range a.webhooks.CheckURL(project, *url) {
			p.Pointer = "/url"
			problems = append(problems, p)
		}
	}
	if description != nil && (utf8.RuneCountInString(*description) > 200 || strings.ContainsFunc(*description, unicode.IsControl)) {
		problems = append(problems, notify.Problem{
			Pointer: "/description", Code: notify.CodeFormat, Detail: "must be at most 200 characters, without control characters",
		})
	}
	known := eventTypes()
	for i, e := range events {
		if !slices.Contains(known, e) || slices.Contains(events[:i], e) {
			problems = append(problems, notify.Problem{
				Pointer: "/events", Code: notify.CodeChoice, Detail: "must be some of " + strings.Join(known, ", ") + ", none twice",
			})
			break
		}
	}
	return problems
}

func (a *API) listWebhooks(ctx context.Context, _ *struct{}) (*webhooksOutput, error) {
	all, err := a.webhooks.List(ctx, keyOf(ctx).Project)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &webhooksOutput{}
	out.Body.Items = make([]webhookView, len(all))
	for i, w := range all {
		out.Body.Items[i] = a.webhookOut(w)
	}
	return out, nil
}

func (a *API) getWebhook(ctx context.Context, in *webhookInput) (*webhookOutput, error) {
	id, err := parseID(in.ID)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	w, err := a.webhooks.Get(ctx, keyOf(ctx).Project, id)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	return &webhookOutput{Body: a.webhookOut(w)}, nil
}

func (a *API) changeWebhook(ctx context.Context, in *webhookInput) (*webhookOutput, error) {
	var body webhookChange
	if err := decodeBody(ctx, &body); err != nil {
		return nil, err
	}
	id, err := parseID(in.ID)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	change := store.WebhookChange{URL: body.URL, Description: body.Description, Enabled: body.Enabled}
	if body.Events != nil {
		change.Events = append([]string{}, *body.Events...) // empty is a value too
	}
	project := keyOf(ctx).Project
	if problems := a.checkWebhook(project, body.URL, body.Description, change.Events); len(problems) > 0 {
		return nil, bodyProblem(problems)
	}
	w, err := a.webhooks.Update(ctx, project, id, change)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	return &webhookOutput{Body: a.webhookOut(w)}, nil
}

func (a *API) deleteWebhook(ctx context.Context, in *webhookInput) (*struct{}, error) {
	id, err := parseID(in.ID)
	if err == nil {
		err = a.webhooks.Delete(ctx, keyOf(ctx).Project, id)
	}
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	return &struct{}{}, nil
}

func (a *API) rotateWebhook(ctx context.Context, in *webhookInput) (*webhookOutput, error) {
	var body secretRotation
	if len(bodyOf(ctx)) > 0 {
		if err := decodeBody(ctx, &body); err != nil {
			return nil, err
		}
	}
	overlap, _, problems := (&rotation{Overlap: body.Overlap}).check(a.now())
	if len(problems) > 0 {
		return nil, bodyProblem(problems)
	}
	id, err := parseID(in.ID)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	w, key, err := a.webhooks.Rotate(ctx, keyOf(ctx).Project, id, overlap)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &webhookOutput{Body: a.webhookOut(w)}
	out.Body.Secret = key.Reveal()
	return out, nil
}

func (a *API) webhookOut(w store.Webhook) webhookView {
	v := webhookView{
		ID: w.ID, URL: w.URL, Description: w.Description, Events: w.Events, CreatedAt: w.CreatedAt.UTC(), Enabled: w.DisabledAt.IsZero(),
		DisabledAt: utc(w.DisabledAt), DisabledBecause: w.DisabledBecause, FailingSince: utc(w.FailingSince),
	}
	if w.OldUntil.After(a.now()) {
		v.OldSecretUntil = utc(w.OldUntil)
	}
	return v
}
