package httpapi

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/hooks"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// callView is one event told to one webhook, with its tries.
type callView struct {
	ID             uuid.UUID     `json:"id" format:"uuid"`
	MessageID      uuid.UUID     `json:"message_id" format:"uuid" doc:"The webhook-id: the same for an event and a webhook, however often it is told."`
	Event          string        `json:"event" example:"delivered" doc:"The event's type, or webhook.test."`
	EventID        string        `json:"event_id,omitzero" doc:"The event's cursor in GET /v1/events."`
	NotificationID uuid.UUID     `json:"notification_id,omitzero" format:"uuid"`
	Status         notify.Status `json:"status" enum:"queued,sending,delivered,failed,expired" doc:"delivered: the endpoint answered with 2xx. failed and expired are final; the others are not."`
	Because        string        `json:"because,omitzero" doc:"Why it failed."`
	CreatedAt      time.Time     `json:"created_at"`
	FinishedAt     *time.Time    `json:"finished_at" doc:"null while another try may come"`
	Next           *waitingView  `json:"waiting,omitempty" doc:"Why and until when the next try waits."`
	Attempts       []attemptView `json:"attempts" doc:"Every try, in order."`
}

type callsInput struct {
	ID     string `path:"id" format:"uuid" doc:"The webhook's id."`
	Limit  int    `query:"limit" minimum:"1" maximum:"100" default:"50" doc:"How many at most."`
	Cursor string `query:"cursor" maxLength:"64" doc:"The next of the page before."`
}

type callsOutput struct {
	Body struct {
		Items []callView `json:"items"`
		Next  string     `json:"next,omitzero" doc:"The cursor of the following page; absent on the last."`
	}
}

type callInput struct {
	ID       string `path:"id" format:"uuid" doc:"The webhook's id."`
	Delivery string `path:"delivery" format:"uuid" doc:"The delivery's id."`
}

type callOutput struct {
	Body callView
}

// replayRequest says from where to replay: one of the two.
type replayRequest struct {
	Since string `json:"since,omitempty" format:"date-time" doc:"Events of this instant and later."`
	After string `json:"after,omitempty" maxLength:"64" doc:"Instead of since: events after this cursor, such as the next of a replay that had more to send."`
}

type replayOutput struct {
	Body struct {
		Count int    `json:"count" doc:"How many events are sent again."`
		More  bool   `json:"more" doc:"There are more to look at: ask again, with next as after."`
		Next  string `json:"next" doc:"How far this came, as a cursor of events."`
	}
}

func (a *API) routeWebhookCalls() {
	const one = "/v1/webhooks/{id}"
	const replay = one + "/replay"
	huma.Register(a.huma, a.webhookOperation("listWebhookDeliveries", http.MethodGet, one+"/deliveries", "See what a webhook was told",
		"Newest first, each with its tries and when the next one comes. They are kept as long as notifications are."), a.listCalls)
	again := a.webhookOperation("replayWebhookDelivery", http.MethodPost, one+"/deliveries/{delivery}/replay", "Send one again",
		"Whatever became of it, to the URL that the webhook has now, under the same webhook-id.")
	again.DefaultStatus = http.StatusAccepted
	huma.Register(a.huma, again, a.replayCall)
	since := a.webhookOperation("replayWebhook", http.MethodPost, replay, "Send again what happened since",
		"Every event that the webhook wants, told before or not, under the same webhook-id as before: for a receiver that lost some, or a webhook that "+
			"was disabled. At most 1000 events at a time, and only those that are still kept.")
	since.DefaultStatus = http.StatusAccepted
	huma.Register(a.huma, since, a.replaySince)
	document[replayRequest](a.huma, replay, `{"since": "2026-12-01T08:00:00Z"}`)
	test := a.webhookOperation("testWebhook", http.MethodPost, one+"/test", "Try a webhook",
		"Sends a message of the type webhook.test, signed and tried again as others are.")
	test.DefaultStatus = http.StatusAccepted
	huma.Register(a.huma, test, a.testWebhook)
}

