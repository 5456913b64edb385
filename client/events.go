package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// ErrCursorExpired ends [Client.Events] where events after the cursor have been
// deleted already: some may have been missed. Go on with After: [AfterStart], and
// look up with [Client.Get] or [Client.List] what matters. The error is a
// [*Problem] too.
var ErrCursorExpired = errors.New("client: events after the cursor have been deleted")

// Words for [EventsOptions.After] where there is no cursor yet.
const (
	// AfterStart begins with the oldest event that is kept.
	AfterStart = "start"
	// AfterNow begins with what happens once the stream is open.
	AfterNow = "now"
)

// EventsOptions selects events. Zero fields do not filter.
type EventsOptions struct {
	// Notification is the id of the only one to follow; empty follows all of the
	// key's project. Its stream goes on after its end, since late receipts may come.
	Notification string
	// After is the cursor of the last event that is known, which may be of another
	// stream of the project, or [AfterStart] or [AfterNow], the default.
	After string
	Types []string // for example sent, failed
	Final bool     // only events that end a notification
	// Passed is called between events with a cursor that the stream has reached
	// without an event that is selected, every 15 s or so. Who selects what is rare
	// stores it like an event's: the last event's own may expire meanwhile.
	Passed func(cursor string)
}

// Event is something that happened to a notification, or to a status webhook.
type Event struct {
	// Cursor is what to set [EventsOptions.After] to in order to go on after this
	// event, in another process or on another day. Store it together with what the
	// event led to, and each event counts once.
	Cursor         string    `json:"id"`
	At             time.Time `json:"at"`
	NotificationID string    `json:"notification_id"` // empty where it is about a webhook
	WebhookID      string    `json:"webhook_id"`      // of webhook_disabled
	// Type is accepted, finished or canceled of the notification, webhook_disabled
	// of a webhook, and else what became of one delivery, such as sent or failed.
	// More may be added.
	Type    string  `json:"type"`
	Step    *int    `json:"step"`    // of the chain, counted from 0; nil where it is about the whole
	Target  *int    `json:"target"`  // which address of the step, counted from 0
	Channel Channel `json:"channel"` // of the step
	Because string  `json:"because"` // why; of waiting the reason, of corrected the new status
	// Until is when the wait that begins with the event is expected to end; nil where
	// none does.
	Until  *time.Time `json:"until"`
	Final  bool       `json:"final"`  // the notification ends with this event
	Status string     `json:"status"` // of the notification; only where Final
}

// maxSilence is how long a stream may bring nothing before it counts as broken.
// The service writes something every 15 s.
const maxSilence = 45 * time.Second

var (
	errSilence = errors.New("client: the stream has fallen silent")
	errAnswer  = errors.New("client: the answer is not a stream of events")
	// errEnough: the loop over the events was left.
	errEnough = errors.New("client: enough")
)

// Events follows what happens, in the order in which it was stored, until ctx
// ends or the loop is left: events come once each, and none is missing.
//
// A stream that breaks or falls silent is taken up where it was, as long as ctx
// lasts, after the wait that the service asks for. Only the first connection is
// given up after as many tries as any call ([WithAttempts]). The timeout of the
// http.Client does not apply. A body that takes long over an event is waited for.
//
// The last pair, and only that one, has an error: of ctx where that ended; with
// [ErrCursorExpired] where the cursor is older than what is kept; a [*Problem]
// where the service refuses what trying again does not change, for example an
// unknown notification, or a key that was revoked.
func (c *Client) Events(ctx context.Context, o EventsOptions) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := follower{client: c, http: *c.http, call: o.call(), retry: -1, passed: o.Passed, yield: yield}
		f.http.Timeout = 0 // would end every stream
		if err := f.follow(ctx); !errors.Is(err, errEnough) {
			yield(Event{}, err)
		}
	}
}

