package httpapi

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// createRoute names the route in idempotency records: a key used here says
// nothing about another route.
const createRoute = "notifications"

type createInput struct {
	Key   string `header:"Idempotency-Key" doc:"Makes the request safe to repeat: the same key with the same JSON gives the same answer and sends nothing again, for at least 24 hours. 1 to 255 visible ASCII characters, bare or as a quoted string. A key belongs to the project of the API key." example:"\"8e03978e-40d5-43dd-bc93-6894a57f9324\""`
	Trace string `header:"Traceparent" doc:"W3C Trace Context. It reaches the spans of the attempts and outgoing webhooks."`
	Plan  bool   `query:"plan" default:"false" doc:"With true nothing is sent or stored: the answer, 200, is what would become of the notification now."`
}

type createOutput struct {
	Status      int
	ContentType string `header:"Content-Type" hidden:"true"`
	Location    string `header:"Location" doc:"Where to follow the notification." example:"/v1/notifications/0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"`
	Replayed    string `header:"Idempotent-Replayed" doc:"true when the answer is that of an earlier request with the same Idempotency-Key."`
	Body        []byte
}

// accepted is the answer to an accepted notification.
type accepted struct {
	ID      uuid.UUID     `json:"id" format:"uuid" doc:"A UUIDv7, so ids sort by time."`
	Status  notify.Status `json:"status" enum:"queued" doc:"Always queued; follow Location."`
	Chain   []StepRequest `json:"chain" doc:"The steps with their defaults."`
	Waiting *waitingView  `json:"waiting,omitempty" doc:"Present when send_at is ahead."`
}

func (a *API) routeNotifications() {
	registry := a.huma.OpenAPI().Components.Schemas
	create := huma.Operation{
		OperationID: "createNotification", Method: http.MethodPost, Path: "/v1/notifications", Tags: []string{tagNotifications},
		Summary: "Send a notification",
		Description: "Accepts one notification for one person. The answer comes after the notification is stored durably; " +
			"what becomes of it is at Location.\n\nThe chain runs in order and stops at the first step that meets its success " +
			"criterion; with mode all, every step runs.",
		Security: needs(ScopeSend), DefaultStatus: http.StatusAccepted, Middlewares: huma.Middlewares{withKey, a.withBody},
		SkipValidateParams: true, Errors: []int{400, 401, 403, 406, 408, 413, 415, 422, 503},
		Responses: map[string]*huma.Response{
			"202": {Description: "Accepted", Content: map[string]*huma.MediaType{jsonType: {Schema: schemaOf[accepted](registry)}}},
			"200": {Description: "With plan=true: what would become of it", Content: map[string]*huma.MediaType{jsonType: {Schema: schemaOf[planView](registry)}}},
		},
	}
	huma.Register(a.huma, create, a.createNotification)
	document[notificationRequest](a.huma, "/v1/notifications", exampleRequest)

	huma.Register(a.huma, huma.Operation{
		OperationID: "getNotification", Method: http.MethodGet, Path: "/v1/notifications/{id}", Tags: []string{tagNotifications},
		Summary:     "See what became of a notification",
		Description: "Its status, the steps of its chain, and every attempt to send it.",
		Security:    needs(ScopeRead), SkipValidateParams: true, Errors: []int{401, 403, 404, 406, 503},
	}, a.getNotification)

	huma.Register(a.huma, huma.Operation{
		OperationID: "listNotifications", Method: http.MethodGet, Path: "/v1/notifications", Tags: []string{tagNotifications},
		Summary: "List notifications",
		Description: "Newest first, without attempts. Filters are joined by and. A status is derived from what providers said, " +
			"so a filter on it looks through at most 20,000 notifications that match the others.",
		Security: needs(ScopeRead), SkipValidateParams: true, Errors: []int{400, 401, 403, 406, 422, 503},
	}, a.listNotifications)

	huma.Register(a.huma, huma.Operation{
		OperationID: "cancelNotification", Method: http.MethodPost, Path: "/v1/notifications/{id}/cancel", Tags: []string{tagNotifications},
		Summary:     "Stop a notification",
		Description: "The answer is definitive. It may be repeated.",
		Security:    needs(ScopeSend), Middlewares: huma.Middlewares{a.withBody}, SkipValidateParams: true,
		Errors: []int{400, 401, 403, 404, 406, 415, 503},
	}, a.cancelNotification)
}