func (a *API) listCalls(ctx context.Context, in *callsInput) (*callsOutput, error) {
	project := keyOf(ctx).Project
	page := listInput{Cursor: in.Cursor, Reference: in.ID}
	before, ok := page.position(project)
	switch {
	case !ok:
		return nil, parameterProblem("query.cursor", notify.CodeFormat, "must be the next of a page of the same webhook")
	case in.Limit < 1 || in.Limit > maxPage:
		return nil, parameterProblem("query.limit", notify.CodeRange, "must be 1 to 100")
	}
	id, err := parseID(in.ID)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	calls, err := a.webhooks.Calls(ctx, project, id, before, in.Limit+1) // one more tells whether there is a next page
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &callsOutput{}
	if len(calls) > in.Limit {
		calls = calls[:in.Limit]
		out.Body.Next = page.cursor(project, calls[in.Limit-1].Notification.ID)
	}
	out.Body.Items = make([]callView, len(calls))
	for i := range calls {
		out.Body.Items[i] = callOut(&calls[i])
	}
	return out, nil
}

func (a *API) replayCall(ctx context.Context, in *callInput) (*callOutput, error) {
	if err := noBody(ctx); err != nil {
		return nil, err
	}
	id, err := parseID(in.ID)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	delivery, err := parseID(in.Delivery)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	c, err := a.webhooks.Replay(ctx, keyOf(ctx).Project, id, delivery)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	return &callOutput{Body: callOut(&c)}, nil
}

func (a *API) testWebhook(ctx context.Context, in *webhookInput) (*callOutput, error) {
	if err := noBody(ctx); err != nil {
		return nil, err
	}
	id, err := parseID(in.ID)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	c, err := a.webhooks.Test(ctx, keyOf(ctx).Project, id)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	return &callOutput{Body: callOut(&c)}, nil
}

func (a *API) replaySince(ctx context.Context, in *webhookInput) (*replayOutput, error) {
	var body replayRequest
	if err := decodeBody(ctx, &body); err != nil {
		return nil, err
	}
	project := keyOf(ctx).Project
	since, after, problems := body.check(project, a.now())
	if len(problems) > 0 {
		return nil, bodyProblem(problems)
	}
	id, err := parseID(in.ID)
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	r, err := a.webhooks.ReplaySince(ctx, project, id, since, after)
	if errors.Is(err, store.ErrEventsAhead) {
		return nil, bodyProblem([]notify.Problem{{
			Pointer: "/after", Code: notify.CodeRange, Detail: "must not be ahead of all events, as it is after a restored backup",
		}})
	}
	if err != nil {
		return nil, a.storeProblem(ctx, err)
	}
	out := &replayOutput{}
	out.Body.Count, out.Body.More, out.Body.Next = r.Count, r.More, EventCursor(project, r.Next)
	return out, nil
}

// check returns the instant or the position to replay from, and what is wrong.
func (in *replayRequest) check(project string, now time.Time) (time.Time, int64, []notify.Problem) {
	since, ok := instant(in.Since)
	switch {
	case (in.Since == "") == (in.After == ""):
		return since, 0, []notify.Problem{{Pointer: "/since", Code: notify.CodeRequired, Detail: "must be given, or after, not both"}}
	case !ok:
		return since, 0, []notify.Problem{{Pointer: "/since", Code: notify.CodeFormat, Detail: "must be an RFC 3339 date-time, such as 2026-12-01T08:00:00Z"}}
	case since.After(now):
		return since, 0, []notify.Problem{{Pointer: "/since", Code: notify.CodeRange, Detail: "must not be later than now"}}
	case in.After == "":
		return since, 0, nil
	}
	after, ok := eventPosition(project, in.After)
	if !ok {
		return since, 0, []notify.Problem{{Pointer: "/after", Code: notify.CodeFormat, Detail: "must be a cursor of this project's events"}}
	}
	return since, after, nil
}

func callOut(c *hooks.Call) callView {
	status, _ := c.Overall()
	v := callView{
		ID: c.Notification.ID, MessageID: c.MessageID, Event: c.Event, EventID: c.EventID, NotificationID: c.NotificationID,
		Status: status, CreatedAt: c.Notification.CreatedAt.UTC(), FinishedAt: utc(c.FinishedAt()), Next: waiting(c.Waits),
		Attempts: make([]attemptView, len(c.Attempts)),
	}
	for i, t := range c.Attempts {
		v.Attempts[i] = attempt(t)
	}
	for i := range c.Deliveries {
		if d := &c.Deliveries[i]; d.Final && status != notify.Delivered {
			v.Because = d.Because
		}
	}
	return v
}
