package app_test

import (
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// webhookView is a webhook as the API shows it.
type webhookView struct {
	ID, Secret, URL string
	Events          []string
	Enabled         bool
	DisabledBecause string  `json:"disabled_because"`
	OldSecretUntil  *string `json:"old_secret_until"`
}

// told is a webhook's delivery as the API shows it.
type told struct {
	ID, Event, Status string
	MessageID         string `json:"message_id"`
	NotificationID    string `json:"notification_id"`
	Attempts          []struct {
		HTTPStatus int `json:"http_status"`
	}
}

func (c *cluster) told(id string) []told {
	c.t.Helper()
	var log struct{ Items []told }
	c.ask(http.MethodGet, "/v1/webhooks/"+id+"/deliveries", "", http.StatusOK, &log)
	return log.Items
}

// delivered waits until a webhook has had so many deliveries, and all of them have
// arrived.
func (c *cluster) delivered(id string, n int) []told {
	c.t.Helper()
	var out []told
	c.eventually("the webhook is told", func() bool {
		out = c.told(id)
		return len(out) == n && !slices.ContainsFunc(out, func(d told) bool { return d.Status != "delivered" })
	})
	return out
}

func TestAWebhookIsToldWhatHappensThroughTheAPI(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	url := c.sandbox.HTTPURL() + "/webhook/status"
	var h webhookView
	c.ask(http.MethodPost, "/v1/webhooks", `{"url":"`+url+`","events":["sent","webhook_disabled"]}`, http.StatusCreated, &h)
	if !strings.HasPrefix(h.Secret, "whsec_") || !h.Enabled || h.URL != url {
		t.Fatalf("created %+v", h)
	}
	path := "/v1/webhooks/" + h.ID
	since := time.Now().UTC().Add(-time.Second).Format(time.RFC3339Nano)
	id := c.send(text)
	first := c.delivered(h.ID, 1)[0]
	if first.Event != "sent" || first.NotificationID != id || len(first.Attempts) != 1 || first.Attempts[0].HTTPStatus != http.StatusOK {
		t.Errorf("told %+v", first)
	}
	got := c.sandbox.Messages(sandbox.Filter{Provider: "webhook"})
	if len(got) != 1 || !strings.Contains(string(mustJSON(t, got[0])), "notification.sent") {
		t.Errorf("received %s", mustJSON(t, got))
	}

	c.ask(http.MethodPost, path+"/deliveries/"+first.ID+"/replay", "", http.StatusAccepted, nil)
	var replay struct {
		Count int
		More  bool
		Next  string
	}
	c.ask(http.MethodPost, path+"/replay", `{"since":"`+since+`"}`, http.StatusAccepted, &replay)
	if replay.Count != 1 || replay.More {
		t.Errorf("replayed %+v", replay)
	}
	for _, d := range c.delivered(h.ID, 3) {
		if d.MessageID != first.MessageID {
			t.Errorf("a replay has webhook-id %s, want %s", d.MessageID, first.MessageID)
		}
	}
	c.ask(http.MethodPost, path+"/replay", `{"after":"`+replay.Next+`"}`, http.StatusAccepted, &replay)
	if replay.Count != 0 {
		t.Errorf("replayed %+v after the end", replay)
	}
	c.ask(http.MethodPost, path+"/test", "", http.StatusAccepted, nil)
	if d := c.delivered(h.ID, 4)[0]; d.Event != "webhook.test" {
		t.Errorf("told %+v", d)
	}
	var page struct {
		Items []told
		Next  string
	}
	c.ask(http.MethodGet, path+"/deliveries?limit=3", "", http.StatusOK, &page)
	c.ask(http.MethodGet, path+"/deliveries?limit=3&cursor="+page.Next, "", http.StatusOK, &page)
	if len(page.Items) != 1 || page.Items[0].ID != first.ID {
		t.Errorf("the second page %+v", page)
	}

	var list struct{ Items []struct{ ID string } }
	c.ask(http.MethodGet, "/v1/notifications", "", http.StatusOK, &list)
	if len(list.Items) != 1 {
		t.Errorf("%d notifications, want the one that was sent", len(list.Items))
	}
	c.ask(http.MethodGet, "/v1/notifications/"+first.ID, "", http.StatusNotFound, nil)
	metrics := string(c.at(c.back, http.MethodGet, "/metrics", "", http.StatusOK))
	for series, want := range map[string]string{`channel="sms",outcome="accepted"`: "1", `channel="webhook",outcome="accepted"`: "0"} {
		found := regexp.MustCompile(`(?m)^dispatcher_delivery_attempts_total\{` + series + `\} (\d+)$`).FindStringSubmatch(metrics)
		if found == nil || found[1] != want {
			t.Errorf("attempts with %s: %v, want %s: calls to status webhooks are not counted", series, found, want)
		}
	}
	c.managed(h)
}

// managed changes a webhook until it is gone.
func (c *cluster) managed(h webhookView) {
	c.t.Helper()
	path := "/v1/webhooks/" + h.ID
	var v webhookView
	c.ask(http.MethodPost, path+"/rotate", `{"overlap":"1h"}`, http.StatusOK, &v)
	if v.Secret == "" || v.Secret == h.Secret || v.OldSecretUntil == nil {
		c.t.Errorf("rotated %+v", v)
	}
	c.ask(http.MethodPatch, path, `{"enabled":false,"events":[]}`, http.StatusOK, nil)
	v = webhookView{}
	c.ask(http.MethodGet, path, "", http.StatusOK, &v)
	if v.Enabled || v.DisabledBecause != "paused" || len(v.Events) != 0 || v.Secret != "" {
		c.t.Errorf("paused %+v", v)
	}
	before := len(c.told(h.ID))
	c.ask(http.MethodPatch, path, `{"enabled":true}`, http.StatusOK, nil)
	c.send(text)
	for _, d := range c.delivered(h.ID, before+2)[:2] {
		if d.Event != "sent" && d.Event != "accepted" {
			c.t.Errorf("told %+v", d)
		}
	}
	for _, bad := range []struct{ method, path, body string }{
		{http.MethodPost, "/v1/webhooks", `{"url":"http://10.0.0.1/"}`},
		{http.MethodPost, "/v1/webhooks", `{"url":"https://example.com","events":["born"]}`},
		{http.MethodPost, "/v1/webhooks", `{"url":"https://example.com","secret":"whsec_x"}`},
		{http.MethodPatch, path, `{"url":"ftp://example.com"}`},
		{http.MethodPost, path + "/rotate", `{"overlap":"200h"}`},
		{http.MethodPost, path + "/replay", `{}`},
		{http.MethodPost, path + "/replay", `{"since":"2099-01-01T00:00:00Z"}`},
		{http.MethodPost, path + "/replay", `{"after":"x"}`},
		{http.MethodGet, path + "/deliveries?cursor=x", ""},
		{http.MethodGet, path + "/deliveries?limit=0", ""},
	} {
		c.ask(bad.method, bad.path, bad.body, http.StatusUnprocessableEntity, nil)
	}
	c.ask(http.MethodDelete, path, "", http.StatusNoContent, nil)
	c.ask(http.MethodGet, path, "", http.StatusNotFound, nil)
	c.ask(http.MethodGet, path+"/deliveries", "", http.StatusNotFound, nil)
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
