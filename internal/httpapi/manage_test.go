package httpapi_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/resilience"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

type page struct {
	Items []struct {
		ID string `json:"id"`
	} `json:"items"`
	Next string `json:"next"`
}

func TestListComesInPages(t *testing.T) {
	s := newService(t)
	var want []string
	for range 7 {
		id := uuid.Must(uuid.NewV7())
		s.records = append(s.records, store.Record{Notification: notify.Notification{ID: id, Project: "acme"}})
		want = append(want, id.String())
	}
	slices.Reverse(s.records)
	slices.Reverse(want)
	s.records = append(s.records, store.Record{Notification: notify.Notification{ID: uuid.Must(uuid.NewV7()), Project: "other"}})
	var got []string
	next, pages := "", 0
	for {
		target := "/v1/notifications?limit=3"
		if next != "" {
			target += "&cursor=" + next
		}
		var p page
		s.do(t, "GET", target, "").want(200).into(&p)
		for _, item := range p.Items {
			got = append(got, item.ID)
		}
		if pages++; p.Next == "" {
			break
		}
		next = p.Next
	}
	if diff := cmp.Diff(want, got); diff != "" || pages != 3 {
		t.Errorf("%d pages (-want +got):\n%s", pages, diff)
	}

	t.Run("whose cursors are for their project and filters", func(t *testing.T) {
		s.do(t, "GET", "/v1/notifications?limit=1&cursor="+next, "").want(200)
		other := s.do(t, "GET", "/v1/notifications?cursor="+next, "", header{"Authorization", "Bearer dsp_other"})
		for _, a := range []answer{other, s.do(t, "GET", "/v1/notifications?status=sent&cursor="+next, "")} {
			if got := places(a.problem(422, "invalid_request")); !slices.Equal(got, []string{"query.cursor format"}) {
				t.Errorf("errors %v", got)
			}
		}
	})
	t.Run("that may be empty", func(t *testing.T) {
		s.records = nil
		if got := s.do(t, "GET", "/v1/notifications", "").want(200).Body.String(); got != `{"items":[]}` {
			t.Errorf("answer %s", got)
		}
	})
}

