package twilio

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// poll asks a Twilio that gives one answer for messageSID.
func poll(t *testing.T, status int, header http.Header, body string) (channels.Receipt, channels.Result) {
	t.Helper()
	calls := 0
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		calls++
		user, password, _ := r.BasicAuth()
		if got, want := r.Method+" "+r.RequestURI, "GET /2010-04-01/Accounts/"+testSID+"/Messages/"+messageSID+".json"; got != want || user != testSID || password != testToken {
			t.Errorf("call %s as %s", got, user)
		}
		maps.Copy(w.Header(), header)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	defer srv.Close()
	r, result := client(t, func(a *Account) { a.BaseURL = srv.URL }).Poll(t.Context(), messageSID)
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
	channeltest.CheckResult(t, result, []string{ana, text, testToken})
	return r, result
}

func TestPollTellsWhatBecameOfAMessage(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 30, 16, 8, 0, 0, time.UTC)
	resource := func(status, code string) string {
		return strings.NewReplacer(`"status":"queued"`, `"status":"`+status+`"`, `"error_code":null`, `"error_code":`+code,
			`"date_updated":"`, `"date_updated":"`+at.Format(time.RFC1123Z)+`","date_x":"`).Replace(listed(messageSID, 0))
	}
	for _, c := range []struct {
		status, code string
		want         channels.Receipt
	}{
		{"accepted", "null", channels.Receipt{}},
		{"scheduled", "null", channels.Receipt{}},
		{"queued", "null", channels.Receipt{}},
		{"sending", "null", channels.Receipt{}},
		{"sent", "null", channels.Receipt{}},
		{"teleported", "null", channels.Receipt{}},
		{"delivered", "null", channels.Receipt{Status: notify.Delivered}},
		{"read", "null", channels.Receipt{Status: notify.Read}},
		{"undelivered", "30003", channels.Receipt{Status: notify.Failed, Outcome: notify.RecipientUnavailable, Code: "30003", Detail: "handset unreachable"}},
		{"failed", "30007", channels.Receipt{Status: notify.Failed, Outcome: notify.MessageRejected, Code: "30007", Detail: "filtered as spam or against a carrier's rules"}},
		{"failed", "21610", channels.Receipt{Status: notify.Failed, Outcome: notify.Suppressed, Suppress: true, Code: "21610", Detail: "recipient opted out"}},
		{"failed", "null", channels.Receipt{Status: notify.Failed, Outcome: notify.MessageRejected, Detail: "message failed, and twilio does not say why"}},
		{"canceled", "null", channels.Receipt{Status: notify.Failed, Outcome: notify.MessageRejected, Detail: "message was canceled at twilio"}},
	} {
		t.Run(c.status+" "+c.code, func(t *testing.T) {
			t.Parallel()
			got, call := poll(t, http.StatusOK, nil, resource(c.status, c.code))
			if c.want.Status != "" {
				c.want.MessageID, c.want.At = messageSID, at
				channeltest.CheckReceipt(t, got, []string{ana, text})
			}
			if !got.At.Equal(c.want.At) {
				t.Errorf("at %v, want %v", got.At, c.want.At)
			}
			got.At = c.want.At
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("receipt (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(channels.Result{Outcome: notify.Accepted, HTTPStatus: http.StatusOK}, call); diff != "" {
				t.Errorf("call (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPollThatGetsNoMessageTellsNothing(t *testing.T) {
	t.Parallel()
	refusal := func(code int) string {
		return fmt.Sprintf(`{"code":%d,"message":"about %s","status":400}`, code, ana)
	}
	for _, c := range []struct {
		name   string
		status int
		header http.Header
		body   string
		want   channels.Result
	}{
		{"429", 429, http.Header{"Retry-After": {"7"}}, refusal(20429), channels.Result{Outcome: notify.Throttled, RetryAfter: 7 * time.Second, Code: "20429"}},
		// A key may be good for sending and not for reading.
		{"401", 401, nil, refusal(20003), channels.Result{Outcome: notify.MessageRejected, Code: "20003"}},
		{"404", 404, nil, refusal(20404), channels.Result{Outcome: notify.MessageRejected, Code: "20404"}},
		{"500", 500, nil, refusal(20500), channels.Result{Outcome: notify.ProviderUnavailable, Code: "20500"}},
		{"503", 503, nil, "<html>", channels.Result{Outcome: notify.ProviderUnavailable}},
		{"302", 302, nil, "", channels.Result{Outcome: notify.ProviderUnavailable}},
		{"another message", 200, nil, listed("SM1", 0), channels.Result{Outcome: notify.Unknown}},
		{"no message", 200, nil, `{}`, channels.Result{Outcome: notify.Unknown}},
		{"a page", 200, nil, "<html>" + ana, channels.Result{Outcome: notify.Unknown}},
		{"half a message", 200, http.Header{"Content-Length": {"1000"}}, listed(messageSID, 0), channels.Result{Outcome: notify.Unknown}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, call := poll(t, c.status, c.header, c.body)
			if got != (channels.Receipt{}) {
				t.Errorf("receipt %+v", got)
			}
			c.want.HTTPStatus, c.want.Detail = c.status, call.Detail
			if diff := cmp.Diff(c.want, call); diff != "" {
				t.Errorf("call (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPollEndsWithItsContext(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer srv.Close()
	defer close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	got, call := client(t, func(a *Account) { a.BaseURL = srv.URL }).Poll(ctx, messageSID)
	if got != (channels.Receipt{}) || call.Outcome == notify.Accepted || call.HTTPStatus != 0 {
		t.Errorf("receipt %+v, call %+v", got, call)
	}
}

func TestNothingIsAskedAboutAnIDThatIsNone(t *testing.T) {
	c := &Client{sid: testSID, base: "http://127.0.0.1:1", credentials: Account{AuthToken: secret.New("x")}.credentials}
	for _, id := range []string{"", "../x?", "\n", strings.Repeat("x", 65), ana} {
		if r, call := c.Poll(t.Context(), id); r != (channels.Receipt{}) || call.Outcome != notify.NotAttempted {
			t.Errorf("%q: receipt %+v, call %+v", id, r, call)
		}
	}
}
