package httpapi

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/stream"
)

// Events is where status events come from. Zero limits take their defaults.
type Events struct {
	Hub   *stream.Hub
	Store EventStore
	// MaxStreams and MaxStreamsPerKey bound the open streams of this process;
	// defaults 1000 and 50.
	MaxStreams       int
	MaxStreamsPerKey int
	// Heartbeat is how long a stream is silent at most; default 15 s.
	Heartbeat time.Duration
	// WriteTimeout is how long a piece of a stream may take to be written; default
	// 10 s.
	WriteTimeout time.Duration
}

// EventStore is what polling reads.
type EventStore interface {
	stream.Source
	Has(ctx context.Context, project string, id uuid.UUID) (bool, error)
}

// maxEvents is the size of the largest page of events.
const maxEvents = 1000

// The words for a cursor where a reader has none yet.
const (
	cursorStart = "start"
	cursorNow   = "now"
)

// finished is the event that ends a notification where no delivery's own does.
const finished = "finished"

// eventTypes are the types of events, in the order in which they may come.
func eventTypes() []string {
	return []string{
		store.EventAccepted, string(notify.Waiting), string(notify.Queued), string(notify.Unknown), string(notify.Sent), string(notify.Failed),
		string(notify.Delivered), string(notify.Read), string(notify.Lapsed), string(notify.Canceled), string(notify.Blocked),
		store.EventAcknowledged, store.EventRetried, store.EventCorrected, finished,
		store.EventWebhookDisabled,
	}
}

// EventsQuery is what both lists of events are asked with. It is exported for
// huma, which does not look into others that are embedded.
type EventsQuery struct {
	After       string   `query:"after" maxLength:"64" doc:"Events after this cursor: the id of an event, or next of a page. start is the oldest position that is kept, now the newest. Default is start for a page and now for a stream."`
	LastEventID string   `header:"Last-Event-ID" doc:"Of a stream: the id of the last event that was seen. It wins over after, so that a browser can reconnect by itself."`
	Limit       int      `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Of a page: how many events at most."`
	Types       []string `query:"types" doc:"Only events of these types, separated by commas." example:"sent,failed"`
	Final       bool     `query:"final" default:"false" doc:"With true, only events that end a notification."`
}

type projectEventsInput struct{ EventsQuery }

type notificationEventsInput struct {
	ID string `path:"id" format:"uuid" doc:"The notification's id."`
	EventsQuery
}

// eventPage is a page of events as it is shown.
type eventPage struct {
	Items []eventView `json:"items"`
	Next  string      `json:"next" doc:"The cursor to go on with, now or later; always there."`
	More  bool        `json:"more" doc:"There is more to read at once, also where items is empty."`
}

// eventView is an event as it is shown.
type eventView struct {
	ID             string         `json:"id" doc:"The event's cursor."`
	At             time.Time      `json:"at" doc:"When it happened. Events come in the order in which they were stored, which may differ slightly."`
	NotificationID uuid.UUID      `json:"notification_id,omitzero" format:"uuid" doc:"Absent where the event is about a webhook."`
	WebhookID      uuid.UUID      `json:"webhook_id,omitzero" format:"uuid" doc:"Of webhook_disabled: which webhook is told of nothing any more."`
	Type           string         `json:"type" example:"sent" doc:"accepted, finished and canceled are about the notification, webhook_disabled is about a webhook; the others are what became of one delivery."`
	Step           *int           `json:"step,omitzero" doc:"Which step of the chain, counted from 0; absent where the event is about the whole."`
	Target         *int           `json:"target,omitzero" doc:"Which address of the step, counted from 0."`
	Channel        notify.Channel `json:"channel,omitzero" enum:"push,sms,whatsapp,email,slack,webhook" doc:"The step's."`
	Because        string         `json:"because,omitzero" doc:"Why; of waiting the reason, of corrected the new status."`
	Until          *time.Time     `json:"until,omitempty" doc:"When the wait that begins here is expected to end: of waiting, of unknown, and of sent or delivered while receipts may come."`
	Final          bool           `json:"final" doc:"The notification ends with this event."`
	Status         string         `json:"status,omitzero" enum:"sent,delivered,read,failed,partially_failed,expired,canceled,suppressed" doc:"The notification's status; only where final is true."`
}