func TestListFilters(t *testing.T) {
	hash := func(c notify.Channel, target notify.Target) [16]byte { return target.Hash(c) }
	device := func(provider, token string) [16]byte {
		return hash(notify.Push, notify.Target{Device: &notify.Device{Provider: provider, Token: token}})
	}
	phone := notify.Target{Phone: "+14155550100"}
	url := "https://example.com/x"
	tests := []struct {
		query string
		want  store.Filter
	}{
		{"", store.Filter{Limit: 51}},
		{"status=partially_failed&channel=sms&reference=r-1&limit=100", store.Filter{Status: notify.PartiallyFailed, Channel: notify.SMS, Reference: "r-1", Limit: 101}},
		{"created_after=2026-12-01T00:00:00Z&created_before=2026-12-02T00:00:00.5%2B01:00", store.Filter{After: noon.Add(-12 * time.Hour), Before: time.Date(2026, 12, 1, 23, 0, 0, 5e8, time.UTC), Limit: 51}},
		{"recipient=%2B14155550100", store.Filter{Limit: 51, Addresses: [][16]byte{
			device("fcm", phone.Phone), device("apns", phone.Phone), hash(notify.SMS, phone), hash(notify.WhatsApp, phone),
			hash(notify.Slack, notify.Target{Slack: &notify.SlackTarget{Channel: phone.Phone}}),
		}}},
		{"channel=whatsapp&recipient=%2B14155550100", store.Filter{Channel: notify.WhatsApp, Limit: 51, Addresses: [][16]byte{hash(notify.WhatsApp, phone)}}},
		{"channel=email&recipient=ana@example.com", store.Filter{Channel: notify.Email, Limit: 51, Addresses: [][16]byte{
			hash(notify.Email, notify.Target{Email: &notify.EmailAddress{Address: "ana@example.com"}}),
		}}},
		{"recipient=" + url, store.Filter{Limit: 51, Addresses: [][16]byte{
			hash(notify.Push, notify.Target{Device: &notify.Device{Provider: "webpush", Endpoint: url}}),
			hash(notify.Slack, notify.Target{Slack: &notify.SlackTarget{WebhookURL: url}}),
			hash(notify.Webhook, notify.Target{Webhook: &notify.WebhookTarget{URL: url}}),
		}}},
	}
	for _, tt := range tests {
		t.Run(tt.query, func(t *testing.T) {
			s := newService(t)
			s.do(t, "GET", "/v1/notifications?"+tt.query, "").want(200)
			tt.want.Project = "acme"
			if diff := cmp.Diff(tt.want, s.filters[0]); diff != "" {
				t.Errorf("filter (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChannelsShowHealthAndBacklog(t *testing.T) {
	s := newService(t)
	s.pauses = []store.Pause{{Channel: notify.SMS, By: "ana", Reason: "invoice", Since: noon.Add(-time.Hour)}}
	s.backlog = []store.Backlog{
		{
			Channel: notify.SMS, Waiting: map[notify.WaitReason]int64{notify.WaitBreakerOpen: 3}, Queued: 2, OldestDue: noon.Add(-90 * time.Second),
			OldestHeld: map[notify.WaitReason]time.Time{notify.WaitBreakerOpen: noon.Add(-time.Hour)},
		},
	}
	s.states = []store.ScopeState{{
		Scope: "twilio-main", GateUntil: noon.Add(time.Minute), Calls: 30, Failures: 10, Slow: 1,
		Breaker: resilience.BreakerStatus{
			State: resilience.Open, Reason: resilience.ReasonFailures, ChangedAt: noon.Add(-time.Minute), Failures: 5, OpenCount: 2,
			OpenUntil: noon.Add(30 * time.Second),
		},
	}}
	var got struct {
		Items []map[string]any `json:"items"`
	}
	s.do(t, "GET", "/v1/channels", "").want(200).into(&got)
	if len(got.Items) != 6 {
		t.Fatalf("%d channels, want 6", len(got.Items))
	}
	want := map[string]any{
		"channel": "sms", "max_in_flight": 256.0,
		"paused": map[string]any{"by": "ana", "reason": "invoice", "since": "2026-12-01T11:00:00Z"},
		"accounts": []any{
			map[string]any{
				"account": "twilio-main", "provider": "twilio", "max_observable": "delivered",
				"breaker": map[string]any{
					"state": "open", "since": "2026-12-01T11:59:00Z", "because": "failures", "open_until": "2026-12-01T12:00:30Z", "probe_until": nil,
					"opened": 2.0, "failures_in_a_row": 5.0, "last_minute": map[string]any{"calls": 30.0, "success_percent": 66.7, "slow": 1.0}, "forced": false,
				},
				"gate": map[string]any{"shut": true, "until": "2026-12-01T12:01:00Z"}, "share": 0.0, "passed_over": "throttled",
			},
			map[string]any{
				"account": "sms-poor", "provider": "twilio", "max_observable": "sent",
				"breaker": map[string]any{
					"state": "closed", "since": nil, "open_until": nil, "probe_until": nil, "opened": 0.0, "failures_in_a_row": 0.0, "last_minute": nil, "forced": false,
				},
				"gate": map[string]any{"shut": false, "until": nil}, "share": 1.0,
			},
		},
		"backlog": map[string]any{"waiting": map[string]any{"breaker_open": 3.0}, "queued": 2.0, "oldest_age_seconds": 90.0, "oldest_held_seconds": 3600.0},
	}
	if diff := cmp.Diff(want, got.Items[1]); diff != "" {
		t.Errorf("sms (-want +got):\n%s", diff)
	}
	quiet := map[string]any{"waiting": map[string]any{}, "queued": 0.0, "oldest_age_seconds": 0.0, "oldest_held_seconds": 0.0}
	if diff := cmp.Diff(quiet, got.Items[0]["backlog"]); diff != "" {
		t.Errorf("push (-want +got):\n%s", diff)
	}
	s.do(t, "GET", "/v1/channels", "", header{"Authorization", "Bearer dsp_read"}).want(200)
	if want := []string{"", "acme"}; !slices.Equal(s.backlogs, want) {
		t.Errorf("backlogs of %q were read, want %q: all for an admin, else the own", s.backlogs, want)
	}
}

func TestKeysAreMadeListedAndRevoked(t *testing.T) {
	s := newService(t)
	a := s.do(t, "POST", "/v1/keys", `{"name":"billing","scopes":["send","read"],"expires_at":"2027-01-01T00:00:00Z"}`).want(201)
	var key map[string]any
	a.into(&key)
	if key["secret"] != "dsp_billing" || key["name"] != "billing" || key["expires_at"] != "2027-01-01T00:00:00Z" || key["revoked_at"] != nil {
		t.Errorf("key %v", key)
	}
	id, _ := key["id"].(string)
	if got := a.Header().Get("Location"); got != "/v1/keys/"+id {
		t.Errorf("Location %q", got)
	}
	if got := a.Header().Get("Cache-Control"); got != "no-store" {
		t.Errorf("Cache-Control %q", got)
	}
	billing := header{"Authorization", "Bearer dsp_billing"}
	s.do(t, "GET", "/v1/notifications", "", billing).want(200)
	list := s.do(t, "GET", "/v1/keys", "").want(200).Body.String()
	if !strings.Contains(list, id) || strings.Contains(list, "secret") || strings.Contains(list, "dsp_billing") {
		t.Errorf("list %s", list)
	}
	other := header{"Authorization", "Bearer dsp_other"}
	s.do(t, "DELETE", "/v1/keys/"+id, "", other).problem(404, "not_found")
	if list := s.do(t, "GET", "/v1/keys", "", other).want(200).Body.String(); strings.Contains(list, id) {
		t.Errorf("another project sees the key: %s", list)
	}
	if a := s.do(t, "DELETE", "/v1/keys/"+id, "").want(204); a.Body.Len() != 0 {
		t.Errorf("a body with 204: %s", a.Body)
	}
	s.do(t, "GET", "/v1/notifications", "", billing).problem(401, "unauthorized")
}

func TestReadiness(t *testing.T) {
	var database error
	s := newService(t, func(c *httpapi.Config) {
		c.Ready = []httpapi.Check{
			{Name: "database", Do: func(context.Context) error { return database }},
			{Name: "worker", Do: func(context.Context) error { return nil }},
		}
	})
	none := header{"Authorization", ""}
	check := func(target string, status int, want string) {
		t.Helper()
		if got := s.do(t, "GET", target, "", none).want(status).Body.String(); got != want {
			t.Errorf("%s: %s, want %s", target, got, want)
		}
	}
	check("/readyz", 200, `{"status":"ready"}`)
	check("/readyz?verbose", 200, `{"status":"ready","checks":{"database":"ok","worker":"ok"}}`)
	database = errors.New("password of ana")
	check("/readyz", 503, `{"status":"not_ready","checks":{"database":"failed"}}`)
	check("/readyz?verbose=1", 503, `{"status":"not_ready","checks":{"database":"failed","worker":"ok"}}`)
	check("/livez", 200, `{"status":"ok"}`)
	if n := strings.Count(s.log.String(), `msg="not ready"`); n != 1 {
		t.Errorf("the log tells %d times that it is not ready, want once: %s", n, s.log)
	}
	database = nil
	check("/readyz", 200, `{"status":"ready"}`)
}

func TestReadinessDoesNotWaitForAPanicOrForLong(t *testing.T) {
	s := newService(t, func(c *httpapi.Config) {
		c.Ready = []httpapi.Check{
			{Name: "panics", Do: func(context.Context) error { panic("x") }},
			{Name: "hangs", Do: func(ctx context.Context) error {
				if _, ok := ctx.Deadline(); !ok {
					return errors.New("no deadline")
				}
				return nil
			}},
		}
	})
	if got := s.do(t, "GET", "/readyz?verbose", "").want(503).Body.String(); got != `{"status":"not_ready","checks":{"hangs":"ok","panics":"failed"}}` {
		t.Errorf("answer %s", got)
	}
}

func TestMetricsAreServedWhereGiven(t *testing.T) {
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1\n")) })
	s := newService(t, func(c *httpapi.Config) { c.Metrics = metrics })
	if got := s.do(t, "GET", "/metrics", "", header{"Accept", "text/plain"}).want(200).Body.String(); got != "up 1\n" {
		t.Errorf("answer %q", got)
	}
	newService(t).do(t, "GET", "/metrics", "").problem(404, "not_found")
}
