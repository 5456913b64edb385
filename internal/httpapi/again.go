package httpapi

import (
	"context"
	"net/http"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Retrier starts notifications again.
type Retrier interface {
	Retry(ctx context.Context, project string, id uuid.UUID, expires time.Time) (store.Retry, error)
}

// Limits of a retry of many.
const (
	defaultRetries = 100
	maxRetries     = 1000
	maxCounted     = 10_000 // by a dry run
	retriesAtOnce  = 8
)

type ackOutput struct {
	Body struct {
		Result         store.AckResult `json:"result" enum:"acknowledged,already_acknowledged,already_final" doc:"acknowledged: noted, and what had not been sent never will be. already_acknowledged: it was before; nothing changed. already_final: noted; there was nothing left to stop."`
		AcknowledgedAt time.Time       `json:"acknowledged_at" doc:"Of the first acknowledgement."`
		Calling        int             `json:"calling" doc:"Calls that had begun before and could not be stopped. When it is 0, nothing reaches the person after this answer that was not sent before."`
	}
}

// retryOne is the body of a retry.
type retryOne struct {
	ExpiresAt string `json:"expires_at,omitempty" format:"date-time" doc:"No call starts after it. At most 30 days ahead; default is as long from now as the notification could be sent at first."`
}

type retryOutput struct {
	Body struct {
		Result    store.RetryResult `json:"result" enum:"retried,in_progress,nothing_to_retry,stopped,too_often" doc:"retried: what failed begins again. in_progress: it has not ended. nothing_to_retry: it was sent, or cannot be read. stopped: it was canceled or acknowledged. too_often: it was retried 1,000 times."`
		Round     int               `json:"round" doc:"How many times it was started again."`
		ExpiresAt time.Time         `json:"expires_at" doc:"No call starts after it."`
	}
}

// retryMany is the body of a retry of many.
type retryMany struct {
	Status    string `json:"status,omitempty" enum:"failed,partially_failed,expired,suppressed" doc:"Only those that ended so; default is any of these."`
	Channel   string `json:"channel,omitempty" enum:"push,sms,whatsapp,email,slack,webhook" doc:"Only those that failed on it."`
	Because   string `json:"because,omitempty" maxLength:"255" example:"provider_unavailable" doc:"Only those of which a delivery ended for this reason, word for word or up to its colon."`
	After     string `json:"created_after,omitempty" format:"date-time" doc:"Created at this instant or later."`
	Before    string `json:"created_before,omitempty" format:"date-time" doc:"Created before this instant."`
	ExpiresAt string `json:"expires_at,omitempty" format:"date-time" doc:"As for one."`
	Limit     int    `json:"limit,omitempty" minimum:"1" maximum:"1000" default:"100" doc:"How many at most, newest first."`
	DryRun    bool   `json:"dry_run,omitempty" doc:"Count only, up to 10,000."`
}

type retryManyOutput struct {
	Body struct {
		Matched int  `json:"matched" doc:"Notifications that matched: of a dry run all that were found, else up to limit."`
		Retried int  `json:"retried" doc:"Those that begin again. The others moved on meanwhile."`
		More    bool `json:"more" doc:"Older ones were not looked at. Repeat the request: those that begin again do not match any more."`
		DryRun  bool `json:"dry_run"`
	}
}

func (a *API) routeAgain() {
	withBody := huma.Middlewares{a.withBody}
	huma.Register(a.huma, huma.Operation{
		OperationID: "acknowledgeNotification", Method: http.MethodPost, Path: "/v1/notifications/{id}/ack", Tags: []string{tagNotifications},
		Summary: "Say that the person has seen it",
		Description: "Stops what has not been sent, and meets the criterion of a step that waits to be acknowledged. " +
			"The answer is definitive. It may be repeated.",
		Security: needs(ScopeSend), Middlewares: withBody, SkipValidateParams: true,
		Errors: []int{400, 401, 403, 404, 406, 415, 503},
	}, a.acknowledgeNotification)

	huma.Register(a.huma, huma.Operation{
		OperationID: "retryNotification", Method: http.MethodPost, Path: "/v1/notifications/{id}/retry", Tags: []string{tagNotifications},
		Summary: "Start a notification again that failed",
		Description: "For one that ended failed, partially_failed, expired or suppressed. With mode first the chain begins anew; with mode all " +
			"the steps that failed do. Earlier attempts stay, counters begin at 0, and receivers see another key than before, since this is " +
			"meant to reach the person. An address that is on the suppression list stays there.",
		Security: needs(ScopeSend), Middlewares: withBody, SkipValidateParams: true,
		Errors: []int{400, 401, 403, 404, 406, 415, 422, 503},
	}, a.retryNotification)
	document[retryOne](a.huma, "/v1/notifications/{id}/retry", `{"expires_at": "2027-12-01T09:00:00Z"}`)
	a.huma.OpenAPI().Paths["/v1/notifications/{id}/retry"].Post.RequestBody.Required = false

	huma.Register(a.huma, huma.Operation{
		OperationID: "retryNotifications", Method: http.MethodPost, Path: "/v1/notifications/retry", Tags: []string{tagNotifications},
		Summary: "Start many again that failed",
		Description: "After an outage, say. Filters are joined by and; a dry run counts. Like a list by status it looks through at most 20,000 " +
			"notifications that do not match.",
		Security: needs(ScopeAdmin), Middlewares: withBody, SkipValidateParams: true,
		Errors: []int{400, 401, 403, 406, 413, 415, 422, 503},
	}, a.retryNotifications)
	document[retryMany](a.huma, "/v1/notifications/retry", `{"status": "failed", "channel": "sms", "because": "provider_unavailable", "dry_run": true}`)
}

func (a *API) acknowledgeNotification(ctx context.Context, in *notificationInput) (*ackOutput, error) {
	if err := noBody(ctx); err != nil {
		return nil, err
	}
	id, err := parseID(in.ID)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	done, err := a.store.Acknowledge(ctx, keyOf(ctx).Project, id, a.now())
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &ackOutput{}
	out.Body.Result, out.Body.AcknowledgedAt, out.Body.Calling = done.Result, done.At.UTC(), done.Calling
	return out, nil
}

// noBody refuses a body with anything in it where there is nothing to say.
func noBody(ctx context.Context) error {
	if len(bodyOf(ctx)) == 0 {
		return nil
	}
	return decodeBody(ctx, &struct{}{})
}

func (a *API) retryNotification(ctx context.Context, in *notificationInput) (*retryOutput, error) {
	var body retryOne
	if len(bodyOf(ctx)) > 0 {
		if err := decodeBody(ctx, &body); err != nil {
			return nil, err
		}
	}
	id, err := parseID(in.ID)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	expires, problems := a.extension(body.ExpiresAt)
	if len(problems) > 0 {
		return nil, bodyProblem(problems)
	}
	done, err := a.retry.Retry(ctx, keyOf(ctx).Project, id, expires)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &retryOutput{}
	out.Body.Result, out.Body.Round, out.Body.ExpiresAt = done.Result, done.Round, done.ExpiresAt.UTC()
	return out, nil
}

// extension reads until when a retry may be sent; zero for the default.
func (a *API) extension(text string) (time.Time, []notify.Problem) {
	const pointer = "/expires_at"
	expires, ok := instant(text)
	switch now := a.now(); {
	case !ok:
		return expires, []notify.Problem{{Pointer: pointer, Code: notify.CodeFormat, Detail: "must be an RFC 3339 date-time, such as 2027-12-01T08:00:00Z"}}
	case !expires.IsZero() && (!expires.After(now) || expires.After(now.Add(notify.MaxLifetime))):
		return expires, []notify.Problem{{Pointer: pointer, Code: notify.CodeRange, Detail: "must be later than now, by 30 days at most"}}
	}
	return expires.UTC().Truncate(time.Microsecond), nil
}

func (a *API) retryNotifications(ctx context.Context, _ *struct{}) (*retryManyOutput, error) {
	in := retryMany{Limit: defaultRetries}
	if err := decodeBody(ctx, &in); err != nil {
		return nil, err
	}
	expires, problems := a.extension(in.ExpiresAt)
	filter, more := in.failures(keyOf(ctx).Project)
	if problems = append(problems, more...); len(problems) > 0 {
		return nil, bodyProblem(problems)
	}
	limit := in.Limit
	if in.DryRun {
		limit = maxCounted
	}
	out := &retryManyOutput{}
	ids, rest, err := a.store.Failed(ctx, filter, limit)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out.Body.Matched, out.Body.More, out.Body.DryRun = len(ids), rest, in.DryRun
	if in.DryRun {
		return out, nil
	}
	if out.Body.Retried, err = a.retryAll(ctx, filter.Project, ids, expires); err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	return out, nil
}

func (in *retryMany) failures(project string) (store.Failures, []notify.Problem) {
	var problems []notify.Problem
	wrong := func(ok bool, pointer, code, detail string) {
		if !ok {
			problems = append(problems, notify.Problem{Pointer: pointer, Code: code, Detail: detail})
		}
	}
	f := store.Failures{Because: in.Because}
	f.Project, f.Status, f.Channel = project, notify.Status(in.Status), notify.Channel(in.Channel)
	wrong(in.Status == "" || slices.Contains([]notify.Status{notify.Failed, notify.PartiallyFailed, notify.Lapsed, notify.Blocked}, f.Status),
		"/status", notify.CodeChoice, "must be one of failed, partially_failed, expired, suppressed")
	wrong(in.Channel == "" || f.Channel.Valid(), "/channel", notify.CodeChoice, "must be one of push, sms, whatsapp, email, slack, webhook")
	wrong(utf8.RuneCountInString(in.Because) <= 255, "/because", notify.CodeLength, "must be at most 255 characters")
	wrong(in.Limit >= 1 && in.Limit <= maxRetries, "/limit", notify.CodeRange, "must be 1 to 1000")
	var ok bool
	f.After, ok = instant(in.After)
	wrong(ok, "/created_after", notify.CodeFormat, "must be an RFC 3339 date-time, such as 2026-12-01T08:00:00Z")
	f.Before, ok = instant(in.Before)
	wrong(ok, "/created_before", notify.CodeFormat, "must be an RFC 3339 date-time, such as 2026-12-01T08:00:00Z")
	return f, problems
}

// retryAll starts notifications again, a few at a time, and counts those that
// begin. After an error the rest is not tried.
func (a *API) retryAll(ctx context.Context, project string, ids []uuid.UUID, expires time.Time) (retried int, err error) {
	var (
		mu      sync.Mutex
		workers sync.WaitGroup
	)
	next := func() (uuid.UUID, bool) {
		mu.Lock()
		defer mu.Unlock()
		if len(ids) == 0 || err != nil {
			return uuid.Nil, false
		}
		id := ids[0]
		ids = ids[1:]
		return id, true
	}
	for range min(retriesAtOnce, len(ids)) {
		workers.Go(func() {
			for id, ok := next(); ok; id, ok = next() {
				var done store.Retry
				failed := a.guard.Do(ctx, panics.Request, "start again", func() (err error) {
					done, err = a.retry.Retry(ctx, project, id, expires)
					return err
				})
				mu.Lock()
				if failed != nil {
					err = failed
				} else if done.Result == store.Retried {
					retried++
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return retried, err
}
