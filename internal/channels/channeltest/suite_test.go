package channeltest_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const toyKey = "toy-key-4711"

// toy is a provider for a vendor that has the key in its URL and answers 201
// {"id":…}. A flaw, if any, makes it one of the adapters that the suite is there
// to find.
type toy struct {
	url, flaw string
	client    *http.Client
}

func (p *toy) Info() channels.Info {
	return channels.Info{Account: "toy-main", Channel: notify.SMS, Provider: "toy", MaxObservable: notify.Sent}
}

func (p *toy) Send(ctx context.Context, m *channels.Message) channels.Result {
	if ctx.Err() != nil && p.flaw == "calls under a canceled context" {
		ctx = context.WithoutCancel(ctx)
	}
	r := p.once(ctx, m)
	if p.flaw == "retries" && r.HTTPStatus >= 500 {
		r = p.once(ctx, m)
	}
	return r
}

func (p *toy) once(ctx context.Context, m *channels.Message) channels.Result {
	body, _ := json.Marshal(map[string]string{"to": m.To.Phone, "text": m.Content.SMSText()})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/keys/"+toyKey+"/messages", bytes.NewReader(body))
	if err != nil {
		return channels.Result{Outcome: notify.MessageRejected}
	}
	if p.flaw == "lets net/http replay" {
		req.Header.Set("Idempotency-Key", m.Key.String())
	}
	x := channels.Do(p.client, req)
	if p.flaw == "prints the error" && x.Err != nil {
		return channels.Result{Outcome: channels.Transport(ctx, x.Err, x.Wrote).Outcome, Detail: x.Err.Error()}
	}
	return p.classify(ctx, x)
}

func (p *toy) classify(ctx context.Context, x channels.Exchange) channels.Result {
	var v struct {
		ID      string `json:"id"`
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	parsed := x.Err == nil && json.Unmarshal(x.Body, &v) == nil
	switch {
	case x.Status == http.StatusCreated && (parsed && v.ID != "" || p.flaw == "takes any success"):
		return channels.Ok(v.ID)
	case x.Status == http.StatusBadRequest && parsed && v.Code == "bad_number":
		return channels.Result{Outcome: notify.RecipientRejected, HTTPStatus: x.Status, Code: v.Code, Suppress: true}
	}
	r := x.Default(ctx, true)
	if parsed {
		r.Code = channels.Code(v.Code)
	}
	if p.flaw == "keeps the vendor's text" {
		r.Detail = v.Message
	}
	if p.flaw == "drops Retry-After" {
		r.RetryAfter = 0
	}
	if p.flaw == "takes a lost answer for a refused call" && x.Status == 0 {
		r.Outcome = notify.ProviderUnavailable
	}
	return r
}

func toySuite(flaw string) channeltest.Suite {
	return channeltest.Suite{
		New: func(t *testing.T, baseURL string) channels.Provider {
			t.Helper()
			p := &toy{url: baseURL, flaw: flaw, client: channels.NewHTTPClient(8)}
			if flaw == "follows redirects" {
				p.client.CheckRedirect = nil
			}
			t.Cleanup(p.client.CloseIdleConnections)
			return p
		},
		Message: func(string) *channels.Message {
			return &channels.Message{
				Key:     uuid.MustParse("0193b0c0-0000-7000-8000-000000000001"),
				To:      notify.Target{Phone: "+14155550100"},
				Content: notify.Content{Title: "Deploy failed", Body: "3 of 5 pods are down"},
			}
		},
		Accept: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, `{"id":"m-1"}`)
		},
		Want:      channels.Result{Outcome: notify.Accepted, Status: notify.Sent, MessageID: "m-1"},
		Ambiguous: true,
		Secrets:   []string{toyKey},
		Table: []channeltest.Case{
			{
				Name: "bad number", Status: 400, Body: `{"code":"bad_number","message":"no such number"}`,
				Want: channels.Result{Outcome: notify.RecipientRejected, HTTPStatus: 400, Code: "bad_number", Suppress: true},
			},
			{Name: "bad key", Status: 401, Want: channels.Result{Outcome: notify.AccountRejected}},
		},
	}
}

// TestSuite runs the suite against the toy: the sound one, or in a process that
// [TestSuiteFindsFlaws] starts, one with a flaw.
func TestSuite(t *testing.T) {
	channeltest.Run(t, toySuite(os.Getenv("CHANNELTEST_FLAW")))
}

func TestSuiteOverHTTP2(t *testing.T) {
	s := toySuite("")
	s.New = func(t *testing.T, baseURL string) channels.Provider {
		t.Helper()
		tr := &http.Transport{Protocols: new(http.Protocols)}
		tr.Protocols.SetUnencryptedHTTP2(true)
		t.Cleanup(tr.CloseIdleConnections)
		return &toy{url: baseURL, client: &http.Client{
			Transport:     tr,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}}
	}
	channeltest.Run(t, s)
}

func TestSuiteFindsFlaws(t *testing.T) { //nolint:tparallel // its children are processes
	if os.Getenv("CHANNELTEST_FLAW") != "" {
		t.Skip("inside the run with a flaw")
	}
	for flaw, check := range map[string]string{
		"takes any success":                      "asks_for_proof_of_success",
		"retries":                                "classifies_server_errors",
		"follows redirects":                      "does_not_follow_redirects",
		"calls under a canceled context":         "makes_no_call_under_a_canceled_context",
		"keeps the vendor's text":                "does_not_repeat_what_a_vendor_echoes",
		"prints the error":                       "reports_a_refused_connection",
		"drops Retry-After":                      "reads_Retry-After",
		"takes a lost answer for a refused call": "reports_a_connection_closed_after_the_request",
		"lets net/http replay":                   "reports_a_connection_closed_after_the_request",
	} {
		t.Run(flaw, func(t *testing.T) {
			t.Parallel()
			out := runFlawed(t, "TestSuite", flaw)
			if want := fmt.Sprintf("--- FAIL: TestSuite/%s ", check); !strings.Contains(out, want) {
				t.Errorf("the suite passed over it; want %q in\n%s", want, out)
			}
		})
	}
}

func runFlawed(t *testing.T, test, flaw string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), "CHANNELTEST_FLAW="+flaw)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("the suite passes a provider that %s", flaw)
	}
	return string(out)
}
