package httpapi_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
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
	e.server.Config = httpapi.NewServer(e.api, httpapi.Limits{Read: 200 * time.Millisecond, Write: 200 * time.Millisecond}, nil)
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

func TestAStreamAndAPageTellTheSame(t *testing.T) {
	t.Parallel()
	e := withEvents(t)
	all, none := e.listen(t, "/v1/events", e.acme), e.listen(t, "/v1/events", e.other)
	all.beats(1)
	none.beats(1)
	first := e.post(t, e.acme)
	one := e.listen(t, "/v1/notifications/"+first+"/events?after=start", e.acme)
	e.do(t, "POST", "/v1/notifications/"+first+"/cancel", "", e.acme).want(200)
	second := e.post(t, e.acme)
	var streamed, single []shownEvent
	for range 3 {
		streamed = append(streamed, all.next())
	}
	for range 2 {
		single = append(single, one.next())
	}
	want := [][2]string{{first, "accepted"}, {first, "canceled"}, {second, "accepted"}}
	for i, v := range streamed {
		if v.NotificationID != want[i][0] || v.Type != want[i][1] || v.At.IsZero() || v.Step != nil || v.Final != (i == 1) || (v.Status == "canceled") != v.Final {
			t.Errorf("event %d is %+v, want %v", i, v, want[i])
		}
	}
	if diff := cmp.Diff(streamed, e.page(t, "/v1/events", e.acme).Items); diff != "" {
		t.Errorf("the page is another (-stream +page):\n%s", diff)
	}
	if diff := cmp.Diff(single, e.page(t, "/v1/notifications/"+first+"/events", e.acme).Items); diff != "" {
		t.Errorf("the notification's page is another (-stream +page):\n%s", diff)
	}
	if diff := cmp.Diff(streamed[:2], single); diff != "" {
		t.Error(diff)
	}
	// The server's deadlines are long over.
	none.beats(10)
	for _, target := range []string{"/v1/events", "/v1/events?after=now"} {
		if p := e.page(t, target, e.other); len(p.Items) != 0 || p.More {
			t.Errorf("another project sees %+v", p)
		}
	}
	e.do(t, "GET", "/v1/notifications/"+first+"/events", "", e.other).problem(404, "not_found")
	if resp := e.connect(t, "/v1/notifications/"+first+"/events", e.other); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a stream of another's notification: %d", resp.StatusCode)
	}
}

