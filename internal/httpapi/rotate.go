package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// defaultOverlap is for how long a key works beside its successor unless asked.
const defaultOverlap = 24 * time.Hour

// rotation is the body of a rotation.
type rotation struct {
	Overlap   string `json:"overlap,omitempty" pattern:"^([0-9]{1,9}(\\.[0-9]{1,9})?(ms|s|m|h)){1,4}$" default:"24h" doc:"For how long the old key still works: 0s to 168h."`
	ExpiresAt string `json:"expires_at,omitempty" format:"date-time" doc:"When the new key stops working; default is as long from now as the old one was made for, or never."`
}

type rotateOutput struct {
	Location string `header:"Location"`
	Body     struct {
		KeyView
		Replaces KeyView `json:"replaces" doc:"The old key, with when it stops working."`
	}
}

func (a *API) routeRotation() {
	huma.Register(a.huma, huma.Operation{
		OperationID: "rotateKey", Method: http.MethodPost, Path: "/v1/keys/{id}/rotate", Tags: []string{tagKeys},
		Summary: "Replace an API key",
		Description: "Makes a key with the same name, scopes and limits and a secret of its own, which is in this answer and nowhere else. The old key " +
			"works until the overlap is over, so that its users can be moved without a gap; revoke it to end it at once.",
		Security: needs(ScopeAdmin), DefaultStatus: http.StatusCreated, Middlewares: huma.Middlewares{a.withBody},
		SkipValidateParams: true, Errors: []int{400, 401, 403, 404, 406, 409, 413, 415, 422, 503},
	}, a.rotateKey)
	document[rotation](a.huma, "/v1/keys/{id}/rotate", `{"overlap": "24h"}`)
	a.huma.OpenAPI().Paths["/v1/keys/{id}/rotate"].Post.RequestBody.Required = false
}

func (a *API) rotateKey(ctx context.Context, in *keyInput) (*rotateOutput, error) {
	var body rotation
	if len(bodyOf(ctx)) > 0 {
		if err := decodeBody(ctx, &body); err != nil {
			return nil, err
		}
	}
	id, err := parseID(in.ID)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	overlap, expires, problems := body.check(a.now())
	if len(problems) > 0 {
		return nil, bodyProblem(problems)
	}
	secret, made, old, err := a.keys.RotateKey(ctx, keyOf(ctx).Project, id, overlap, expires)
	if errors.Is(err, store.ErrKeyEnded) {
		return nil, newProblem(http.StatusConflict, CodeKeyEnded, "The API key is revoked or has expired. Create another.")
	}
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &rotateOutput{Location: "/v1/keys/" + made.ID.String()}
	out.Body.KeyView, out.Body.Replaces = keyOut(made), keyOut(old)
	out.Body.Secret = secret
	return out, nil
}

func (r *rotation) check(now time.Time) (overlap time.Duration, expires time.Time, problems []notify.Problem) {
	overlap = defaultOverlap
	if r.Overlap != "" {
		var d notify.Duration
		if err := d.UnmarshalText([]byte(r.Overlap)); err != nil {
			problems = append(problems, notify.Problem{Pointer: "/overlap", Code: notify.CodeFormat, Detail: err.Error()})
		}
		overlap = d.Std()
	}
	if overlap < 0 || overlap > store.MaxKeyOverlap {
		problems = append(problems, notify.Problem{Pointer: "/overlap", Code: notify.CodeRange, Detail: "must be 0s to 168h"})
	}
	expires, ok := instant(r.ExpiresAt)
	switch {
	case !ok:
		problems = append(problems, notify.Problem{
			Pointer: "/expires_at", Code: notify.CodeFormat, Detail: "must be an RFC 3339 date-time, such as 2027-12-01T08:00:00Z",
		})
	case !expires.IsZero() && !expires.After(now):
		problems = append(problems, notify.Problem{Pointer: "/expires_at", Code: notify.CodeRange, Detail: "must be later than now"})
	}
	return overlap, expires, problems
}