func (a *API) routeEvents() {
	const about = "With `Accept: text/event-stream` the answer is a stream of Server-Sent Events that stays open: `event` is the type, " +
		"`data` the event as JSON, `id` its cursor; blocks with an id alone tell how far a quiet stream has come. " +
		"Else it is a page of JSON, for polling: ask again with `next` as `after`.\n\n" +
		"Read with a cursor, nothing is missed and nothing repeated. A cursor is good for one project, for its stream and that of any " +
		"notification in it, with any filters, and until retention overtakes it: 410 `cursor_expired`."
	operation := func(id, path, summary, more string) huma.Operation {
		return huma.Operation{
			OperationID: id, Method: http.MethodGet, Path: path, Tags: []string{tagEvents}, Summary: summary, Description: more + about,
			Security: needs(ScopeRead), SkipValidateParams: true, Metadata: map[string]any{streamed: true},
			Errors: []int{400, 401, 403, 404, 406, 410, 422, 429, 503},
			Responses: map[string]*huma.Response{"200": {
				Description: "OK",
				Content: map[string]*huma.MediaType{
					jsonType:   {Schema: schemaOf[eventPage](a.huma.OpenAPI().Components.Schemas)},
					streamType: {Schema: &huma.Schema{Type: huma.TypeString, Description: "Server-Sent Events whose data is an item of the JSON answer."}},
				},
			}},
		}
	}
	huma.Register(a.huma, operation("listEvents", "/v1/events", "Follow everything",
		"What happens to the notifications of the project.\n\n"),
		func(ctx context.Context, in *projectEventsInput) (*huma.StreamResponse, error) {
			return a.serveEvents(ctx, in.EventsQuery, uuid.Nil)
		})
	huma.Register(a.huma, operation("listNotificationEvents", "/v1/notifications/{id}/events", "Follow a notification",
		"What happens to one notification. Its stream stays open after its end, since late receipts may follow.\n\n"),
		func(ctx context.Context, in *notificationEventsInput) (*huma.StreamResponse, error) {
			id, err := parseID(in.ID)
			if err != nil {
				return nil, a.storeProblem(ctx, err)
			}
			return a.serveEvents(ctx, in.EventsQuery, id)
		})
}

// serveEvents answers with a stream or a page.
func (a *API) serveEvents(ctx context.Context, in EventsQuery, notification uuid.UUID) (*huma.StreamResponse, error) {
	if a.events == nil {
		return nil, newProblem(http.StatusServiceUnavailable, CodeUnavailable, "This process has no events.").with("Retry-After", "1")
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		r, w := humago.Unwrap(hc)
		streams := acceptsStream(r.Header.Values("Accept"))
		var err error
		filter, start, p := in.filter(keyOf(ctx).Project, notification, streams)
		if p == nil {
			p = a.known(ctx, filter)
		}
		switch {
		case p != nil:
		case streams:
			err = a.openStream(w, r.WithContext(ctx), filter, start)
		default:
			err = a.eventPage(ctx, w, filter, start)
		}
		if err != nil {
			_, place := in.cursor(streams)
			p = a.eventProblem(ctx, err, place)
		}
		if p != nil {
			p.write(w)
		}
	}}, nil
}

// cursor is where to begin, and the parameter that says so.
func (in *EventsQuery) cursor(streams bool) (cursor, place string) {
	if streams && in.LastEventID != "" {
		return in.LastEventID, "header.Last-Event-ID"
	}
	return in.After, "query.after"
}

