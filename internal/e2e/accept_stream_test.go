//go:build unix

package e2e_test

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

	"github.com/google/go-cmp/cmp"

	dispatcher "github.com/notification-dispatcher/dispatcher/client"
)

// brittle stands before nodes, sends each request to the next one, and kills every
// stream after a few bytes, not caring where an event ends. So that a test has time
// for many, it asks for hardly any pause.
type brittle struct {
	url    string
	most   int64 // how many bytes a stream brings
	killed atomic.Int64
}

func newBrittle(t *testing.T, nodes []*node, most int64) *brittle {
	t.Helper()
	var targets []*url.URL
	for _, n := range nodes {
		u, err := url.Parse(n.url)
		if err != nil {
			t.Fatal(err)
		}
		targets = append(targets, u)
	}
	b := &brittle{most: most}
	var next atomic.Int64
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:        func(r *httputil.ProxyRequest) { r.SetURL(targets[int(next.Add(1))%len(targets)]) },
		ModifyResponse: b.cut,
		ErrorLog:       log.New(io.Discard, "", 0), // of what is on purpose
	})
	t.Cleanup(server.Close)
	b.url = server.URL
	return b
}

func (b *brittle) cut(r *http.Response) error {
	if r.Header.Get("Content-Type") != "text/event-stream" {
		return nil
	}
	const asked, instead = "retry: 2000\n", "retry: 5\n"
	head := make([]byte, len(asked))
	if _, err := io.ReadFull(r.Body, head); err != nil || string(head) != asked {
		return fmt.Errorf("the stream begins with %q: %w", head, err)
	}
	few := io.LimitReader(r.Body, 50+rand.Int64N(b.most))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(strings.NewReader(instead), few, b), r.Body}
	return nil
}

// Read implements [io.Reader]: it breaks the stream.
func (b *brittle) Read([]byte) (int, error) {
	b.killed.Add(1)
	return 0, errors.New("killed on purpose")
}

// polled reads all events from the beginning, page by page.
func (n *node) polled(t *testing.T) (events []dispatcher.Event) {
	t.Helper()
	for after := "start"; ; {
		got, err := n.call(t, http.MethodGet, "/v1/events?limit=1000&after="+after, "", nil)
		if err != nil {
			t.Fatal(err)
		}
		var page struct {
			Items []dispatcher.Event
			Next  string
			More  bool
		}
		if err := json.Unmarshal(got.body, &page); err != nil || got.status != http.StatusOK {
			t.Fatalf("a page of events is %d %s: %v", got.status, got.body, err)
		}
		events, after = append(events, page.Items...), page.Next
		if !page.More {
			return events
		}
	}
}

func TestAStreamThatIsKilledFiftyTimesUnderLoadBringsEveryEventOnce(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick)
	nodes := c.three(t)
	n := notifications(t, 300)
	proxy := newBrittle(t, nodes, int64(600+4*n)) // some 150 streams for two events each
	reader, err := dispatcher.New(proxy.url, c.key)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	events := make(chan dispatcher.Event, 100)
	go func() {
		defer close(events)
		for e, err := range reader.Events(ctx, dispatcher.EventsOptions{After: dispatcher.AfterStart}) {
			if err != nil {
				if ctx.Err() == nil {
					t.Errorf("the events end: %v", err)
				}
				return
			}
			select {
			case events <- e:
			case <-ctx.Done():
			}
		}
	}()
	l := begin(t, nodes, 0, n, c.message)
	var got []dispatcher.Event
	ended := map[string]bool{}
	for e := range events {
		got = append(got, e)
		if e.Final {
			ended[e.NotificationID] = true
		}
		if len(ended) == n {
			break
		}
	}
	cancel()
	for range events {
	}
	l.wait(t)
	if len(ended) != n {
		t.Fatalf("%d notifications were seen to end, want %d", len(ended), n)
	}
	if killed := proxy.killed.Load(); killed < 50 {
		t.Errorf("only %d streams were killed", killed)
	}
	// Every node tells the same, and events that came later follow.
	want := nodes[0].polled(t)
	if diff := cmp.Diff(want[:min(len(got), len(want))], got); diff != "" {
		t.Errorf("(-polled +streamed):\n%s", diff)
	}
	if stored := c.count(t, "select count(*) from dispatcher.events"); stored != len(want) {
		t.Errorf("polling brings %d events, and %d are stored", len(want), stored)
	}
	t.Logf("%d events of %d notifications, %d streams killed", len(got), n, proxy.killed.Load())
}
