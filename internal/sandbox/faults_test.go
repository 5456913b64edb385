package sandbox_test

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

func TestTheFirstRuleThatMatchesCountsDown(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	setFaults(
		t, s,
		sandbox.Rule{Provider: "twilio", To: "+14155550100", Times: 2, Answer: sandbox.RuleAnswer{Status: 429, Headers: map[string]string{"Retry-After": "2"}}},
		sandbox.Rule{Provider: "twilio", To: "*", Times: 1, Answer: sandbox.RuleAnswer{Status: 503}},
		sandbox.Rule{Provider: "meta", Answer: sandbox.RuleAnswer{Status: 500}},
	)
	for i, want := range []struct {
		to     string
		status int
	}{
		{"+14155550100", 429},
		{"+14155550199", 503},
		{"+14155550199", 201},
		{"+14155550100", 429},
		{"+14155550100", 201},
	} {
		a := sms(t, s, want.to, "x")
		if a.status != want.status {
			t.Errorf("call %d: %d, want %d", i, a.status, want.status)
		}
		if a.status == 429 && (a.header.Get("Retry-After") != "2" || a.json(t)["code"] != 20429.0) {
			t.Errorf("throttled with %v %s", a.header, a.body)
		}
	}
	if left := s.Faults(); len(left) != 1 || left[0].Provider != "meta" {
		t.Errorf("left are %+v", left)
	}
	if m := s.Messages(sandbox.Filter{})[0]; !m.Answer.Fault || m.Answer.Accepted || m.Answer.Status != 429 {
		t.Errorf("recorded %+v", m.Answer)
	}
}

func TestARuleAnswersABodyOfItsOwn(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	setFaults(
		t, s,
		sandbox.Rule{Provider: "twilio", Times: 1, Answer: sandbox.RuleAnswer{Status: 400, Body: []byte(`{"code":21614}`)}},
		sandbox.Rule{Provider: "twilio", Times: 1, Answer: sandbox.RuleAnswer{Status: 200, Body: []byte(`"<html>not JSON</html>"`)}},
	)
	if a := sms(t, s, "+14155550100", "x"); a.status != 400 || a.body != `{"code":21614}` {
		t.Errorf("got %d %s", a.status, a.body)
	}
	if a := sms(t, s, "+14155550100", "x"); a.status != 200 || a.body != "<html>not JSON</html>" {
		t.Errorf("got %d %s", a.status, a.body)
	}
}

func TestADelayWithoutAStatusGivesTheNormalAnswerLate(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	setFaults(t, s, sandbox.Rule{Provider: "webhook", Answer: sandbox.RuleAnswer{Delay: ms(120), Headers: map[string]string{"X-Late": "yes"}}})
	began := time.Now()
	a := send(t, http.MethodPost, s.HTTPURL()+"/webhook/a", "{}")
	if took := time.Since(began); a.status != 200 || took < 120*time.Millisecond || a.header.Get("X-Late") != "yes" {
		t.Errorf("answered %d after %v", a.status, took)
	}
}

func TestDropsAreAcceptedAfterAndNotBefore(t *testing.T) {
	t.Parallel()
	for _, drop := range []string{sandbox.DropBefore, sandbox.DropAfter} {
		t.Run(drop, func(t *testing.T) {
			t.Parallel()
			s := start(t, sandbox.Config{})
			setFaults(t, s, sandbox.Rule{Provider: "twilio", Times: 1, Answer: sandbox.RuleAnswer{Drop: drop}})
			if a, err := trySMS(t, s, "+14155550100", "x"); err == nil {
				t.Fatalf("answered %d", a.status)
			}
			after := drop == sandbox.DropAfter
			if m := last(t, s); m.Answer.Drop != drop || m.Answer.Accepted != after || m.Answer.Status != 0 || (m.Answer.ID != "") != after {
				t.Errorf("recorded %+v", m.Answer)
			}
			found := len(lookUp(t, s, "Messages.json?To=%2B14155550100").json(t)["messages"].([]any))
			if (found == 1) != after {
				t.Errorf("a look-up finds %d", found)
			}
			if a := sms(t, s, "+14155550100", "x"); a.status != 201 {
				t.Errorf("afterwards %d", a.status)
			}
		})
	}
}