// filter reads the query.
func (in *EventsQuery) filter(project string, notification uuid.UUID, streams bool) (store.EventFilter, stream.Start, *Problem) {
	f := store.EventFilter{Project: project, Notification: notification, Final: in.Final, Limit: in.Limit}
	if len(in.Types) > 0 {
		f.Types = in.Types
	}
	var errs []ErrorDetail
	if !streams && (in.Limit < 1 || in.Limit > maxEvents) {
		errs = append(errs, ErrorDetail{Parameter: "query.limit", Code: notify.CodeRange, Detail: "must be 1 to 1000"})
	}
	known := eventTypes()
	if slices.ContainsFunc(in.Types, func(t string) bool { return !slices.Contains(known, t) }) {
		errs = append(errs, ErrorDetail{
			Parameter: "query.types", Code: notify.CodeChoice, Detail: "must be some of " + strings.Join(known, ", "),
		})
	}
	cursor, place := in.cursor(streams)
	start := stream.AtPosition
	switch {
	case cursor == cursorNow, cursor == "" && streams:
		start = stream.AtNow
	case cursor == cursorStart, cursor == "":
		start = stream.AtOldest
	default:
		var ok bool
		if f.After, ok = eventPosition(project, cursor); !ok {
			errs = append(errs, ErrorDetail{
				Parameter: place, Code: notify.CodeFormat, Detail: "must be a cursor of this project, start or now",
			})
		}
	}
	if len(errs) > 0 {
		return f, start, invalid(errs)
	}
	return f, start, nil
}

// known is a 404 where the filter names a notification that the project does not
// have.
func (a *API) known(ctx context.Context, f store.EventFilter) *Problem {
	if f.Notification == uuid.Nil {
		return nil
	}
	has, err := a.events.Store.Has(ctx, f.Project, f.Notification)
	if err == nil && !has {
		err = store.ErrNotFound
	}
	if err != nil {
		return a.storeProblem(ctx, err)
	}
	return nil
}

// eventPage answers with a page of JSON, unless it returns an error.
func (a *API) eventPage(ctx context.Context, w http.ResponseWriter, f store.EventFilter, start stream.Start) error {
	if start != stream.AtPosition {
		var err error
		if f.After, err = stream.Resolve(ctx, a.events.Store, f, start); err != nil {
			return err
		}
	}
	page, err := a.events.Store.Events(ctx, f)
	if err != nil {
		return err
	}
	body := eventPage{Items: make([]eventView, len(page.Events)), Next: EventCursor(f.Project, page.Next), More: page.More}
	for i := range page.Events {
		body.Items[i] = viewEvent(&page.Events[i])
	}
	answer, err := json.Marshal(body, json.Deterministic(true))
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", jsonType)
	_, _ = w.Write(answer) // a caller who has gone does not miss it
	return nil
}

// eventProblem is the answer to a cursor that cannot be read from, in this place
// of the request, or to a failure of the store.
func (a *API) eventProblem(ctx context.Context, err error, place string) *Problem {
	if p, ok := errors.AsType[*Problem](err); ok {
		return p
	}
	switch {
	case errors.Is(err, store.ErrEventsGone):
		return newProblem(http.StatusGone, CodeCursorExpired,
			"Events after this cursor have been deleted. Go on with after=start, and look up what was missed.")
	case errors.Is(err, store.ErrEventsAhead):
		return parameterProblem(place, notify.CodeRange, "must not be ahead of all events, as it is after a restored backup")
	case errors.Is(err, stream.ErrClosed):
		return newProblem(http.StatusServiceUnavailable, CodeUnavailable, "This process is stopping. Try again.").with("Retry-After", "1")
	}
	return a.storeProblem(ctx, err)
}

func viewEvent(e *store.LoggedEvent) eventView {
	v := eventView{
		ID: EventCursor(e.Project, e.Seq), At: e.At, NotificationID: e.ID.Notification, Type: e.Type, Channel: e.Channel,
		Because: e.Because, Until: utc(e.Until), Final: e.Final,
	}
	if e.Type == store.EventWebhookDisabled {
		v.NotificationID, v.WebhookID = uuid.Nil, e.ID.Notification
	}
	if !e.Whole {
		step, target := int(e.ID.Step), int(e.ID.Target)
		v.Step, v.Target = &step, &target
	}
	if e.Final {
		if v.Status = e.Type; e.Type == finished {
			v.Status, v.Because = e.Because, ""
		}
	}
	return v
}