func (a *API) createNotification(ctx context.Context, in *createInput) (*createOutput, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, a.internal(ctx, err)
	}
	body, project := bodyOf(ctx), keyOf(ctx).Project
	n, problems := notify.Parse(body, notify.ParseOptions{ID: id, Project: project, Now: a.now(), Account: a.account(project)})
	if len(problems) == 0 && in.Plan {
		return a.planned(ctx, &n)
	}
	if len(problems) == 0 {
		problems = a.accounts.Check(&n)
	}
	if len(problems) > 0 {
		return nil, bodyProblem(problems)
	}
	n.Trace = traceparent(in.Trace)
	request := store.Accept{Notification: n}
	if request.Answer, err = json.Marshal(acceptedView(&n)); err != nil {
		return nil, a.internal(ctx, err)
	}
	if key := keyFrom(ctx); key != "" {
		request.Key, request.Route, request.Fingerprint = key, createRoute, fingerprint(body)
	}
	done, err := a.accept.Accept(ctx, request)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &createOutput{Status: http.StatusAccepted, ContentType: jsonType, Location: "/v1/notifications/" + done.ID.String(), Body: done.Answer}
	if done.Replayed {
		out.Replayed = "true"
	}
	return out, nil
}

func acceptedView(n *notify.Notification) accepted {
	v := accepted{ID: n.ID, Status: notify.Queued, Chain: make([]StepRequest, len(n.Chain))}
	for i, s := range n.Chain {
		v.Chain[i] = stepView(s)
	}
	if n.SendAt.After(n.CreatedAt) {
		v.Waiting = &waitingView{Reason: notify.WaitScheduled, Until: n.SendAt}
	}
	return v
}

// account answers what [notify.Parse] asks about the accounts of a project. A
// step that names none may go through any of its channel, and goes past those that
// cannot tell what it asks for.
func (a *API) account(project string) func(notify.Channel, string) (notify.Status, bool) {
	infos := a.accounts.Infos(project)
	return func(c notify.Channel, name string) (best notify.Status, found bool) {
		for i := range infos {
			if infos[i].Channel != c || name != "" && infos[i].Account != name {
				continue
			}
			best, found = notify.Best(best, infos[i].MaxObservable), true
		}
		return best, found
	}
}

// traceparent returns s if it is a traceparent of W3C Trace Context, version 00,
// and the empty string otherwise: a bad one is to be ignored, not refused.
func traceparent(s string) string {
	if len(s) != 55 || !strings.HasPrefix(s, "00-") || s[35] != '-' || s[52] != '-' {
		return ""
	}
	for i := 3; i < len(s); i++ {
		hex := s[i] >= '0' && s[i] <= '9' || s[i] >= 'a' && s[i] <= 'f'
		if i != 35 && i != 52 && !hex {
			return ""
		}
	}
	if strings.Trim(s[3:35], "0") == "" || strings.Trim(s[36:52], "0") == "" {
		return ""
	}
	return s
}

type notificationInput struct {
	ID string `path:"id" format:"uuid" doc:"The notification's id."`
}

type notificationOutput struct {
	Body notificationView
}

func (a *API) getNotification(ctx context.Context, in *notificationInput) (*notificationOutput, error) {
	id, err := parseID(in.ID)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	project := keyOf(ctx).Project
	record, err := a.store.Get(ctx, project, id)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	v := view(&record, a.account(project))
	v.Timeline = timeline(&record)
	return &notificationOutput{Body: v}, nil
}

type cancelOutput struct {
	Body struct {
		Result store.CancelResult `json:"result" enum:"canceled,too_late,already_final" doc:"canceled: no call was made and none will be. too_late: a call was made or is in flight; what would have come after it is stopped. already_final: there was nothing left to stop."`
	}
}

func (a *API) cancelNotification(ctx context.Context, in *notificationInput) (*cancelOutput, error) {
	if err := noBody(ctx); err != nil {
		return nil, err
	}
	id, err := parseID(in.ID)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	result, err := a.store.Cancel(ctx, keyOf(ctx).Project, id, a.now())
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &cancelOutput{}
	out.Body.Result = result
	return out, nil
}
