package cli_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/cli"
)

// send writes to a stream at once.
func send(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = io.WriteString(w, text)
	_ = http.NewResponseController(w).Flush()
}

const heartbeat = "retry: 20\n:\nid: c0\n\n"

func block(id, data string) string { return "id: " + id + "\nevent: sent\ndata: " + data + "\n\n" }

func TestWatchLooksAgainWithEachEvent(t *testing.T) {
	s := newService(t, queuedView, fallenView, sentView, deliveredView())
	s.events = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") != "text/event-stream" || r.Header.Get("Authorization") != "Bearer dsp_test" {
			t.Errorf("header %v", r.Header)
		}
		send(w, heartbeat)
		for {
			select {
			case <-r.Context().Done():
				return
			case <-s.looked:
				send(w, block("c", "{}"))
			}
		}
	}
	began := time.Now()
	run(t, s.env(), "watch", notificationID).want(t, 0, "=         delivered")
	if took := time.Since(began); s.gets != 4 || took > 10*time.Second {
		t.Errorf("asked %d times in %v, want 4 times with the events and not each 5 s", s.gets, took)
	}
}

func TestWatchPollsWhereTheStreamBreaks(t *testing.T) {
	s := newService(t, queuedView, fallenView, sentView, deliveredView())
	s.events = func(w http.ResponseWriter, _ *http.Request) { send(w, heartbeat) }
	run(t, s.env(), "watch", notificationID).want(t, 0, "=         delivered")
}

const (
	firstEvent  = `{"id":"c1","at":"2026-12-01T08:00:00.5Z","notification_id":"` + notificationID + `","type":"accepted","final":false}`
	secondEvent = `{"id":"c2","at":"2026-12-01T08:00:01Z","notification_id":"` + notificationID + `","type":"waiting","step":0,"target":0,"channel":"sms","because":"throttled","final":false}`
	thirdEvent  = `{"id":"c3","at":"2026-12-01T08:00:02Z","notification_id":"` + notificationID + `","type":"failed","step":0,"target":0,"channel":"sms","because":"no_account","final":true,"status":"failed"}`
	printed     = `2026-12-01T08:00:00Z  ` + notificationID + `  accepted
2026-12-01T08:00:01Z  ` + notificationID + `  waiting     sms       throttled
2026-12-01T08:00:02Z  ` + notificationID + `  failed      sms       no_account = failed
`
)

// asked keeps what a handler was asked for.
type asked struct {
	mu      sync.Mutex
	queries []string
}

func (a *asked) note(text string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.queries = append(a.queries, text)
	return len(a.queries)
}

func TestEventsPrintsPageAfterPage(t *testing.T) {
	s, seen := newService(t), &asked{}
	s.events = func(w http.ResponseWriter, r *http.Request) {
		switch seen.note(r.URL.String()) {
		case 1:
			_, _ = io.WriteString(w, `{"items":[`+firstEvent+`],"next":"c1","more":true}`)
		case 2:
			_, _ = io.WriteString(w, `{"items":[],"next":"c1b","more":true}`)
		default:
			_, _ = io.WriteString(w, `{"items":[`+secondEvent+`,`+thirdEvent+`],"next":"c3","more":false}`)
		}
	}
	r := run(t, s.env(), "events", "--final", "--types", "a,b")
	r.want(t, 0)
	if diff := cmp.Diff(printed, r.stdout); diff != "" {
		t.Error(diff)
	}
	want := []string{
		"/v1/events?final=true&limit=1000&types=a%2Cb", "/v1/events?after=c1&final=true&limit=1000&types=a%2Cb",
		"/v1/events?after=c1b&final=true&limit=1000&types=a%2Cb",
	}
	if diff := cmp.Diff(want, seen.queries); diff != "" {
		t.Error(diff)
	}
}

func TestEventsFollowsOverABrokenStream(t *testing.T) {
	s, seen := newService(t), &asked{}
	ctx, cancel := context.WithCancel(t.Context())
	s.events = func(w http.ResponseWriter, r *http.Request) {
		if seen.note(r.URL.String()+" "+r.Header.Get("Last-Event-ID")) == 1 {
			send(w, heartbeat+block("c1", firstEvent))
			return
		}
		send(w, block("c2", secondEvent)+block("c3", thirdEvent))
		<-r.Context().Done()
	}
	out := &until{want: 3, done: cancel}
	code := cli.Run(ctx, cli.Process{
		Args: []string{"events", notificationID, "--follow", "--json", "--after", "start"}, Stdout: out, Stderr: io.Discard, Env: s.env(),
	})
	if code != 0 {
		t.Errorf("exit code %d", code)
	}
	if diff := cmp.Diff(firstEvent+"\n"+secondEvent+"\n"+thirdEvent+"\n", out.text.String()); diff != "" {
		t.Error(diff)
	}
	path := "/v1/notifications/" + notificationID + "/events?after=start "
	if diff := cmp.Diff([]string{path, path + "c1"}, seen.queries); diff != "" {
		t.Error(diff)
	}
}

// until calls done with the wanted line.
type until struct {
	text  strings.Builder
	lines atomic.Int64
	want  int64
	done  func()
}

func (u *until) Write(b []byte) (int, error) {
	n, err := u.text.Write(b)
	if u.lines.Add(int64(strings.Count(string(b), "\n"))) == u.want {
		u.done()
	}
	return n, err
}

func TestEventsThatAreRefusedSaySo(t *testing.T) {
	s := newService(t)
	run(t, s.env(), "events", "--follow").want(t, 1, "answered 404")
	s.events = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }
	run(t, s.env(), "events", "--follow").want(t, 1, "does not offer its events")
	run(t, s.env(), "events", "a", "b").want(t, 2, "one notification")
}
