package httpapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// onCall is a key whose name and id are to be recorded.
const onCall = "on call (0193a1b2-0000-7000-8000-000000000001)"

func newOperated(t *testing.T) *service {
	t.Helper()
	s := newService(t)
	s.keys["dsp_all"] = store.APIKey{
		ID: uuid.MustParse("0193a1b2-0000-7000-8000-000000000001"), Name: "on call", Project: "acme", Scopes: []string{"send", "read", "admin"},
	}
	return s
}

func TestOperatorsForceAndResetBreakers(t *testing.T) {
	s := newOperated(t)
	var got map[string]any
	s.do(t, "POST", "/v1/channels/twilio-main/breaker", `{"action":"open","why":" incident 4711 ","until":"2026-12-01T13:00:00+01:00"}`).
		problem(422, "invalid_request") // that is now
	s.do(t, "POST", "/v1/channels/twilio-main/breaker", `{"action":"open","why":" incident 4711 ","until":"2026-12-01T14:00:00+01:00"}`).want(200).into(&got)
	breaker := got["breaker"].(map[string]any)
	if got["account"] != "twilio-main" || breaker["state"] != "open" || breaker["forced_by"] != onCall || breaker["forced_why"] != "incident 4711" ||
		breaker["forced_until"] != "2026-12-01T13:00:00Z" {
		t.Errorf("answer %v", got)
	}
	s.do(t, "POST", "/v1/channels/webhook-main/breaker", `{"action":"close","scope":"host:example.com","why":"they are back"}`).want(200).into(&got)
	if got["scope"] != "host:example.com" || got["breaker"].(map[string]any)["forced"] != true {
		t.Errorf("answer %v", got)
	}
	s.do(t, "POST", "/v1/channels/twilio-main/breaker", `{"action":"reset","why":"repaired"}`).want(200)
	want := []store.OperatorAction{
		{At: noon, Action: "reset", Target: "twilio-main", By: onCall, Why: "repaired"},
		{At: noon, Action: "close", Target: "webhook-main/host:example.com", By: onCall, Why: "they are back"},
		{At: noon, Action: "open", Target: "twilio-main", By: onCall, Why: "incident 4711", Until: noon.Add(time.Hour)},
	}
	if diff := cmp.Diff(want, s.actions); diff != "" {
		t.Errorf("actions (-want +got):\n%s", diff)
	}
	var list struct {
		Items []map[string]any `json:"items"`
	}
	s.do(t, "GET", "/v1/channels/actions?limit=2", "").want(200).into(&list)
	if len(list.Items) != 2 || list.Items[0]["action"] != "reset" || list.Items[1]["target"] != "webhook-main/host:example.com" || list.Items[1]["until"] != nil {
		t.Errorf("list %v", list)
	}
}

func TestOperatorsPauseAndResumeChannels(t *testing.T) {
	s := newOperated(t)
	paused := `{"channel":"sms","paused":{"by":"` + onCall + `","reason":"incident","since":"2026-12-01T12:00:00Z"}}`
	if got := s.do(t, "POST", "/v1/channels/sms/pause", `{"why":"incident"}`).want(200).Body.String(); got != paused {
		t.Errorf("answer %s, want %s", got, paused)
	}
	if got := s.do(t, "POST", "/v1/channels/sms/resume", `{"why":"over"}`).want(200).Body.String(); got != `{"channel":"sms","paused":null}` {
		t.Errorf("answer %s", got)
	}
	if len(s.actions) != 2 || s.actions[0].Action != store.ActionResume || s.actions[1].Why != "incident" {
		t.Errorf("actions %+v", s.actions)
	}
}

func TestOperatorsAreToldWhatIsWrong(t *testing.T) {
	for _, tt := range []struct {
		target, body string
		status       int
		code         string
		want         []string
	}{
		{"nobody/breaker", `{"action":"open","why":"x"}`, 404, "not_found", nil},
		{"sms/breaker", `{"action":"open","why":"x"}`, 404, "not_found", nil},
		{"fax/pause", `{"why":"x"}`, 404, "not_found", nil},
		{"twilio-main/resume", `{"why":"x"}`, 404, "not_found", nil},
		{"twilio-main/breaker", `{}`, 422, "invalid_request", []string{"/action choice", "/why format"}},
		{"twilio-main/breaker", `{"action":"pause","why":"  "}`, 422, "invalid_request", []string{"/action choice", "/why format"}},
		{"twilio-main/breaker", `{"action":"open","why":"a\u0000b","scope":"a b"}`, 422, "invalid_request", []string{"/scope format", "/why format"}},
		{"twilio-main/breaker", `{"action":"open","why":"x","until":"tomorrow"}`, 422, "invalid_request", []string{"/until format"}},
		{"twilio-main/breaker", `{"action":"reset","why":"x","until":"2027-01-01T00:00:00Z"}`, 422, "invalid_request", []string{"/until conflict"}},
		{"twilio-main/breaker", `{"action":"open","why":"` + strings.Repeat("é", 501) + `"}`, 422, "invalid_request", []string{"/why format"}},
		{"twilio-main/breaker", `{"action":"open","why":"x","who":"me"}`, 422, "invalid_request", []string{"/who unknown_member"}},
		{"sms/pause", "", 400, "bad_request", []string{" malformed"}},
		{"sms/pause", `{"why":""}`, 422, "invalid_request", []string{"/why format"}},
	} {
		t.Run(tt.target+" "+tt.body[:min(len(tt.body), 60)], func(t *testing.T) {
			s := newOperated(t)
			p := s.do(t, "POST", "/v1/channels/"+tt.target, tt.body).problem(tt.status, tt.code)
			if got := places(p); !slices.Equal(got, slices.Concat([]string{}, tt.want)) {
				t.Errorf("errors %v, want %v", got, tt.want)
			}
			if s.writes != 0 {
				t.Error("it was done all the same")
			}
		})
	}
}

