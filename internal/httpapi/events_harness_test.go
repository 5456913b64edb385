package httpapi_test

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/stream"
)

// eventService is an API over Postgres that listens, with a hub that runs.
type eventService struct {
	*service
	db      *store.Store
	hub     *stream.Hub
	server  *httptest.Server
	address string
	acme    header
	other   header
}

// direct accepts without a node, one notification at a time.
type direct struct{ *store.Store }

func (d direct) Accept(ctx context.Context, a store.Accept) (store.Accepted, error) {
	n := &a.Notification
	row := store.Acceptance{Accept: a, Starts: []store.Start{{Delivery: store.Delivery{
		DeliveryID: store.DeliveryID{Notification: n.ID}, Targets: 1, Project: n.Project, Channel: n.Chain[0].Channel, Priority: n.Priority,
		StartedWhy: "first", StartedAt: n.SendAt, EndsAt: n.ExpiresAt, ExpiresAt: n.ExpiresAt,
	}}}}
	done, errs, err := d.Store.Accept(ctx, []store.Acceptance{row}, time.Now(), time.Hour)
	if err == nil {
		err = errs[0]
	}
	if err != nil {
		return store.Accepted{}, err
	}
	return done[0], nil
}

// noQueue gives out the ids of jobs that are nowhere.
type noQueue struct{ last atomic.Int64 }

func (q *noQueue) Insert(_ context.Context, _ pgx.Tx, envelopes []store.Envelope) ([]int64, error) {
	ids := make([]int64, len(envelopes))
	for i := range ids {
		ids[i] = q.last.Add(1)
	}
	return ids, nil
}

// withEvents starts one whose server has little patience with requests.
func withEvents(t *testing.T, change ...func(*httpapi.Events)) *eventService {
	t.Helper()
	db, err := store.Open(t.Context(), pgtest.URL(t), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	db.SetQueue(&noQueue{})
	e := &eventService{db: db, hub: stream.New(db, stream.Config{Interval: 5 * time.Millisecond})}
	events := &httpapi.Events{Hub: e.hub, Store: db, Heartbeat: 50 * time.Millisecond}
	for _, f := range change {
		f(events)
	}
	e.service = newService(t, func(c *httpapi.Config) {
		c.Accept, c.Store, c.Keys, c.Now, c.Events = direct{db}, db, db, time.Now, events
	})
	e.acme, e.other = keyFor(t, db, "acme"), keyFor(t, db, "other")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() { e.hub.Run(ctx) })
	e.server = httptest.NewUnstartedServer(nil)
	e.server.Config = httpapi.NewServer(e.api, httpapi.Limits{Read: time.Second, Write: time.Second}, nil)
	e.server.Config.RegisterOnShutdown(e.hub.Close)
	e.server.Start()
	e.address = e.server.URL
	t.Cleanup(func() {
		cancel()
		running.Wait()
		e.server.Close()
	})
	return e
}

// post has a notification accepted and returns its id.
func (e *eventService) post(t *testing.T, as header) string {
	t.Helper()
	var v struct {
		ID string `json:"id"`
	}
	e.do(t, "POST", "/v1/notifications", good, as).want(202).into(&v)
	return v.ID
}

type shownEvent struct {
	ID             string    `json:"id"`
	At             time.Time `json:"at"`
	NotificationID string    `json:"notification_id"`
	Type           string    `json:"type"`
	Channel        string    `json:"channel"`
	Because        string    `json:"because"`
	Step           *int      `json:"step"`
	Final          bool      `json:"final"`
	Status         string    `json:"status"`
}

type shownPage struct {
	Items []shownEvent `json:"items"`
	Next  string       `json:"next"`
	More  bool         `json:"more"`
}

func (e *eventService) page(t *testing.T, target string, as header) shownPage {
	t.Helper()
	var p shownPage
	e.do(t, "GET", target, "", as).want(200).into(&p)
	if p.Next == "" || p.Items == nil {
		t.Fatalf("page %+v", p)
	}
	return p
}

// sse is an open stream.
type sse struct {
	t      testing.TB
	resp   *http.Response
	lines  *bufio.Reader
	cursor string // as a browser keeps it
}

// listen opens a stream at an address.
func (e *eventService) listen(t *testing.T, target string, headers ...header) *sse {
	t.Helper()
	resp := e.connect(t, target, headers...)
	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("X-Accel-Buffering") != "no" ||
		resp.Header.Get("Cache-Control") != "no-store" {
		t.Fatalf("status %d, header %v", resp.StatusCode, resp.Header)
	}
	return &sse{t: t, resp: resp, lines: bufio.NewReader(resp.Body)}
}

func (e *eventService) connect(t *testing.T, target string, headers ...header) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, e.address+target, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	for _, h := range headers {
		req.Header.Set(h.name, h.value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// block reads to the end of a block, as WHATWG HTML section 9.2.6 has it.
func (s *sse) block() (event, data string, err error) {
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return "", "", err
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "":
			return event, data, nil
		case "id":
			s.cursor = value
		case "event":
			event = value
		case "data":
			data += value
		case "retry", ":":
		default:
			s.t.Errorf("line %q", line)
		}
	}
}

// next reads the next event, past any number of heartbeats.
func (s *sse) next() shownEvent {
	s.t.Helper()
	for {
		event, data, err := s.block()
		if err != nil {
			s.t.Fatal(err)
		}
		if data == "" {
			continue
		}
		var v shownEvent
		if err := json.Unmarshal([]byte(data), &v); err != nil {
			s.t.Fatalf("%v in %s", err, data)
		}
		if v.Type != event || v.ID != s.cursor {
			s.t.Errorf("event %q with id %q: %s", event, s.cursor, data)
		}
		return v
	}
}

// beats reads so many heartbeats and nothing else.
func (s *sse) beats(count int) {
	s.t.Helper()
	for range count {
		if event, data, err := s.block(); err != nil || event != "" || data != "" {
			s.t.Fatalf("%q %q %v, want a heartbeat", event, data, err)
		}
	}
}

// ended reads until the stream is over.
func (s *sse) ended() {
	s.t.Helper()
	for {
		if _, _, err := s.block(); err == io.EOF { //nolint:errorlint // what ReadString returns
			return
		} else if err != nil {
			s.t.Fatal(err)
		}
	}
}
