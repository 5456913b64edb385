package httpapi

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/stream"
)

// streamType is the media type of Server-Sent Events (WHATWG HTML, section 9.2).
const streamType = "text/event-stream"

// streamed marks an operation that can answer with a stream.
const streamed = "streamed"

// Defaults of [Events].
const (
	defaultStreams       = 1000
	defaultStreamsPerKey = 50
	defaultHeartbeat     = 15 * time.Second
	defaultWriteTimeout  = 10 * time.Second
)

// pieceSize is how many bytes are gathered before they are written: each piece
// has a deadline of its own.
const pieceSize = 32 << 10

// streams serves and counts the open streams.
type streams struct {
	Events
	mu    sync.Mutex
	total int
	byKey map[uuid.UUID]int
}

func newStreams(e *Events) *streams {
	if e == nil {
		return nil
	}
	s := &streams{Events: *e, byKey: map[uuid.UUID]int{}}
	if s.MaxStreams <= 0 {
		s.MaxStreams = defaultStreams
	}
	if s.MaxStreamsPerKey <= 0 {
		s.MaxStreamsPerKey = defaultStreamsPerKey
	}
	if s.Heartbeat <= 0 {
		s.Heartbeat = defaultHeartbeat
	}
	if s.WriteTimeout <= 0 {
		s.WriteTimeout = defaultWriteTimeout
	}
	return s
}

// enter counts a stream of a key, or refuses it. leave must be called at its end.
func (s *streams) enter(key uuid.UUID) (leave func(), p *Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.byKey[key] >= s.MaxStreamsPerKey:
		return nil, newProblem(http.StatusTooManyRequests, CodeTooManyStreams, "This API key has too many open streams.").with("Retry-After", "5")
	case s.total >= s.MaxStreams:
		return nil, newProblem(http.StatusServiceUnavailable, CodeUnavailable, "This process has too many open streams. Try again.").with("Retry-After", "5")
	}
	s.total++
	s.byKey[key]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.total--
		if s.byKey[key]--; s.byKey[key] == 0 {
			delete(s.byKey, key)
		}
	}, nil
}

// acceptsStream reports whether an Accept header names Server-Sent Events.
func acceptsStream(accept []string) bool {
	for _, line := range accept {
		for part := range strings.SplitSeq(line, ",") {
			media, params, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(media), streamType) && !refusing(params) {
				return true
			}
		}
	}
	return false
}

// streamable reports whether an operation can answer with the stream that an
// Accept header names.
func streamable(op *huma.Operation, accept []string) bool {
	return op.Metadata[streamed] == true && acceptsStream(accept)
}

// openStream streams events until the caller goes, does not keep up or loses the
// key, or the process stops. An error came before the first byte.
func (a *API) openStream(w http.ResponseWriter, r *http.Request, f store.EventFilter, start stream.Start) error {
	ctx := r.Context()
	leave, p := a.events.enter(keyOf(ctx).ID)
	if p != nil {
		return p
	}
	defer leave()
	sub, err := a.events.Hub.Subscribe(ctx, f, start)
	if err != nil {
		return err
	}
	defer sub.Close()
	h := w.Header()
	h.Set("Content-Type", streamType)
	h.Set("X-Accel-Buffering", "no")
	out := &eventWriter{w: w, control: http.NewResponseController(w), timeout: a.events.WriteTimeout, project: f.Project}
	// The server's deadlines are for requests that end.
	if err := out.control.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if err := a.pump(ctx, r.Header.Get("Authorization"), sub, out); !errors.Is(err, context.Canceled) {
		a.log.DebugContext(ctx, "event stream ended", slog.Any("error", err))
	}
	return nil
}

// pump writes what the subscription brings. It always ends with an error.
func (a *API) pump(ctx context.Context, authorization string, sub *stream.Subscription, out *eventWriter) error {
	out.buffer.WriteString("retry: 2000\n")
	if err := out.position(sub.Position()); err != nil {
		return err
	}
	checked := time.Now()
	for {
		events, err := sub.Next(ctx, a.events.Heartbeat)
		if err != nil {
			return err
		}
		if time.Since(checked) >= a.events.Heartbeat {
			// A key that was revoked must not go on reading. What the store cannot tell
			// now it is asked again later.
			_, p := a.authenticated(ctx, authorization, ScopeRead)
			if p != nil && p.Status < http.StatusInternalServerError {
				return p
			}
			checked = time.Now()
		}
		if len(events) == 0 {
			err = out.position(sub.Position())
		} else {
			err = out.events(events)
		}
		if err != nil {
			return err
		}
	}
}

// eventWriter writes the blocks of a stream.
type eventWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
	project string
	buffer  bytes.Buffer
}

// events writes events.
func (o *eventWriter) events(events []*store.LoggedEvent) error {
	for _, e := range events {
		v := viewEvent(e)
		data, err := json.Marshal(v, json.Deterministic(true))
		if err != nil {
			return err
		}
		o.buffer.WriteString("id: " + v.ID + "\nevent: " + v.Type + "\ndata: ")
		o.buffer.Write(data)
		o.buffer.WriteString("\n\n")
		if o.buffer.Len() >= pieceSize {
			if err := o.flush(); err != nil {
				return err
			}
		}
	}
	return o.flush()
}

// position writes a heartbeat: a comment, which a proxy takes for life, and an id
// without data, from which a quiet stream resumes without looking back.
func (o *eventWriter) position(position int64) error {
	o.buffer.WriteString(":\nid: " + EventCursor(o.project, position) + "\n\n")
	return o.flush()
}

// flush writes what was gathered, within the timeout.
func (o *eventWriter) flush() error {
	if o.buffer.Len() == 0 {
		return nil
	}
	if err := o.control.SetWriteDeadline(time.Now().Add(o.timeout)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := o.w.Write(o.buffer.Bytes()); err != nil {
		return err
	}
	o.buffer.Reset()
	return o.control.Flush()
}
