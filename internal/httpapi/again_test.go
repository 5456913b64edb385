package httpapi_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels/webhook"
	"github.com/notification-dispatcher/dispatcher/internal/hooks"
	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
	"github.com/notification-dispatcher/dispatcher/internal/stream"
)

func TestAcknowledgingAndRetryingAnswerDefinitively(t *testing.T) {
	s := newService(t)
	id := uuid.MustParse("0193a1b2-0000-7000-8000-0000000000aa")
	s.canceled[id] = store.Canceled
	path := "/v1/notifications/" + id.String()
	for _, tt := range []struct {
		route, body string
		want        map[string]any
	}{
		{path + "/ack", "", map[string]any{"result": "acknowledged", "acknowledged_at": "2026-12-01T12:00:00Z", "calling": 1.0}},
		{path + "/retry", "", map[string]any{"result": "retried", "round": 1.0, "expires_at": "2026-12-01T13:00:00Z"}},
		{path + "/retry", `{"expires_at":"2026-12-02T00:00:00+01:00"}`, map[string]any{"result": "retried", "round": 1.0, "expires_at": "2026-12-01T23:00:00Z"}},
	} {
		var got map[string]any
		s.do(t, "POST", tt.route, tt.body).want(200).into(&got)
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.route, diff)
		}
	}
	writes := s.writes
	for route, wrong := range map[string][]string{
		path + "/ack":                 {`{"by":"ana"}`, "/by unknown_member"},
		path + "/retry":               {`{"expires_at":"2026-12-01T12:00:00Z"}`, "/expires_at range"},
		path + "/retry?":              {`{"expires_at":"2027-01-01T12:00:00Z"}`, "/expires_at range"},
		"/v1/notifications/retry":     {`{"status":"sent"}`, "/status choice"},
		"/v1/notifications/retry?":    {`{"limit":1001}`, "/limit range"},
		"/v1/notifications/retry?&":   {`{"limit":0}`, "/limit range"},
		"/v1/notifications/retry?&&":  {`{"channel":"fax"}`, "/channel choice"},
		"/v1/notifications/retry?&&&": {`{"created_after":"yesterday"}`, "/created_after format"},
	} {
		if got := places(s.do(t, "POST", route, wrong[0]).problem(422, "invalid_request")); len(got) != 1 || got[0] != wrong[1] {
			t.Errorf("%s %s: %v, want %s", route, wrong[0], got, wrong[1])
		}
	}
	if s.writes != writes {
		t.Error("the store saw a wrong request")
	}
}

func TestADryRunOnlyCounts(t *testing.T) {
	s := newService(t)
	for range 3 {
		s.canceled[uuid.New()] = store.Canceled
	}
	const body = `{"status":"failed","channel":"sms","because":"provider_unavailable","created_after":"2026-12-01T00:00:00Z","limit":7`
	var got map[string]any
	s.do(t, "POST", "/v1/notifications/retry", body+`,"dry_run":true}`).want(200).into(&got)
	if diff := cmp.Diff(map[string]any{"matched": 3.0, "retried": 0.0, "more": true, "dry_run": true}, got); diff != "" || s.writes != 0 {
		t.Errorf("%d writes (-want +got):\n%s", s.writes, diff)
	}
	s.do(t, "POST", "/v1/notifications/retry", body+`}`).want(200).into(&got)
	if diff := cmp.Diff(map[string]any{"matched": 3.0, "retried": 3.0, "more": true, "dry_run": false}, got); diff != "" || s.writes != 3 {
		t.Errorf("%d writes (-want +got):\n%s", s.writes, diff)
	}
	want := store.Failures{Because: "provider_unavailable"}
	want.Project, want.Status, want.Channel, want.After = "acme", notify.Failed, notify.SMS, time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	if diff := cmp.Diff([]store.Failures{want, want}, s.failures); diff != "" || s.limits[0] != 10_000 || s.limits[1] != 7 {
		t.Errorf("limits %v, filters (-want +got):\n%s", s.limits, diff)
	}
}

