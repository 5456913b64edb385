package sandbox_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

type listed struct {
	Items []struct {
		Seq        int64             `json:"seq"`
		Provider   string            `json:"provider"`
		To         string            `json:"to"`
		Body       string            `json:"body"`
		Headers    map[string]string `json:"headers"`
		Answer     map[string]any    `json:"answer"`
		ReceivedAt time.Time         `json:"received_at"`
	} `json:"items"`
}

func list(t *testing.T, s *sandbox.Server, query string) listed {
	t.Helper()
	a := send(t, http.MethodGet, s.HTTPURL()+"/sandbox/messages"+query, "")
	if a.status != http.StatusOK {
		t.Fatalf("answered %d %s", a.status, a.body)
	}
	var l listed
	if err := json.Unmarshal([]byte(a.body), &l); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestMessagesListEveryCallInOrder(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	hook := s.HTTPURL() + "/webhook/orders?x=1"
	sms(t, s, "+14155550100", "one")
	sms(t, s, "+15005550001", "two")
	sms(t, s, "whatsapp:+14155550100", "three")
	send(t, http.MethodPost, hook, `{"a":1}`, "Webhook-Id", "w1", "X-Own", "mine")

	all := list(t, s, "")
	if len(all.Items) != 4 {
		t.Fatalf("%d items", len(all.Items))
	}
	for i, m := range all.Items {
		if m.Seq != int64(i+1) || m.ReceivedAt.Before(time.Now().Add(-time.Minute)) || m.ReceivedAt.Location() != time.UTC {
			t.Errorf("item %d: seq %d at %v", i, m.Seq, m.ReceivedAt)
		}
	}
	if refused := all.Items[1]; refused.Answer["status"] != 400.0 || refused.Answer["code"] != "21211" || refused.Answer["accepted"] != false {
		t.Errorf("the refused one: %v", refused.Answer)
	}
	if m := all.Items[3]; m.Body != `{"a":1}` || m.To != hook || m.Headers["Webhook-Id"] != "w1" || m.Headers["X-Own"] != "mine" {
		t.Errorf("the webhook: %+v", m)
	}
	for query, want := range map[string]int{
		"?provider=twilio":                                               3,
		"?provider=twilio&to=%2B14155550100":                             1,
		"?to=+14155550100":                                               1, // a plus that nobody escaped
		"?to=" + url.QueryEscape(hook):                                   1,
		"?to=" + url.QueryEscape("/webhook/orders"):                      0,
		"?provider=webhook&to=" + url.QueryEscape("/webhook/orders?x=1"): 1,
		"?after=3": 1,
		"?after=" + url.QueryEscape(all.Items[1].ReceivedAt.Format(time.RFC3339Nano)): 2,
		"?provider=smtp": 0,
	} {
		if got := len(list(t, s, query).Items); got != want {
			t.Errorf("%s lists %d, want %d", query, got, want)
		}
	}
	if a := send(t, http.MethodDelete, s.HTTPURL()+"/sandbox/messages", ""); a.status != http.StatusNoContent {
		t.Errorf("forgetting answers %d", a.status)
	}
	sms(t, s, "+14155550100", "after")
	if l := list(t, s, ""); len(l.Items) != 1 || l.Items[0].Seq != 5 {
		t.Errorf("after forgetting: %+v", l.Items)
	}
}

func TestOnlyTheNewestMessagesAreKept(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{Capacity: 3})
	first := sms(t, s, "+14155550100", "0").json(t)["sid"].(string)
	for i := range 4 {
		sms(t, s, "+14155550100", strconv.Itoa(i+1))
	}
	l := list(t, s, "")
	if len(l.Items) != 3 || l.Items[0].Body != "2" || l.Items[2].Body != "4" || l.Items[2].Seq != 5 {
		t.Errorf("kept %+v", l.Items)
	}
	if a := lookUp(t, s, "Messages/"+first+".json"); a.status != http.StatusNotFound {
		t.Errorf("a forgotten message is found: %d", a.status)
	}
}

