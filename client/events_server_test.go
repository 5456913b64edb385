package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/client"
)

// brittle stands before a service and breaks every stream after a few bytes, not
// caring where an event ends. It asks for hardly any pause.
func brittle(t *testing.T, service string) (address string, streams *atomic.Int64) {
	t.Helper()
	target, err := url.Parse(service)
	if err != nil {
		t.Fatal(err)
	}
	streams = &atomic.Int64{}
	const asked, instead = "retry: 2000\n", "retry: 5\n"
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		ModifyResponse: func(r *http.Response) error {
			if r.Header.Get("Content-Type") != "text/event-stream" {
				return nil
			}
			streams.Add(1)
			head := make([]byte, len(asked))
			if _, err := io.ReadFull(r.Body, head); err != nil || string(head) != asked {
				return fmt.Errorf("the stream begins with %q: %w", head, err)
			}
			few := io.LimitReader(r.Body, rand.Int64N(2000))
			r.Body = struct {
				io.Reader
				io.Closer
			}{io.MultiReader(strings.NewReader(instead), few, breaking{}), r.Body}
			return nil
		},
		ErrorLog:     log.New(io.Discard, "", 0), // of what is on purpose
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	t.Cleanup(server.Close)
	return server.URL, streams
}

type breaking struct{}

func (breaking) Read([]byte) (int, error) { return 0, errors.New("broken on purpose") }

// page reads all events from the beginning, as polling does.
func (s *service) page(t *testing.T) (events []client.Event) {
	t.Helper()
	for after := client.AfterStart; ; {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+"/v1/events?limit=1000&after="+after, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+s.key)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		var page struct {
			Items []client.Event
			Next  string
			More  bool
		}
		err = errors.Join(json.NewDecoder(response.Body).Decode(&page), response.Body.Close())
		if err != nil {
			t.Fatal(err)
		}
		events, after = append(events, page.Items...), page.Next
		if !page.More {
			return events
		}
	}
}

func TestEventsOfAServiceThatDropsEveryStreamHaveNoGapAndNoRepeat(t *testing.T) {
	t.Parallel()
	s := start(t)
	address, streams := brittle(t, s.url)
	c, err := client.New(address, s.key)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	const n = 100
	sending := make(chan string, 1) // the last one's id
	go func() {
		defer close(sending)
		for i := range n {
			r, err := s.Send(ctx, hi)
			if err != nil {
				t.Errorf("send: %v", err)
				return
			}
			if i == n-1 {
				sending <- r.ID
			}
		}
	}()
	var got []client.Event
	ended := map[string]bool{}
	for e, err := range c.Events(ctx, client.EventsOptions{After: client.AfterStart}) {
		if err != nil {
			t.Fatalf("after %d events of %d streams: %v", len(got), streams.Load(), err)
		}
		if got = append(got, e); e.Final {
			ended[e.NotificationID] = true
		}
		if len(ended) == n {
			break
		}
	}
	last, want := <-sending, s.page(t)
	if diff := cmp.Diff(want[:min(len(got), len(want))], got); diff != "" {
		t.Errorf("(-polled +streamed):\n%s", diff)
	}
	if streams.Load() < 20 {
		t.Errorf("only %d streams for %d events", streams.Load(), len(got))
	}
	t.Logf("%d events over %d streams", len(got), streams.Load())

	// Another process goes on behind a cursor, with the events of one notification.
	var one []client.Event
	for _, e := range want {
		if e.NotificationID == last {
			one = append(one, e)
		}
	}
	for e, err := range c.Events(ctx, client.EventsOptions{After: one[0].Cursor, Notification: last}) {
		if diff := cmp.Diff(one[1], e); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		break
	}
}

func TestEventsAreRefusedByTheRealService(t *testing.T) {
	t.Parallel()
	s := start(t)
	for code, o := range map[string]client.EventsOptions{
		"not_found":       {Notification: "0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b"},
		"invalid_request": {Types: []string{"nonsense"}},
	} {
		if got, err := follow(t.Context(), s.Client, o, 1); problem(t, err).Code != code {
			t.Errorf("%v, %v, want %s", got, err, code)
		}
	}
	r, err := s.Send(t.Context(), hi)
	if err != nil {
		t.Fatal(err)
	}
	s.final(t, r.ID)
	first := s.page(t)[0].Cursor
	// As retention leaves it.
	if _, err := s.store.Pool().Exec(t.Context(), "insert into dispatcher.event_horizons (project, id) values ('shop', 1000000)"); err != nil {
		t.Fatal(err)
	}
	if got, err := follow(t.Context(), s.Client, client.EventsOptions{After: first}, 1); !errors.Is(err, client.ErrCursorExpired) {
		t.Errorf("%v, %v, want that the cursor has expired", got, err)
	}
}