func TestEveryProviderAnswersAStatusInItsOwnWords(t *testing.T) {
	s := start(t, sandbox.Config{})
	for _, tt := range []struct {
		provider, path, body string
		status               int
		want                 string
	}{
		{"meta", "/v23.0/1/messages", `{}`, 429, `"code":130429`},
		{"meta", "/v23.0/1/messages", `{}`, 401, `"code":190`},
		{"fcm", "/v1/projects/p/messages:send", `{}`, 404, `"errorCode":"UNREGISTERED"`},
		{"fcm", "/v1/projects/p/messages:send", `{}`, 429, `"errorCode":"QUOTA_EXCEEDED"`},
		{"fcm-token", "/token", ``, 500, `"error":"internal_failure"`},
		{"apns", "/3/device/abc", `{}`, 410, `"reason":"Unregistered"`},
		{"apns", "/3/device/abc", `{}`, 500, `"reason":"InternalServerError"`},
		{"webpush", "/webpush/a", ``, 410, `"errno":106`},
		{"slack", "/api/chat.postMessage", `{}`, 429, `"error":"ratelimited"`},
		{"slack", "/api/chat.postMessage", `{}`, 503, `<html>`},
		{"slack-webhook", "/services/T/B/x", `{}`, 410, `channel_is_archived`},
		{"webhook", "/webhook/a", `{}`, 502, `Bad Gateway`},
	} {
		t.Run(tt.provider+" "+strconv.Itoa(tt.status), func(t *testing.T) {
			setFaults(t, s, sandbox.Rule{Provider: tt.provider, Times: 1, Answer: sandbox.RuleAnswer{Status: tt.status}})
			a := send(t, http.MethodPost, s.HTTPURL()+tt.path, tt.body)
			if a.status != tt.status || !strings.Contains(a.body, tt.want) {
				t.Errorf("answered %d %s, want %s", a.status, a.body, tt.want)
			}
		})
	}
}

func TestRulesThatMakeNoSenseAreRefusedByField(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	kept := sandbox.Rule{Provider: "webhook", Times: 7, Answer: sandbox.RuleAnswer{Status: 500}}
	setFaults(t, s, kept)
	for pointer, r := range map[string]sandbox.Rule{
		"/0/provider":       {Provider: "pager", Answer: sandbox.RuleAnswer{Status: 500}},
		"/0/times":          {Times: -1, Answer: sandbox.RuleAnswer{Status: 500}},
		"/0/answer":         {Provider: "twilio"},
		"/0/answer/status":  {Answer: sandbox.RuleAnswer{Status: 100}},
		"/0/answer/drop":    {Answer: sandbox.RuleAnswer{Drop: "maybe"}},
		"/0/answer/body":    {Answer: sandbox.RuleAnswer{Body: []byte(`{}`), Delay: ms(1)}},
		"/0/answer/delay":   {Answer: sandbox.RuleAnswer{Delay: ms(-1)}},
		"/0/answer/headers": {Provider: "smtp", Answer: sandbox.RuleAnswer{Status: 451, Headers: map[string]string{"A": "b"}}},
	} {
		var fe *sandbox.FieldError
		if err := s.SetFaults(r); !errors.As(err, &fe) || fe.Pointer != pointer {
			t.Errorf("%+v: %v, want an error at %s", r, err, pointer)
		}
	}
	if left := s.Faults(); len(left) != 1 || left[0].Times != 7 {
		t.Errorf("a refused list replaced the rules: %+v", left)
	}
}

func TestCloseEndsADelayedAnswer(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	setFaults(t, s, sandbox.Rule{Provider: "webhook", Answer: sandbox.RuleAnswer{Delay: ms(600_000)}})
	ended := make(chan error, 1)
	go func() {
		_, err := do(t, http.DefaultClient, http.MethodPost, s.HTTPURL()+"/webhook/a", "{}")
		ended <- err
	}()
	for len(s.Messages(sandbox.Filter{})) == 0 { // recorded on arrival, before the delay
		select {
		case err := <-ended:
			t.Fatalf("ended early: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err == nil {
		t.Error("the delayed call was answered")
	}
}