func TestConcurrentCallsAreAllRecordedOnce(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 25 {
				_, err := do(t, http.DefaultClient, http.MethodPost, s.HTTPURL()+"/webhook/"+strconv.Itoa(i), strconv.Itoa(j))
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for i, m := range s.Messages(sandbox.Filter{}) {
		if m.Seq != int64(i+1) {
			t.Fatalf("item %d has number %d", i, m.Seq)
		}
		seen[m.To+" "+m.Body] = true
	}
	if len(seen) != 200 {
		t.Errorf("%d different messages, want 200", len(seen))
	}
}

func TestTheControlAPIIsStrict(t *testing.T) {
	s := start(t, sandbox.Config{})
	for _, tt := range []struct{ method, path, body, code, names string }{
		{"PUT", "faults", `[{"provider":"twilio","tims":3,"answer":{"status":429}}]`, "unknown_field", "/0/tims"},
		{"PUT", "faults", `[{"answer":{"status":429,"retry":1}}]`, "unknown_field", "/0/answer/retry"},
		{"PUT", "faults", `[{"answer":{"status":"429"}}]`, "invalid_field", "/0/answer/status"},
		{"PUT", "faults", `[{"answer":{"delay":"soon"}}]`, "invalid_field", "/0/answer/delay"},
		{"PUT", "faults", `[{"provider":"x","answer":{"status":429}}]`, "invalid_field", "/0/provider"},
		{"PUT", "faults", `[`, "invalid_json", "body"},
		{"PUT", "receipts", `{"final":"delivered","often":2}`, "unknown_field", "/often"},
		{"PUT", "receipts", `{"final":"perhaps"}`, "invalid_field", "/final"},
		{"PUT", "receipts", `{"repeat":0}`, "invalid_field", "/repeat"},
		{"GET", "messages?form=x", ``, "unknown_parameter", "form"},
		{"GET", "messages?after=x", ``, "invalid_parameter", "after"},
		{"GET", "messages?provider=x", ``, "invalid_parameter", "provider"},
		{"GET", "subscription", ``, "invalid_parameter", "name"},
	} {
		t.Run(tt.path+" "+tt.body, func(t *testing.T) {
			a := send(t, tt.method, s.HTTPURL()+"/sandbox/"+tt.path, tt.body)
			p := a.json(t)
			if a.status != 400 || a.header.Get("Content-Type") != "application/problem+json" || p["code"] != tt.code ||
				!strings.Contains(p["detail"].(string), tt.names) {
				t.Errorf("answered %d %s, want %s naming %s", a.status, a.body, tt.code, tt.names)
			}
		})
	}
	if a := send(t, http.MethodPut, s.HTTPURL()+"/sandbox/faults", `[]`, "Sec-Fetch-Site", "cross-site"); a.status != http.StatusForbidden {
		t.Errorf("a page of another origin may steer the sandbox: %d", a.status)
	}
}

func TestFaultsAndReceiptsAreReadAsTheyWerePut(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	const rule = `{"provider":"twilio","to":"+14155550100","times":3,"answer":{"status":429,"headers":{"Retry-After":"2"},"body":{"code":20429},"delay":"2s"}}`
	for _, body := range []string{"[" + rule + "]", rule, `{"items":[` + rule + `]}`} {
		a := send(t, http.MethodPut, s.HTTPURL()+"/sandbox/faults", body)
		if want := `{"items":[` + rule + `]}`; a.status != 200 || a.body != want {
			t.Errorf("put %s: %d %s", body, a.status, a.body)
		}
	}
	if a := send(t, http.MethodGet, s.HTTPURL()+"/sandbox/faults", ""); len(a.json(t)["items"].([]any)) != 1 {
		t.Errorf("got %s", a.body)
	}
	if a := send(t, http.MethodPut, s.HTTPURL()+"/sandbox/faults", "[]"); a.body != `{"items":[]}` {
		t.Errorf("cleared: %s", a.body)
	}
	const receipts = `{"final":"read","delay":"1s","repeat":2,"shuffle":true,"before_answer":true}`
	if a := send(t, http.MethodPut, s.HTTPURL()+"/sandbox/receipts", receipts); a.body != receipts {
		t.Errorf("receipts: %s", a.body)
	}
	if a := send(t, http.MethodPut, s.HTTPURL()+"/sandbox/receipts", `{"final":"none"}`); a.body != `{"final":"none","delay":"300ms","repeat":1,"shuffle":false,"before_answer":false}` {
		t.Errorf("what is left out: %s", a.body)
	}
}

func TestCredentialsAndSubscriptionsAreHandedOut(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{PublicURL: "http://sandbox.internal:8090/"})
	endpoint, p256dh, auth := s.NewSubscription("ana")
	if endpoint != "http://sandbox.internal:8090/webpush/ana" || len(p256dh) != 87 || len(auth) != 22 {
		t.Errorf("subscription %q %q %q", endpoint, p256dh, auth)
	}
	open := start(t, sandbox.Config{})
	creds := send(t, http.MethodGet, open.HTTPURL()+"/sandbox/credentials", "").json(t)
	for provider, field := range map[string]string{"fcm": "credentials", "apns": "key", "webpush": "vapid_private_key"} {
		if creds[provider].(map[string]any)[field] == nil {
			t.Errorf("no %s for %s", field, provider)
		}
	}
	sub := send(t, http.MethodGet, open.HTTPURL()+"/sandbox/subscription?name=ana", "").json(t)
	if sub["keys"].(map[string]any)["p256dh"] != p256dh || sub["endpoint"] != open.HTTPURL()+"/webpush/ana" {
		t.Errorf("subscription %v", sub)
	}
}

func TestUnknownPathsAreNotFound(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	for _, path := range []string{"/nothing", "/v23.0/messages", "/sandbox/nothing"} {
		if a := send(t, http.MethodPost, s.HTTPURL()+path, "{}"); a.status != 404 && a.status != 405 {
			t.Errorf("%s answers %d", path, a.status)
		}
	}
	for _, method := range []string{"GET", "PUT", "DELETE", "POST"} {
		if a := send(t, method, s.HTTPURL()+"/webhook/x/y/messages", ""); a.status != 200 {
			t.Errorf("a webhook by %s answers %d", method, a.status)
		}
	}
}