func (o *EventsOptions) call() call {
	q := url.Values{}
	if o.After != "" {
		q.Set("after", o.After)
	}
	if len(o.Types) > 0 {
		q.Set("types", strings.Join(o.Types, ","))
	}
	if o.Final {
		q.Set("final", "true")
	}
	path := []string{"v1", "events"}
	if o.Notification != "" {
		path = []string{"v1", "notifications", url.PathEscape(o.Notification), "events"}
	}
	return call{method: http.MethodGet, path: path, query: q, accept: "text/event-stream, application/problem+json"}
}

// follower is one loop over events.
type follower struct {
	client *Client
	http   http.Client
	call   call          // whose last is the cursor that was reached, empty while no stream has been open
	retry  time.Duration // what the service asked to wait before another connection; negative for no word
	alive  bool          // this connection has brought something
	passed func(cursor string)
	yield  func(Event, error) bool
}

// follow opens the stream again and again. It always ends with an error.
func (f *follower) follow(ctx context.Context) error {
	for failures := 0; ; {
		f.alive = false
		err := f.connect(ctx)
		var asked time.Duration
		p, refused := errors.AsType[*Problem](err)
		switch {
		case errors.Is(err, errEnough), errors.Is(err, errAnswer), errors.Is(err, errBlock):
			return err
		case ctx.Err() != nil:
			return fmt.Errorf("client: follow events: %w", ctx.Err())
		case refused && p.Status == http.StatusGone:
			return fmt.Errorf("%w: %w", ErrCursorExpired, p)
		case refused && p.Status != http.StatusTooManyRequests && p.Status < http.StatusInternalServerError:
			return err
		case refused:
			asked = p.RetryAfter
		}
		if failures++; f.alive {
			failures = 0
		}
		if f.call.last == "" && failures >= f.client.attempts {
			return err
		}
		timer := time.NewTimer(max(f.pause(failures), asked))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("client: follow events: %w; before that: %w", ctx.Err(), err)
		}
	}
}

// pause is how long to wait for the next connection after so many in a row that
// brought nothing. Its jitter keeps the readers of a service that was restarted
// from coming back all at once.
func (f *follower) pause(failures int) time.Duration {
	if f.retry >= 0 && failures == 0 {
		return f.retry + rand.N(f.retry/2+1)
	}
	return max(backoff(max(failures, 1)), f.retry)
}

// connect follows one connection to its end.
func (f *follower) connect(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(maxSilence, func() { cancel(errSilence) })
	defer silence.Stop()
	r, err := f.client.request(ctx, &f.call)
	if err != nil {
		return err
	}
	response, err := f.http.Do(r)
	if err != nil {
		return broken(ctx, fmt.Errorf("client: %s %s: %w", r.Method, f.client.base.Redacted(), cause(err)))
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(response.Body, maxBlock))
		if err != nil {
			return broken(ctx, fmt.Errorf("client: read the answer: %w", err))
		}
		return problemOf(response, body)
	}
	if kind, _, err := mime.ParseMediaType(response.Header.Get("Content-Type")); err != nil || kind != "text/event-stream" {
		return errAnswer
	}
	stream := newBlocks(response.Body)
	for {
		b, err := stream.next()
		if err != nil {
			return broken(ctx, err)
		}
		silence.Stop() // the caller may take its time
		if err := f.take(b); err != nil {
			return err
		}
		silence.Reset(maxSilence)
	}
}

// broken is err, or that the stream fell silent where that is behind it.
func broken(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errSilence) {
		return errSilence
	}
	return err
}

// take hands an event on and keeps how far the stream has come.
func (f *follower) take(b block) error {
	f.alive = true
	if b.retry >= 0 {
		f.retry = b.retry
	}
	if b.data != "" {
		var e Event
		if err := json.Unmarshal([]byte(b.data), &e); err != nil || e.Cursor == "" {
			return errAnswer
		}
		if !f.yield(e, nil) {
			return errEnough
		}
	}
	if b.id == "" {
		return nil
	}
	f.call.last = b.id
	if b.data == "" && f.passed != nil {
		f.passed(b.id)
	}
	return nil
}