func TestAPlanTellsWhatWouldBecomeOfANotification(t *testing.T) {
	s := newService(t)
	var got struct {
		Acceptable bool   `json:"acceptable"`
		SendAt     string `json:"send_at"`
		ExpiresAt  string `json:"expires_at"`
		Steps      []struct {
			Channel  string `json:"channel"`
			Attempts int    `json:"attempts"`
			Targets  int    `json:"targets"`
			Accounts []struct {
				Account string         `json:"account"`
				Breaker map[string]any `json:"breaker"`
			} `json:"accounts"`
			Paused       bool           `json:"paused"`
			EarliestCall string         `json:"earliest_call"`
			Preview      map[string]any `json:"preview"`
			Problems     []any          `json:"problems"`
		} `json:"steps"`
	}
	const body = `{"to":{"email":"ana@example.com","sms":"+14155550100"},"content":{"title":"t","body":"b"},"chain":[{"channel":"email"},{"channel":"sms"}]}`
	plan := func() {
		t.Helper()
		got.Steps = nil
		s.do(t, "POST", "/v1/notifications?plan=true", body, header{"Idempotency-Key", "k"}).want(200).into(&got)
	}
	plan()
	if !got.Acceptable || got.SendAt != "2026-12-01T12:00:00Z" || got.ExpiresAt != "2026-12-02T12:00:00Z" || len(got.Steps) != 2 {
		t.Fatalf("plan %+v", got)
	}
	email, sms := got.Steps[0], got.Steps[1]
	if email.Channel != "email" || email.Targets != 1 || email.EarliestCall != "2026-12-01T12:00:00Z" || email.Accounts[0].Account != "smtp-main" {
		t.Errorf("email %+v", email)
	}
	// Its breaker is open for 30 s, and its gate shut for a minute.
	if sms.EarliestCall != "2026-12-01T12:01:00Z" || sms.Accounts[0].Breaker["state"] != "open" || sms.Preview["segments"] != 1.0 {
		t.Errorf("sms %+v", sms)
	}
	s.pauses = []store.Pause{{Channel: notify.SMS, By: "ana", Since: noon}}
	s.problems = []notify.Problem{{Pointer: "/content/sms/body", Code: "unsendable", Detail: "must be shorter"}}
	plan()
	if got.Acceptable || !got.Steps[1].Paused || got.Steps[1].EarliestCall != "" || len(got.Steps[1].Problems) != 1 {
		t.Errorf("plan %+v", got)
	}
	if s.writes != 0 || len(s.accepted) != 0 {
		t.Error("a plan was stored")
	}
	s.do(t, "POST", "/v1/notifications?plan=true", `{}`).problem(422, "invalid_request")
	s.do(t, "POST", "/v1/notifications?plan=perhaps", body).problem(422, "invalid_request")
}