func TestABreakersHistoryIsShown(t *testing.T) {
	s := newOperated(t)
	for i := range 60 {
		s.events = append(s.events, store.BreakerEvent{Scope: "twilio-main", At: noon.Add(-time.Duration(i) * time.Minute), From: "closed", To: "open", Reason: "failures", Node: "n"})
	}
	s.events[0].By, s.events[0].Why, s.events[0].Reason, s.events[0].Until = onCall, "incident", "forced", noon.Add(time.Hour)
	var got struct {
		Account     string           `json:"account"`
		Breaker     map[string]any   `json:"breaker"`
		Transitions []map[string]any `json:"transitions"`
	}
	s.do(t, "GET", "/v1/channels/twilio-main/breaker", "").want(200).into(&got)
	if got.Account != "twilio-main" || got.Breaker["state"] != "closed" || len(got.Transitions) != 50 {
		t.Fatalf("answer %+v", got)
	}
	want := map[string]any{
		"at": "2026-12-01T12:00:00Z", "from": "closed", "to": "open", "reason": "forced", "until": "2026-12-01T13:00:00Z", "by": onCall, "why": "incident",
	}
	if diff := cmp.Diff(want, got.Transitions[0]); diff != "" {
		t.Errorf("transition (-want +got):\n%s", diff)
	}
	if got.Transitions[1]["node"] != "n" || got.Transitions[1]["until"] != nil {
		t.Errorf("transition %v", got.Transitions[1])
	}
	s.do(t, "GET", "/v1/channels/twilio-main/breaker?scope=host:x", "").want(200).into(&got)
	if len(got.Transitions) != 0 {
		t.Errorf("another scope's history %v", got.Transitions)
	}
	s.do(t, "GET", "/v1/channels/nobody/breaker", "").problem(404, "not_found")
	s.do(t, "GET", "/v1/channels/twilio-main/breaker?scope=a%20b", "").problem(422, "invalid_request")
	s.do(t, "GET", "/v1/channels/actions?limit=0", "").problem(422, "invalid_request")
}

func TestNarrowerScopesAreShownToOperatorsOnlyAndNotWithoutEnd(t *testing.T) {
	s := newService(t)
	for i := range 60 {
		s.states = append(s.states, store.ScopeState{
			Scope: fmt.Sprintf("webhook-main/host:%02d.example", i), GateUntil: noon.Add(time.Minute),
			Breaker: resilience.BreakerStatus{State: resilience.Open, OpenUntil: noon.Add(time.Second), Reason: resilience.ReasonFailures},
		})
	}
	s.states = append(s.states, store.ScopeState{Scope: "slack-main", Breaker: resilience.BreakerStatus{
		State: resilience.Open, Forced: &resilience.Override{Who: "ana", Why: "their invoice"},
	}})
	s.pauses = []store.Pause{{Channel: notify.SMS, By: "ana", Reason: "their invoice", Since: noon}}
	list := s.do(t, "GET", "/v1/channels", "").want(200).Body.String()
	for text, n := range map[string]int{`"host:`: 50, `"more_scopes":true`: 1, "their invoice": 2} {
		if got := strings.Count(list, text); got != n {
			t.Errorf("an operator sees %d times %s, want %d: %s", got, text, n, list)
		}
	}
	list = s.do(t, "GET", "/v1/channels", "", header{"Authorization", "Bearer dsp_read"}).want(200).Body.String()
	for _, text := range []string{`"host:`, "ana", "their invoice"} {
		if strings.Contains(list, text) {
			t.Errorf("a key without admin sees %s: %s", text, list)
		}
	}
	for _, text := range []string{`"paused":{"since":"2026-12-01T12:00:00Z"}`, `"forced":true`} {
		if !strings.Contains(list, text) {
			t.Errorf("a key without admin does not see %s: %s", text, list)
		}
	}
	if !slices.Equal(s.asked, []int{51, 0}) {
		t.Errorf("asked for %v narrower scopes", s.asked)
	}
}
