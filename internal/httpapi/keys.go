package httpapi

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

type keyRequest struct {
	Name      string   `json:"name" minLength:"1" maxLength:"100" doc:"To tell keys apart." example:"billing service"`
	Scopes    []string `json:"scopes" minItems:"1" uniqueItems:"true" enum:"send,read,admin" doc:"What the key may do."`
	ExpiresAt string   `json:"expires_at,omitzero" format:"date-time" doc:"When it stops working; never if absent."`
}

// KeyView is an API key without its secret. Of types that are embedded the document
// shows only those with exported names.
type KeyView struct {
	ID         uuid.UUID   `json:"id" format:"uuid"`
	Name       string      `json:"name"`
	Hint       string      `json:"hint" example:"dsp_Q3ZK" doc:"How the key starts."`
	Scopes     []string    `json:"scopes" enum:"send,read,admin"`
	CreatedAt  time.Time   `json:"created_at"`
	ExpiresAt  *time.Time  `json:"expires_at" doc:"null for never"`
	RevokedAt  *time.Time  `json:"revoked_at" doc:"null while it works"`
	LastUsedAt *time.Time  `json:"last_used_at" doc:"To the minute; null for never."`
	Limits     *limitsView `json:"limits,omitempty" doc:"Its own limits, by class of route; for the others the configured ones apply."`

	LastRefusedAt   *time.Time `json:"last_refused_at,omitempty" doc:"Of lists: when a limit last refused it something, if within the last day."`
	RefusedLastHour int64      `json:"refused_last_hour,omitzero" doc:"Of lists: requests and rows of batches that a limit refused within the last hour."`

	Secret string `json:"secret,omitzero" doc:"The key itself: only in the answer that creates it, and not stored." example:"dsp_Q3ZK7H5M2X4P6R8T0V1W3Y5Z7B9D2F4G6J8KLMNP"`
}

type newKeyOutput struct {
	Location string `header:"Location"`
	Body     KeyView
}

type keyOutput struct {
	Body KeyView
}

type keysOutput struct {
	Body struct {
		Items []KeyView `json:"items"`
	}
}

type keyInput struct {
	ID string `path:"id" format:"uuid" doc:"The key's id."`
}

func (a *API) routeKeys() {
	huma.Register(a.huma, huma.Operation{
		OperationID: "createKey", Method: http.MethodPost, Path: "/v1/keys", Tags: []string{tagKeys},
		Summary:     "Create an API key",
		Description: "The new key belongs to the project of the key that asks. Its secret is in this answer and nowhere else.",
		Security:    needs(ScopeAdmin), DefaultStatus: http.StatusCreated, Middlewares: huma.Middlewares{a.withBody},
		SkipValidateParams: true, Errors: []int{400, 401, 403, 406, 413, 415, 422, 503},
	}, a.createKey)
	document[keyRequest](a.huma, "/v1/keys", `{"name": "billing service", "scopes": ["send", "read"]}`)

	huma.Register(a.huma, huma.Operation{
		OperationID: "listKeys", Method: http.MethodGet, Path: "/v1/keys", Tags: []string{tagKeys},
		Summary: "List the project's API keys", Description: "Revoked and expired ones too, newest first.",
		Security: needs(ScopeAdmin), SkipValidateParams: true, Errors: []int{401, 403, 406, 422, 503},
	}, a.listKeys)

	huma.Register(a.huma, huma.Operation{
		OperationID: "revokeKey", Method: http.MethodDelete, Path: "/v1/keys/{id}", Tags: []string{tagKeys},
		Summary: "Revoke an API key", Description: "It stops working within a second, everywhere. Revoking twice is no error.",
		Security: needs(ScopeAdmin), SkipValidateParams: true, Errors: []int{401, 403, 404, 406, 503},
	}, a.revokeKey)
}

func (a *API) createKey(ctx context.Context, _ *struct{}) (*newKeyOutput, error) {
	var in keyRequest
	if err := decodeBody(ctx, &in); err != nil {
		return nil, err
	}
	expires, problems := in.check(a.now())
	if len(problems) > 0 {
		return nil, bodyProblem(problems)
	}
	secret, key, err := a.keys.CreateKey(ctx, keyOf(ctx).Project, in.Name, in.Scopes, expires)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &newKeyOutput{Location: "/v1/keys/" + key.ID.String(), Body: keyOut(key)}
	out.Body.Secret = secret
	return out, nil
}

// check returns when the key expires, zero for never, and what is wrong.
func (in *keyRequest) check(now time.Time) (time.Time, []notify.Problem) {
	var problems []notify.Problem
	wrong := func(ok bool, pointer, code, detail string) {
		if !ok {
			problems = append(problems, notify.Problem{Pointer: pointer, Code: code, Detail: detail})
		}
	}
	length := utf8.RuneCountInString(in.Name)
	wrong(length >= 1 && length <= 100 && !strings.ContainsFunc(in.Name, unicode.IsControl), "/name", notify.CodeFormat,
		"must be 1 to 100 characters, without control characters")
	known := len(in.Scopes) > 0
	for i, s := range in.Scopes {
		known = known && slices.Contains([]string{ScopeSend, ScopeRead, ScopeAdmin}, s) && !slices.Contains(in.Scopes[:i], s)
	}
	wrong(known, "/scopes", notify.CodeChoice, "must be one or more of send, read, admin, none twice")
	expires, ok := instant(in.ExpiresAt)
	wrong(ok, "/expires_at", notify.CodeFormat, "must be an RFC 3339 date-time, such as 2027-12-01T08:00:00Z")
	wrong(!ok || expires.IsZero() || expires.After(now), "/expires_at", notify.CodeRange, "must be later than now")
	return expires, problems
}

func (a *API) listKeys(ctx context.Context, _ *struct{}) (*keysOutput, error) {
	keys, err := a.keys.ListKeys(ctx, keyOf(ctx).Project)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &keysOutput{}
	out.Body.Items = make([]KeyView, len(keys))
	for i, k := range keys {
		out.Body.Items[i] = keyOut(k)
	}
	return out, nil
}

func (a *API) revokeKey(ctx context.Context, in *keyInput) (*struct{}, error) {
	id, err := parseID(in.ID)
	if err == nil {
		err = a.keys.RevokeKey(ctx, keyOf(ctx).Project, id)
	}
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	return &struct{}{}, nil
}

func keyOut(k store.APIKey) KeyView {
	return KeyView{
		ID: k.ID, Name: k.Name, Hint: k.Hint, Scopes: k.Scopes, CreatedAt: k.CreatedAt.UTC(),
		ExpiresAt: utc(k.ExpiresAt), RevokedAt: utc(k.RevokedAt), LastUsedAt: utc(k.LastUsedAt),
		Limits: limitsOut(k.Limits), LastRefusedAt: utc(k.LastRefusedAt), RefusedLastHour: k.RefusedLastHour,
	}
}

// parseID reads an id in a path. What is no UUID is the id of nothing.
func parseID(s string) (uuid.UUID, error) {
	id, err := uuid.Parse(s)
	if err != nil || len(s) != len("00000000-0000-0000-0000-000000000000") {
		return uuid.Nil, store.ErrNotFound
	}
	return id, nil
}
