package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/client"
)

// feed answers connections one after the other with streams, without a socket.
// The last answer repeats.
type feed struct {
	answers []func(r *http.Request) (*http.Response, error)
	at      []time.Time
	last    []string // Last-Event-ID of each
	urls    []string
}

func (f *feed) RoundTrip(r *http.Request) (*http.Response, error) {
	n := len(f.at)
	f.at, f.last, f.urls = append(f.at, time.Now()), append(f.last, r.Header.Get("Last-Event-ID")), append(f.urls, r.URL.String())
	if accept := r.Header.Get("Accept"); !strings.HasPrefix(accept, "text/event-stream") {
		return nil, fmt.Errorf("accept %q", accept)
	}
	return f.answers[min(n, len(f.answers)-1)](r)
}

// gaps are the times between connections.
func (f *feed) gaps() (out []time.Duration) {
	for i := 1; i < len(f.at); i++ {
		out = append(out, f.at[i].Sub(f.at[i-1]))
	}
	return out
}

// body brings its text and then stays open until the request ends, or breaks.
type body struct {
	io.Reader
	ctx   context.Context
	after error // nil stays open
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if n > 0 || !errors.Is(err, io.EOF) {
		return n, err
	}
	if b.after == nil {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	return 0, b.after
}

func (*body) Close() error { return nil }

func streaming(text string, after error) func(*http.Request) (*http.Response, error) {
	return func(r *http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/event-stream"}},
			Body: &body{strings.NewReader(text), r.Context(), after},
		}, nil
	}
}

func refusing(code int, text string, header ...string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return status(code, text, header...)() }
}

func failing(*http.Request) (*http.Response, error) { return broken() }

// sent is an event as the service writes it.
func sent(cursor string) string {
	return "id: " + cursor + "\nevent: sent\ndata: {\"id\":\"" + cursor + "\",\"type\":\"sent\"}\n\n"
}

var errReset = errors.New("connection reset by peer")

func (f *feed) client(t *testing.T, options ...client.Option) *client.Client {
	t.Helper()
	// Its timeout is far shorter than the streams last.
	c, err := client.New("https://dispatcher.example/base", "dsp_key", append(options, client.WithHTTPClient(&http.Client{Transport: f, Timeout: time.Second}))...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// follow reads so many events, or until the error that ends them.
func follow(ctx context.Context, c *client.Client, o client.EventsOptions, most int) (cursors []string, err error) {
	for e, err := range c.Events(ctx, o) {
		if err != nil {
			return cursors, err
		}
		if cursors = append(cursors, e.Cursor); len(cursors) == most {
			break
		}
	}
	return cursors, nil
}

func TestEventsTakeUpABrokenStreamWhereItWas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &feed{answers: []func(*http.Request) (*http.Response, error){
			failing, // not even open
			streaming("retry: 3000\n:\nid: p\n\n"+sent("a")+strings.TrimSuffix(sent("b"), "\n"), errReset), // b is not whole
			refusing(503, `{"code":"unavailable"}`, "Retry-After", "20"),
			refusing(429, `{"code":"too_many_streams"}`, "Retry-After", "5"),
			failing, failing, failing, failing, failing, failing, failing, failing, // an outage that lasts
			streaming("retry: 50\n\n"+sent("b")+":\nid: q\n\n", io.EOF),
			streaming(sent("c"), nil),
		}}
		var passed []string
		got, err := follow(t.Context(), f.client(t), client.EventsOptions{
			After: client.AfterStart, Passed: func(cursor string) { passed = append(passed, cursor) },
		}, 3)
		if diff := cmp.Diff([]string{"a", "b", "c"}, got); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
		if diff := cmp.Diff([]string{"p", "q"}, passed); diff != "" {
			t.Errorf("passed (-want +got):\n%s", diff)
		}
		last := []string{"", "", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "a", "q"}
		if diff := cmp.Diff(last, f.last); diff != "" {
			t.Errorf("Last-Event-ID (-want +got):\n%s", diff)
		}
		for i, limit := range []struct{ least, most time.Duration }{
			{100 * time.Millisecond, 200 * time.Millisecond}, // as before any try of a call
			{3 * time.Second, 4500 * time.Millisecond},       // what the stream asked for, and jitter
			{20 * time.Second, 20 * time.Second},             // Retry-After
			{5 * time.Second, 5 * time.Second},
			{3 * time.Second, 3 * time.Second}, // a backoff that is never below what was asked for
			{3 * time.Second, 3 * time.Second},
			{3 * time.Second, 3200 * time.Millisecond},
			{3200 * time.Millisecond, 6400 * time.Millisecond},
			{5 * time.Second, 10 * time.Second},
			{5 * time.Second, 10 * time.Second},
			{5 * time.Second, 10 * time.Second},
			{5 * time.Second, 10 * time.Second},
			{50 * time.Millisecond, 76 * time.Millisecond},
		} {
			if gap := f.gaps()[i]; gap < limit.least || gap > limit.most {
				t.Errorf("connection %d came after %s, want %s to %s", i+1, gap, limit.least, limit.most)
			}
		}
	})
}

