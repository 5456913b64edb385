package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/notification-dispatcher/dispatcher/client"
)

// script answers calls one after the other, without a socket, so that a test's
// clock may run ahead.
type script struct {
	answers []func() (*http.Response, error)
	at      []time.Time
	keys    []string
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	n := len(s.at)
	s.at, s.keys = append(s.at, time.Now()), append(s.keys, r.Header.Get("Idempotency-Key"))
	return s.answers[min(n, len(s.answers)-1)]()
}

func status(code int, body string, header ...string) func() (*http.Response, error) {
	return func() (*http.Response, error) {
		h := http.Header{"Content-Type": {"application/problem+json; charset=utf-8"}}
		for i := 0; i+1 < len(header); i += 2 {
			h.Set(header[i], header[i+1])
		}
		return &http.Response{StatusCode: code, Header: h, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

func broken() (*http.Response, error) { return nil, errors.New("connection reset by peer") }

const acceptance = `{"id":"0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b","status":"queued","chain":[]}`

func scripted(t *testing.T, s *script, options ...client.Option) *client.Client {
	t.Helper()
	c, err := client.New("https://dispatcher.example", "dsp_key", append(options, client.WithHTTPClient(&http.Client{Transport: s}))...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

var hi = client.Notification{To: client.To{SMS: "+14155550100"}, Content: client.Content{Body: "hi"}}

func TestSendRepeatsWhatMayHelpWithTheSameKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &script{answers: []func() (*http.Response, error){
			broken, status(503, `{"code":"unavailable"}`), status(502, "<html>", "Content-Type", "text/html"),
			status(429, `{"code":"rate_limited"}`, "Retry-After", "7"), status(202, acceptance),
		}}
		got, err := scripted(t, s).Send(t.Context(), hi)
		if err != nil || got.ID == "" {
			t.Fatalf("%+v, %v", got, err)
		}
		if len(s.at) != 5 {
			t.Fatalf("called %d times, want 5", len(s.at))
		}
		if wait := s.at[4].Sub(s.at[3]); wait < 7*time.Second {
			t.Errorf("called again after %v, though asked for 7s", wait)
		}
		for _, key := range s.keys {
			if key != s.keys[0] || len(key) < 20 {
				t.Errorf("keys %q, want one for all tries", s.keys)
			}
		}
	})
}

func TestSendMakesANewKeyForEachNotificationAndKeepsTheCallers(t *testing.T) {
	t.Parallel()
	s := &script{answers: []func() (*http.Response, error){status(202, acceptance)}}
	c := scripted(t, s)
	mine := hi
	mine.IdempotencyKey = `order "1"`
	for _, n := range []client.Notification{hi, hi, mine} {
		if _, err := c.Send(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	if s.keys[0] == s.keys[1] || s.keys[2] != `"order \"1\""` {
		t.Errorf("keys %q", s.keys)
	}
	mine.IdempotencyKey = "with\nbreak"
	if _, err := c.Send(t.Context(), mine); err == nil || len(s.keys) != 3 {
		t.Errorf("a key with a line break: %v after %d calls", err, len(s.keys))
	}
}

func TestSendNeverRepeatsARefusal(t *testing.T) {
	t.Parallel()
	for _, code := range []int{400, 401, 403, 404, 408, 409, 413, 422, 500} {
		s := &script{answers: []func() (*http.Response, error){status(code,
			`{"code":"invalid_request","detail":"The request has 1 problem.","errors":[{"pointer":"/to/sms","code":"format","detail":"must be E.164"}]}`)}}
		_, err := scripted(t, s).Send(t.Context(), hi)
		p, ok := errors.AsType[*client.Problem](err)
		if !ok || len(s.at) != 1 {
			t.Fatalf("%d: %v after %d calls, want a problem after 1", code, err, len(s.at))
		}
		if p.Status != code || p.Code != "invalid_request" || len(p.Errors) != 1 || p.Errors[0].Pointer != "/to/sms" {
			t.Errorf("%d: %+v", code, p)
		}
		if strings.Contains(p.Error(), "+1415") || !strings.Contains(p.Error(), "/to/sms must be E.164") {
			t.Errorf("says %q", p)
		}
	}
}

func TestSendGivesUpAfterItsAttemptsAndWithinItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		down := func() *script { return &script{answers: []func() (*http.Response, error){broken}} }
		s := down()
		if _, err := scripted(t, s, client.WithAttempts(3)).Send(t.Context(), hi); err == nil || len(s.at) != 3 {
			t.Errorf("%v after %d calls, want an error after 3", err, len(s.at))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began := time.Now()
		s = down()
		_, err := scripted(t, s, client.WithAttempts(1000)).Send(ctx, hi)
		if took := time.Since(began); err == nil || took > 5*time.Second || len(s.at) < 4 {
			t.Errorf("%v after %v and %d calls", err, took, len(s.at))
		}
		if strings.Contains(err.Error(), "deadline") {
			t.Errorf("says %q, want what is wrong", err)
		}
		// A wait that outlasts the context is not begun.
		s = &script{answers: []func() (*http.Response, error){status(429, `{"code":"rate_limited"}`, "Retry-After", "3600")}}
		began = time.Now()
		_, err = scripted(t, s).Send(ctx, hi)
		p, ok := errors.AsType[*client.Problem](err)
		if !ok || p.RetryAfter != time.Hour || time.Since(began) > 0 {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestNewRefusesWhatIsNoService(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, key string }{
		{"dispatcher.example", "k"},
		{"ftp://dispatcher.example", "k"},
		{"https://u:secret@dispatcher.example", "k"},
		{"https://dispatcher.example", ""},
		{"https://dispatcher.example", "a\r\nb"},
	} {
		_, err := client.New(c.url, c.key)
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", c.url, err)
		}
	}
}

func TestErrorsDoNotRepeatTheQuery(t *testing.T) {
	t.Parallel()
	s := &script{answers: []func() (*http.Response, error){broken}}
	for _, err := range scripted(t, s, client.WithAttempts(1)).List(t.Context(), client.Filter{Recipient: "+14155550100"}) {
		if err == nil || strings.Contains(err.Error(), "4155550100") {
			t.Errorf("says %v", err)
		}
	}
}