func TestPagesFollowEachOther(t *testing.T) {
	t.Parallel()
	e := withEvents(t)
	var want, got []string
	for range 5 {
		want = append(want, e.post(t, e.acme))
		e.post(t, e.other)
	}
	now := e.page(t, "/v1/events?after=now", e.acme)
	target := "/v1/events?limit=2"
	for {
		p := e.page(t, target, e.acme)
		for _, v := range p.Items {
			got = append(got, v.NotificationID)
		}
		target = "/v1/events?limit=2&after=" + p.Next
		if !p.More {
			break
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	last := e.post(t, e.acme)
	for _, from := range []string{target, "/v1/events?after=" + now.Next} {
		if p := e.page(t, from, e.acme); len(p.Items) != 1 || p.Items[0].NotificationID != last {
			t.Errorf("%s: %+v", from, p)
		}
	}
	e.do(t, "POST", "/v1/notifications/"+last+"/cancel", "", e.acme).want(200)
	for query, want := range map[string]int{"types=canceled": 1, "types=accepted,canceled": 7, "final=true": 1, "types=sent": 0} {
		if p := e.page(t, "/v1/events?"+query, e.acme); len(p.Items) != want {
			t.Errorf("%s finds %d events, want %d", query, len(p.Items), want)
		}
	}
}

func TestAStreamResumes(t *testing.T) {
	t.Parallel()
	e := withEvents(t)
	s := e.listen(t, "/v1/events", e.acme)
	s.beats(1)
	e.post(t, e.acme)
	s.next()
	_ = s.resp.Body.Close()
	missed := []string{e.post(t, e.acme), e.post(t, e.acme)}
	// A browser repeats the address it began with, and adds the header.
	again := e.listen(t, "/v1/events?after=start", e.acme, header{"Last-Event-ID", s.cursor})
	for i, id := range append(missed, e.post(t, e.acme)) {
		if v := again.next(); v.NotificationID != id {
			t.Errorf("event %d is of %s, want %s", i, v.NotificationID, id)
		}
	}
	// A heartbeat's id leads past what was not for the reader.
	quiet := e.listen(t, "/v1/events", e.other)
	quiet.beats(1)
	before := quiet.cursor
	e.post(t, e.acme)
	for quiet.cursor == before {
		quiet.beats(1)
	}
	if p := e.page(t, "/v1/events?after="+quiet.cursor, e.other); len(p.Items) != 0 || p.Next != quiet.cursor {
		t.Errorf("page %+v, want the cursor back", p)
	}
}

func TestCursorsThatCannotBeReadFrom(t *testing.T) {
	t.Parallel()
	e := withEvents(t)
	e.post(t, e.other)
	other := e.page(t, "/v1/events", e.other).Next
	e.post(t, e.acme)
	old := e.page(t, "/v1/events", e.acme).Next
	exec := func(sql string) {
		t.Helper()
		if _, err := e.db.Pool().Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	for name, cursor := range map[string]string{"another project's": other, "no cursor": "ana@example.com", "half a cursor": old[:10], "a changed one": old[:22] + "!"} {
		p := e.do(t, "GET", "/v1/events?after="+cursor, "", e.acme).problem(422, "invalid_request")
		if diff := cmp.Diff([]string{"query.after format"}, places(p)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		resp := e.connect(t, "/v1/events", e.acme, header{"Last-Event-ID", cursor})
		if body, _ := io.ReadAll(resp.Body); resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(string(body), `"header.Last-Event-ID"`) || strings.Contains(string(body), "ana@") {
			t.Errorf("%s in a stream: %d %s", name, resp.StatusCode, body)
		}
	}
	for query, place := range map[string]string{"limit=0": "query.limit range", "limit=1001": "query.limit range", "types=sent,nonsense": "query.types choice", "final=perhaps": "query.final format"} {
		p := e.do(t, "GET", "/v1/events?"+query, "", e.acme).problem(422, "invalid_request")
		if diff := cmp.Diff([]string{place}, places(p)); diff != "" {
			t.Errorf("%s: %s", query, diff)
		}
	}
	exec("insert into dispatcher.event_horizons (project, id) values ('acme', 1000)")
	e.do(t, "GET", "/v1/events?after="+old, "", e.acme).problem(410, "cursor_expired")
	if resp := e.connect(t, "/v1/events", e.acme, header{"Last-Event-ID", old}); resp.StatusCode != http.StatusGone {
		t.Errorf("a stream from a cursor that has expired: %d", resp.StatusCode)
	}
	start := e.page(t, "/v1/events?after=start", e.acme)
	if len(start.Items) != 0 {
		t.Errorf("the start is before what was deleted: %+v", start)
	}
	e.page(t, "/v1/events?after="+other, e.other)
	exec("delete from dispatcher.event_horizons")
	p := e.do(t, "GET", "/v1/events?after="+start.Next, "", e.acme).problem(422, "invalid_request")
	if diff := cmp.Diff([]string{"query.after range"}, places(p)); diff != "" {
		t.Errorf("a cursor ahead of all events: %s", diff)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	e := withEvents(t, func(c *httpapi.Events) { c.MaxStreams, c.MaxStreamsPerKey = 3, 2 })
	problem := func(as header, status int, code string) {
		t.Helper()
		resp := e.connect(t, "/v1/events", as)
		body, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != status || !strings.Contains(string(body), `"code":"`+code+`"`) || resp.Header.Get("Retry-After") == "" ||
			resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("status %d, want %d %s: %s", resp.StatusCode, status, code, body)
		}
	}
	first := e.listen(t, "/v1/events", e.acme)
	e.listen(t, "/v1/events", e.acme)
	problem(e.acme, 429, "too_many_streams")
	e.listen(t, "/v1/events", e.other)
	problem(e.other, 503, "unavailable")
	e.page(t, "/v1/events", e.acme) // polling is no stream
	_ = first.resp.Body.Close()
	for { // the server notices in its own time
		resp := e.connect(t, "/v1/events", e.acme)
		if resp.StatusCode == http.StatusOK {
			break
		}
	}
}

func TestAStreamEndsWithItsKey(t *testing.T) {
	t.Parallel()
	e := withEvents(t)
	secret, key, err := e.db.CreateKey(t.Context(), "acme", "short", []string{"read"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	s, stays := e.listen(t, "/v1/events", header{"Authorization", "Bearer " + secret}), e.listen(t, "/v1/events", e.acme)
	s.beats(3)
	if err := e.db.RevokeKey(t.Context(), "acme", key.ID); err != nil {
		t.Fatal(err)
	}
	s.ended()
	id := e.post(t, e.acme)
	if v := stays.next(); v.NotificationID != id {
		t.Errorf("event %+v", v)
	}
}

func TestOpenStreamsDoNotHoldUpShutdown(t *testing.T) {
	t.Parallel()
	e := withEvents(t)
	var open []*sse
	for range 5 {
		s := e.listen(t, "/v1/events", e.acme)
		s.beats(1)
		open = append(open, s)
	}
	began := time.Now()
	if err := e.server.Config.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("it took %v", took)
	}
	for _, s := range open {
		s.ended()
	}
}

// A reader that takes nothing off its connection is given up, and comes back to
// everything.
func TestAReaderThatDoesNotReadIsDropped(t *testing.T) {
	t.Parallel()
	e := withEvents(t, func(c *httpapi.Events) { c.WriteTimeout = 100 * time.Millisecond; c.MaxStreamsPerKey = 1 })
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", e.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() //nolint:errcheck // broken by then
	if err := conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
		t.Fatal(err)
	}
	// Enough to fill what the kernel takes for both sides.
	_, err = e.db.Pool().Exec(t.Context(), `insert into dispatcher.events (at, notification_id, project, type, because)
		select now(), gen_random_uuid(), 'acme', 'waiting', repeat('x', 1000) from generate_series(1, 15000)`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET /v1/events?after=start HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\nAuthorization: "+e.acme.value+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReaderSize(conn, 16).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 200") {
		t.Fatalf("%q, %v", line, err)
	}
	for { // until its place is free
		resp := e.connect(t, "/v1/events?after=start", e.acme)
		if resp.StatusCode != http.StatusOK {
			continue
		}
		s := &sse{t: t, resp: resp, lines: bufio.NewReader(resp.Body)}
		for range 15000 {
			s.next()
		}
		return
	}
}

func TestAStreamPassesAReverseProxy(t *testing.T) {
	t.Parallel()
	e := withEvents(t)
	behind, err := url.Parse(e.address)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(behind) }})
	t.Cleanup(proxy.Close)
	e.address = proxy.URL
	s := e.listen(t, "/v1/events", e.acme)
	s.beats(2)
	for range 3 {
		id := e.post(t, e.acme)
		if v := s.next(); v.NotificationID != id {
			t.Errorf("event of %s, want %s", v.NotificationID, id)
		}
	}
	_ = s.resp.Body.Close()
}

func TestStreamsAreForEventsAlone(t *testing.T) {
	s := newService(t)
	wants := header{"Accept", "text/event-stream"}
	s.do(t, "GET", "/v1/notifications", "", wants).problem(406, "not_acceptable")
	s.do(t, "GET", "/v1/events", "", header{"Accept", "text/html"}).problem(406, "not_acceptable")
	s.do(t, "GET", "/v1/events", "", header{"Accept", "text/event-stream;q=0"}).problem(406, "not_acceptable")
	s.do(t, "GET", "/v1/events", "", wants).problem(503, "unavailable") // this one has none
	s.do(t, "GET", "/v1/notifications/x/events", "", wants).problem(404, "not_found")
}
