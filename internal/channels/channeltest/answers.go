package channeltest

import (
	"fmt"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const htmlPage = "<!DOCTYPE html>\n<html><head><title>Error</title></head><body><h1>Sorry</h1></body></html>\n"

func (s Suite) checkInfo(t *testing.T) {
	g := newRig(t, s, s.Accept)
	info := g.provider.Info()
	if info.Account == "" || info.Provider == "" || !info.Channel.Valid() {
		t.Errorf("info %+v lacks an account, a provider or a channel", info)
	}
	switch info.MaxObservable {
	case notify.Sent, notify.Delivered, notify.Read:
	default:
		t.Errorf("max observable is %q, want sent, delivered or read", info.MaxObservable)
	}
	m := s.Message(g.url)
	if c, ok := g.provider.(channels.Checker); ok {
		if err := c.Check(m); err != nil {
			t.Errorf("Check refuses the suite's message: %v", err)
		}
	}
	if sc, ok := g.provider.(channels.Scoper); ok {
		for _, scope := range sc.Scopes(m.To) {
			CheckResult(t, channels.Result{Outcome: notify.Throttled, Scope: scope}, append(MessageSecrets(m), s.Secrets...))
		}
	}
}

func (s Suite) checkAccept(t *testing.T) {
	g := newRig(t, s, s.Accept)
	for range 2 { // the second on a connection that has been used
		compare(t, g.send(t.Context(), t, 1), s.Want)
	}
}

func (s Suite) checkTable(t *testing.T) {
	for _, c := range s.Table {
		t.Run(c.Name, func(t *testing.T) {
			g := newRig(t, s, answer(c.Status, c.Header, c.Body))
			message := s.Message
			if c.Message != nil {
				message = c.Message
			}
			want := c.Want
			if c.Scope != nil {
				want.Scope = c.Scope(g.url)
			}
			compare(t, g.sendMessage(t.Context(), t, message(g.url), 1), want)
		})
	}
}

func (s Suite) checkProof(t *testing.T) {
	ok, half := s.acceptance(t)
	bodies := map[string]string{"empty body": "", "empty object": "{}", "html": htmlPage, "other json": `["ok",null,1]`}
	if half != "" {
		bodies["truncated body"] = half
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, s, answer(ok, nil, body))
			wantOutcome(t, g.send(t.Context(), t, 1), s.unproven())
		})
	}
}

func (s Suite) checkServerErrors(t *testing.T) {
	bodies := map[string]string{"html": htmlPage, "empty": "", "truncated json": `{"error":{"code":`}
	for _, status := range []int{500, 502, 503, 504} {
		for name, body := range bodies {
			t.Run(fmt.Sprintf("%d %s", status, name), func(t *testing.T) {
				r := newRig(t, s, answer(status, nil, body)).send(t.Context(), t, 1)
				wantOutcome(t, r, s.serverError(status))
				if r.HTTPStatus != status {
					t.Errorf("http status %d, want %d", r.HTTPStatus, status)
				}
			})
		}
	}
}

func (s Suite) checkRetryAfter(t *testing.T) {
	const far = 90 * time.Second
	forms := []struct {
		name   string
		header func() http.Header
		want   time.Duration
	}{
		{"seconds", func() http.Header { return http.Header{"Retry-After": {"90"}} }, far},
		{"date", func() http.Header {
			now := time.Now().UTC()
			return http.Header{"Date": {now.Format(http.TimeFormat)}, "Retry-After": {now.Add(far).Format(http.TimeFormat)}}
		}, far},
		{"garbage", func() http.Header { return http.Header{"Retry-After": {"soon"}} }, 0},
		{"absent", func() http.Header { return nil }, 0},
	}
	for _, status := range []int{429, 503} {
		for _, form := range forms {
			t.Run(strconv.Itoa(status)+" "+form.name, func(t *testing.T) {
				g := newRig(t, s, func(w http.ResponseWriter, r *http.Request) {
					answer(status, form.header(), "")(w, r)
				})
				r := g.send(t.Context(), t, 1)
				if status == http.StatusTooManyRequests {
					wantOutcome(t, r, notify.Throttled)
				} else {
					wantOutcome(t, r, s.serverError(status), notify.Throttled)
				}
				// A date has whole seconds, and the clock goes on.
				if d := form.want - r.RetryAfter; d < 0 || d > 5*time.Second || form.want == 0 && d != 0 {
					t.Errorf("retry after %v, want %v", r.RetryAfter, form.want)
				}
			})
		}
	}
}

func (s Suite) checkRedirects(t *testing.T) {
	for _, status := range []int{301, 302, 303, 307, 308} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			g := newRig(t, s, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/elsewhere" {
					s.Accept(w, r)
					return
				}
				w.Header().Set("Location", "/elsewhere")
				w.WriteHeader(status)
			})
			r := g.send(t.Context(), t, 1)
			if r.Outcome == notify.Accepted || r.Outcome == notify.NotAttempted {
				t.Errorf("outcome %q of a redirect", r.Outcome)
			}
		})
	}
}

// checkEcho: whatever part of the answer an adapter keeps, it must not be one
// that repeats the request: its key, its address, its text.
func (s Suite) checkEcho(t *testing.T) {
	wraps := map[string]func(dump string) any{
		"text": func(d string) any {
			return map[string]any{"ok": false, "code": "bad_request", "status": "failed", "error": "bad_request", "message": d, "detail": d, "description": d}
		},
		"message": func(d string) any {
			return map[string]any{
				"ok": false, "code": 99999, "status": 400, "message": d, "detail": d, "reason": d, "title": d, "more_info": d,
				"error": map[string]any{"code": 99999, "message": d, "status": "INVALID_ARGUMENT", "error_data": map[string]any{"details": d}},
			}
		},
		"error text": func(d string) any { return map[string]any{"ok": false, "error": d, "errors": []string{d}} },
		"error codes": func(d string) any {
			return map[string]any{"code": d, "reason": d, "error": map[string]any{"code": 400, "status": d}}
		},
	}
	for _, status := range []int{200, 400, 403, 404, 500} {
		for name, wrap := range wraps {
			t.Run(fmt.Sprintf("%d %s", status, name), func(t *testing.T) {
				newRig(t, s, func(w http.ResponseWriter, r *http.Request) {
					b, err := json.Marshal(wrap(dump(r)))
					if err != nil {
						panic(err)
					}
					answer(status, nil, string(b))(w, r)
				}).send(t.Context(), t, 1)
			})
		}
		t.Run(fmt.Sprintf("%d plain text", status), func(t *testing.T) {
			newRig(t, s, func(w http.ResponseWriter, r *http.Request) {
				answer(status, http.Header{"X-Error": {r.URL.String()}}, dump(r))(w, r)
			}).send(t.Context(), t, 1)
		})
	}
}

// dump is the request as text.
func dump(r *http.Request) string {
	b, err := httputil.DumpRequest(r, true)
	if err != nil {
		return r.URL.String()
	}
	return strings.ToValidUTF8(string(b), "?")
}