func TestEventsEndWithTheRefusal(t *testing.T) {
	t.Parallel()
	opened := streaming("retry: 0\n:\nid: p\n\n"+sent("a"), io.EOF)
	tests := []struct {
		name    string
		answers []func(*http.Request) (*http.Response, error)
		calls   int
		code    string // of the problem
		expired bool
	}{
		{"a cursor that has expired", []func(*http.Request) (*http.Response, error){refusing(410, `{"code":"cursor_expired"}`)}, 1, "cursor_expired", true},
		{"a cursor that expires meanwhile", []func(*http.Request) (*http.Response, error){opened, refusing(410, `{"code":"cursor_expired"}`)}, 2, "cursor_expired", true},
		{"a key that is revoked", []func(*http.Request) (*http.Response, error){opened, refusing(401, `{"code":"unauthorized"}`)}, 2, "unauthorized", false},
		{"a service that never opens", []func(*http.Request) (*http.Response, error){refusing(503, `{"code":"unavailable"}`)}, 3, "unavailable", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &feed{answers: tt.answers}
				_, err := follow(t.Context(), f.client(t, client.WithAttempts(3)), client.EventsOptions{After: "x"}, 9)
				if p := problem(t, err); p.Code != tt.code || errors.Is(err, client.ErrCursorExpired) != tt.expired || len(f.at) != tt.calls {
					t.Errorf("after %d calls: %v", len(f.at), err)
				}
			})
		})
	}
}

func TestEventsEndWhereTheAnswerIsNoStreamOfEvents(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*http.Request) (*http.Response, error){
		"a page":     refusing(200, "<html>", "Content-Type", "text/html"),
		"no JSON":    streaming("data: hello\n\n", nil),
		"no cursor":  streaming("data: {\"type\":\"sent\"}\n\n", nil),
		"a long row": streaming("data: "+strings.Repeat("x", 2<<20), nil),
		"many rows":  streaming(strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", 2000), nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &feed{answers: []func(*http.Request) (*http.Response, error){answer}}
			if got, err := follow(t.Context(), f.client(t), client.EventsOptions{}, 1); err == nil || len(f.at) != 1 {
				t.Errorf("%v, %v after %d calls", got, err, len(f.at))
			}
		})
	}
}

func TestEventsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]func(*http.Request) (*http.Response, error){
		"in a quiet stream": streaming("retry: 0\n:\nid: p\n\n", nil),
		"in a wait":         refusing(503, `{"code":"unavailable"}`, "Retry-After", "600"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := &feed{answers: []func(*http.Request) (*http.Response, error){answer}}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				begun := time.Now()
				if _, err := follow(ctx, f.client(t), client.EventsOptions{}, 1); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) != 10*time.Second {
					t.Errorf("after %s: %v", time.Since(begun), err)
				}
			})
		})
	}
}

func TestAStreamThatFallsSilentIsOpenedAgainAndASlowReaderIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &feed{answers: []func(*http.Request) (*http.Response, error){
			streaming("retry: 1000\n\n"+sent("a")+sent("b"), nil), streaming(sent("c"), nil),
		}}
		var got []string
		for e, err := range f.client(t).Events(t.Context(), client.EventsOptions{}) {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, e.Cursor); e.Cursor == "c" {
				break
			}
			time.Sleep(10 * time.Minute) // the test's clock
		}
		if diff := cmp.Diff([]string{"a", "b", "c"}, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if gap := f.gaps()[0] - 20*time.Minute; len(f.at) != 2 || gap < 46*time.Second || gap > 47*time.Second {
			t.Errorf("%d connections, the second %s after the last event was dealt with, want 45 s and the pause", len(f.at), gap)
		}
	})
}

// The rules are those of WHATWG HTML, section 9.2.6.
func TestBlocksAreReadAsTheStandardSays(t *testing.T) {
	t.Parallel()
	const data = `{"id":"a","because":"x"}`
	for name, text := range map[string]string{
		"usual":                      "id: a\nevent: sent\ndata: " + data + "\n\n",
		"CRLF":                       "id: a\r\ndata: " + data + "\r\n\r\n",
		"CR":                         "id: a\rdata: " + data + "\r\r",
		"byte order mark":            "\ufeffdata: " + data + "\n\n",
		"no space":                   "data:" + data + "\n\n",
		"data on several lines":      "data: {\"id\":\"a\",\ndata:\ndata: \"because\":\"x\"}\n\n",
		"comments and unknown names": ": hi\n\ncolour: red\nretry: soon\nid\ndata: " + data + "\n\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := &feed{answers: []func(*http.Request) (*http.Response, error){streaming(text, nil)}}
			for e, err := range f.client(t).Events(t.Context(), client.EventsOptions{}) {
				if err != nil || e.Cursor != "a" || e.Because != "x" {
					t.Errorf("%+v, %v", e, err)
				}
				break
			}
		})
	}
}

func TestEventsAskForWhatIsWanted(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]client.EventsOptions{
		"https://dispatcher.example/base/v1/events":                                             {},
		"https://dispatcher.example/base/v1/events?after=x&final=true&types=sent%2Cfailed":      {After: "x", Types: []string{"sent", "failed"}, Final: true},
		"https://dispatcher.example/base/v1/notifications/0193/events?after=now":                {Notification: "0193", After: client.AfterNow},
		"https://dispatcher.example/base/v1/notifications/..%2F..%2Fkeys%3Fa/events?final=true": {Notification: "../../keys?a", Final: true},
	} {
		f := &feed{answers: []func(*http.Request) (*http.Response, error){streaming(sent("a"), nil)}}
		if _, err := follow(t.Context(), f.client(t), o, 1); err != nil || f.urls[0] != want {
			t.Errorf("%s, %v, want %s", f.urls[0], err, want)
		}
	}
}