func TestAKeyIsRotatedWithAnOverlap(t *testing.T) {
	s, db := overPostgres(t)
	secret, old, err := db.CreateKey(t.Context(), "acme", "billing", []string{"send", "admin"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	as := header{"Authorization", "Bearer " + secret}
	type keyView struct {
		ID        string   `json:"id"`
		Name      string   `json:"name"`
		Scopes    []string `json:"scopes"`
		Secret    string   `json:"secret"`
		ExpiresAt string   `json:"expires_at"`
	}
	var made struct {
		keyView
		Replaces keyView `json:"replaces"`
	}
	path := "/v1/keys/" + old.ID.String() + "/rotate"
	s.do(t, "POST", path, `{"overlap":"169h"}`, as).problem(422, "invalid_request")
	s.do(t, "POST", path, `{"overlap":"a day"}`, as).problem(422, "invalid_request")
	s.do(t, "POST", path, `{"overlap":"1h"}`, keyFor(t, db, "other")).problem(404, "not_found")
	s.do(t, "POST", path, `{"overlap":"1h"}`, as).want(201).into(&made)
	ends, err := time.Parse(time.RFC3339, made.Replaces.ExpiresAt)
	if err != nil || time.Until(ends) > time.Hour || time.Until(ends) < 50*time.Minute {
		t.Errorf("the old key ends %q", made.Replaces.ExpiresAt)
	}
	if made.Name != "billing" || len(made.Scopes) != 2 || made.ExpiresAt != "" || made.ID == old.ID.String() || made.Replaces.Secret != "" {
		t.Errorf("made %+v", made)
	}
	next := header{"Authorization", "Bearer " + made.Secret}
	for _, key := range []header{as, next} { // both work
		s.do(t, "GET", "/v1/keys", "", key).want(200)
	}
	s.do(t, "POST", path, `{"overlap":"0s"}`, next).want(201)
	s.do(t, "POST", path, "", next).problem(409, "key_ended")
	if _, err := db.Pool().Exec(t.Context(), "select pg_sleep(1.1)"); err != nil { // what a node remembers of a key
		t.Fatal(err)
	}
	s.do(t, "GET", "/v1/keys", "", as).problem(401, "unauthorized")
}

// Whatever the route, what belongs to another project is not there, and nothing
// of it is told.
func TestNoRouteShowsAnotherProject(t *testing.T) {
	s, db := overPostgres(t, func(c *httpapi.Config) {
		source, ok := c.Store.(*store.Store)
		if !ok {
			t.Fatal("no store")
		}
		c.Events = &httpapi.Events{Hub: stream.New(source, stream.Config{}), Store: source}
		c.Webhooks = hooks.New(hooks.Config{Store: source, Cursor: httpapi.EventCursor})
		c.Suppressions = source
	})
	hook, err := db.CreateWebhook(t.Context(), store.Webhook{ID: uuid.New(), Project: "acme", URL: "https://acme.example"}, webhook.NewSecret())
	if err != nil {
		t.Fatal(err)
	}
	secret, key, err := db.CreateKey(t.Context(), "acme", "the name of acme", []string{"send", "read", "admin"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	var made struct {
		ID string `json:"id"`
	}
	s.do(t, "POST", "/v1/notifications", good, header{"Authorization", "Bearer " + secret}).
		want(202).into(&made)
	other := keyFor(t, db, "other")
	param := regexp.MustCompile(`0193a1b2-0000-7000-8000-000000000001`)
	checked := 0
	for _, r := range routes(t) {
		if r.scope == "" {
			continue
		}
		for _, id := range []string{made.ID, key.ID.String(), hook.ID.String()} {
			target := param.ReplaceAllString(r.target, id)
			if strings.HasPrefix(target, "/v1/suppressions/") && r.method == "DELETE" {
				target += "?why=none"
			}
			body := ""
			switch {
			case r.method == "PATCH" && strings.Contains(target, "webhooks"):
				body = `{"enabled":false}`
			case r.method == "PATCH":
				body = `{"limits":{"read":null}}`
			case r.method == "POST" && strings.HasSuffix(target, id+"/replay"):
				body = `{"since":"2026-01-01T00:00:00Z"}`
			}
			a := s.do(t, r.method, target, body, other)
			if target != r.target {
				checked++
				a.problem(404, "not_found")
			}
			for _, told := range []string{made.ID, key.ID.String(), hook.ID.String(), "acme", "+1415"} {
				if strings.Contains(a.Body.String(), told) {
					t.Errorf("%s %s tells %q: %s", r.method, target, told, a.Body)
				}
			}
		}
	}
	if checked < 40 {
		t.Errorf("only %d requests for what is another's", checked)
	}
	var still struct {
		Status string `json:"status"`
	}
	s.do(t, "GET", "/v1/notifications/"+made.ID, "", header{"Authorization", "Bearer " + secret}).want(200).into(&still)
	if still.Status != "queued" {
		t.Errorf("another project made it %s", still.Status)
	}
}
