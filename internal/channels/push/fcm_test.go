package push

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	fcmAccess = "ya29.c.access-token"
	fcmName   = "projects/demo-project/messages/0:1500415314455276%31bd1c9631bd1c96"
)

func serviceAccountJSON(tb testing.TB, tokenURI string) string {
	tb.Helper()
	b, err := json.Marshal(serviceAccount{
		Type: "service_account", ProjectID: "demo-project", PrivateKeyID: "key-1", PrivateKey: pemOf(tb, rsaKey()),
		ClientEmail: "dispatcher@demo-project.iam.gserviceaccount.com", TokenURI: tokenURI,
	})
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

func newFCM(tb testing.TB, base string) *FCM {
	tb.Helper()
	p, err := NewFCM("fcm-main", FCMConfig{Credentials: secret.New(serviceAccountJSON(tb, base+"/token")), BaseURL: base})
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

func grantToken(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"access_token":"`+fcmAccess+`","expires_in":3599,"token_type":"Bearer"}`)
}

func acceptFCM(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"name":"`+fcmName+`"}`)
}

// fcmError is an error answer of FCM; details are the texts of JSON objects.
func fcmError(status, message string, details ...string) string {
	return `{"error":{"code":400,"message":"` + message + `","status":"` + status + `","details":[` + strings.Join(details, ",") + `]}}`
}

func fcmCode(errorCode string) string {
	return `{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"` + errorCode + `"}`
}

func badRequest(field string) string {
	return `{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"` + field + `","description":"Invalid value"}]}`
}

func quotaFailure(description string) string {
	return `{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"subject":"project:1","description":"` + description + `"}]}`
}

func fcmTable() []channeltest.Case {
	device := deviceScope(deviceMessage(ProviderFCM).To)
	after := http.Header{"Retry-After": {"7"}}
	return []channeltest.Case{
		{
			Name: "UNREGISTERED", Status: 404, Body: fcmError("NOT_FOUND", "Requested entity was not found.", fcmCode("UNREGISTERED")),
			Want: channels.Result{Outcome: notify.RecipientRejected, Code: "UNREGISTERED", Suppress: true, HTTPStatus: 404},
		},
		{
			Name: "404 without FCM's code", Status: 404, Body: fcmError("NOT_FOUND", "Requested entity was not found."),
			Want: channels.Result{Outcome: notify.AccountRejected, Code: "NOT_FOUND"},
		},
		{
			Name: "404 page", Status: 404, Body: "<!DOCTYPE html><title>Error 404 (Not Found)!!1</title>",
			Want: channels.Result{Outcome: notify.AccountRejected},
		},
		{
			Name: "INVALID_ARGUMENT of the token", Status: 400, Body: fcmError("INVALID_ARGUMENT", "Invalid registration", badRequest("message.token"), fcmCode("INVALID_ARGUMENT")),
			Want: channels.Result{Outcome: notify.RecipientRejected, Code: "INVALID_ARGUMENT", Suppress: true},
		},
		{
			Name: "INVALID_ARGUMENT of a token that cannot be parsed", Status: 400,
			Body: fcmError("INVALID_ARGUMENT", "The registration token is not a valid FCM registration token", fcmCode("INVALID_ARGUMENT")),
			Want: channels.Result{Outcome: notify.RecipientRejected, Code: "INVALID_ARGUMENT", Suppress: true},
		},
		{
			Name: "INVALID_ARGUMENT of another field", Status: 400, Body: fcmError("INVALID_ARGUMENT", "Invalid data payload key: from", badRequest("message.data[0].key"), fcmCode("INVALID_ARGUMENT")),
			Want: channels.Result{Outcome: notify.MessageRejected, Code: "INVALID_ARGUMENT"},
		},
		{
			Name: "INVALID_ARGUMENT of no field", Status: 400, Body: fcmError("INVALID_ARGUMENT", "Message is too big", fcmCode("INVALID_ARGUMENT")),
			Want: channels.Result{Outcome: notify.MessageRejected, Code: "INVALID_ARGUMENT"},
		},
		{
			Name: "BadRequest without FCM's code", Status: 400, Body: fcmError("INVALID_ARGUMENT", "Invalid JSON payload received.", badRequest("message.foo")),
			Want: channels.Result{Outcome: notify.MessageRejected, Code: "INVALID_ARGUMENT"},
		},
		{
			Name: "BadRequest of the token without FCM's code", Status: 400, Body: fcmError("INVALID_ARGUMENT", "Invalid value", badRequest("message.token")),
			Want: channels.Result{Outcome: notify.RecipientRejected, Suppress: true},
		},
		{
			Name: "SENDER_ID_MISMATCH", Status: 403, Body: fcmError("PERMISSION_DENIED", "SenderId mismatch", fcmCode("SENDER_ID_MISMATCH")),
			Want: channels.Result{Outcome: notify.RecipientRejected, Code: "SENDER_ID_MISMATCH"},
		},
		{
			Name: "403 without FCM's code", Status: 403, Body: fcmError("PERMISSION_DENIED", "Permission denied"),
			Want: channels.Result{Outcome: notify.AccountRejected, Code: "PERMISSION_DENIED"},
		},
		{
			Name: "QUOTA_EXCEEDED of the project", Status: 429, Body: fcmError("RESOURCE_EXHAUSTED", "Quota exceeded", quotaFailure("Message rate exceeded"), fcmCode("QUOTA_EXCEEDED")),
			Want: channels.Result{Outcome: notify.Throttled, Code: "QUOTA_EXCEEDED", RetryAfter: time.Minute},
		},
		{
			Name: "QUOTA_EXCEEDED with Retry-After", Status: 429, Header: after, Body: fcmError("RESOURCE_EXHAUSTED", "Quota exceeded", fcmCode("QUOTA_EXCEEDED")),
			Want: channels.Result{Outcome: notify.Throttled, Code: "QUOTA_EXCEEDED", RetryAfter: 7 * time.Second},
		},
		{
			Name: "QUOTA_EXCEEDED of the device", Status: 429, Body: fcmError("RESOURCE_EXHAUSTED", "Quota exceeded", quotaFailure("Device message rate exceeded"), fcmCode("QUOTA_EXCEEDED")),
			Want: channels.Result{Outcome: notify.Throttled, Code: "QUOTA_EXCEEDED", RetryAfter: time.Minute, Scope: device},
		},
		{
			Name: "RESOURCE_EXHAUSTED without FCM's code", Status: 429, Body: fcmError("RESOURCE_EXHAUSTED", "Quota exceeded"),
			Want: channels.Result{Outcome: notify.Throttled, Code: "RESOURCE_EXHAUSTED", RetryAfter: time.Minute},
		},
		{
			Name: "UNAVAILABLE", Status: 503, Body: fcmError("UNAVAILABLE", "The service is currently unavailable.", fcmCode("UNAVAILABLE")),
			Want: channels.Result{Outcome: notify.Unknown, Code: "UNAVAILABLE"},
		},
		{
			Name: "UNAVAILABLE with Retry-After", Status: 503, Header: after, Body: fcmError("UNAVAILABLE", "The service is currently unavailable.", fcmCode("UNAVAILABLE")),
			Want: channels.Result{Outcome: notify.Unknown, Code: "UNAVAILABLE", RetryAfter: 7 * time.Second},
		},
		{
			Name: "INTERNAL", Status: 500, Body: fcmError("INTERNAL", "Internal error encountered.", fcmCode("INTERNAL")),
			Want: channels.Result{Outcome: notify.ProviderUnavailable, Code: "INTERNAL"},
		},
		{
			Name: "THIRD_PARTY_AUTH_ERROR", Status: 401, Body: fcmError("UNAUTHENTICATED", "Auth error from APNS or Web Push Service", fcmCode("THIRD_PARTY_AUTH_ERROR")),
			Want: channels.Result{Outcome: notify.AccountRejected, Code: "THIRD_PARTY_AUTH_ERROR"},
		},
		{
			Name: "UNSPECIFIED_ERROR", Status: 400, Body: fcmError("UNKNOWN", "No more information is available", fcmCode("UNSPECIFIED_ERROR")),
			Want: channels.Result{Outcome: notify.ProviderUnavailable, Code: "UNSPECIFIED_ERROR"},
		},
		{
			Name: "a code of tomorrow", Status: 400, Body: fcmError("FAILED_PRECONDITION", "?", fcmCode("SOMETHING_NEW")),
			Want: channels.Result{Outcome: notify.MessageRejected, Code: "SOMETHING_NEW"},
		},
		{
			Name: "401 without FCM's code", Status: 401, Body: fcmError("UNAUTHENTICATED", "Request had invalid authentication credentials."),
			Want: channels.Result{Outcome: notify.AccountRejected, Code: "UNAUTHENTICATED"},
		},
		{
			Name: "502 page", Status: 502, Body: "<html><title>Error 502 (Server Error)!!1</title>",
			Want: channels.Result{Outcome: notify.ProviderUnavailable, RetryAfter: 30 * time.Second},
		},
		{Name: "504 page", Status: 504, Body: "<html>", Want: channels.Result{Outcome: notify.Unknown}},
		{Name: "success without a name", Status: 200, Body: `{"name":""}`, Want: channels.Result{Outcome: notify.Unknown}},
	}
}

func TestFCM(t *testing.T) {
	channeltest.Run(t, channeltest.Suite{
		New:          func(t *testing.T, base string) channels.Provider { return newFCM(t, base) },
		Message:      func(string) *channels.Message { return deviceMessage(ProviderFCM) },
		Accept:       acceptFCM,
		Want:         channels.Result{Outcome: notify.Accepted, Status: notify.Sent, MessageID: fcmName, HTTPStatus: 200},
		Table:        fcmTable(),
		Secrets:      []string{fcmAccess, "iam.gserviceaccount.com", testKey.String()},
		ServerErrors: map[int]notify.Outcome{503: notify.Unknown, 504: notify.Unknown},
		Aside:        map[string]http.HandlerFunc{"/token": grantToken},
	})
}

// fcmServer keeps the last message and its header.
type fcmServer struct {
	*httptest.Server
	body   []byte
	path   string
	bearer string
}

func newFCMServer(t *testing.T) *fcmServer {
	t.Helper()
	s := &fcmServer{}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", grantToken)
	mux.HandleFunc("POST /", func(w http.ResponseWriter, r *http.Request) {
		s.body, _ = io.ReadAll(r.Body)
		s.path, s.bearer = r.URL.Path, r.Header.Get("Authorization")
		acceptFCM(w, r)
	})
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestFCMMessageForEveryPlatform(t *testing.T) {
	t.Parallel()
	srv := newFCMServer(t)
	p := newFCM(t, srv.URL)
	now := time.Date(2026, 12, 1, 8, 0, 0, 0, time.UTC)
	p.now = func() time.Time { return now }
	m := deviceMessage(ProviderFCM)
	m.ExpiresAt = now.Add(time.Hour)
	m.Content.Push = &notify.PushContent{
		Image: "https://example.com/a.png",
		Data:  jsontext.Value(`{"text":"a \"b\"","n":1.50,"ok":true,"none":null,"list":[1, 2],"obj":{"a": "b"}}`),
	}
	if r := p.Send(t.Context(), m); r.Outcome != notify.Accepted {
		t.Fatalf("%+v", r)
	}
	want := `{"message":{
		"token":"` + testToken + `",
		"notification":{"title":"Deploy failed","body":"api: 3 of 5 pods are down","image":"https://example.com/a.png"},
		"data":{"text":"a \"b\"","n":"1.50","ok":"true","none":"null","list":"[1,2]","obj":"{\"a\":\"b\"}"},
		"android":{"priority":"HIGH","ttl":"3600s","notification":{"tag":"0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"}},
		"apns":{"headers":{"apns-collapse-id":"0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b","apns-priority":"10","apns-expiration":"1796115600"},
			"payload":{"aps":{"sound":"default","mutable-content":1}}},
		"webpush":{"headers":{"TTL":"3600","Urgency":"high","Topic":"` + topic(testKey.String()) + `"},
			"notification":{"tag":"0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"}}}}`
	var got, wanted any
	if err := json.Unmarshal(srv.body, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(wanted, got); d != "" {
		t.Error(d)
	}
	if srv.path != "/v1/projects/demo-project/messages:send" || srv.bearer != "Bearer "+fcmAccess {
		t.Errorf("path %s, authorization %s", srv.path, srv.bearer)
	}
}

func TestFCMCollapseKeyIsTheCallersAlone(t *testing.T) {
	t.Parallel()
	srv := newFCMServer(t)
	p := newFCM(t, srv.URL)
	m := deviceMessage(ProviderFCM)
	m.Content.Push = &notify.PushContent{CollapseKey: "incident-4711"}
	m.Priority = notify.Low
	if r := p.Send(t.Context(), m); r.Outcome != notify.Accepted {
		t.Fatalf("%+v", r)
	}
	for path, want := range map[string]string{
		"message/android/collapse_key":             "incident-4711",
		"message/android/notification/tag":         "incident-4711",
		"message/android/priority":                 "NORMAL",
		"message/android/ttl":                      "2419200s",
		"message/apns/headers/apns-collapse-id":    "incident-4711",
		"message/apns/headers/apns-priority":       "5",
		"message/apns/payload/aps/sound":           "",
		"message/apns/payload/aps/mutable-content": "",
		"message/webpush/headers/Urgency":          "low",
		"message/webpush/headers/Topic":            topic("incident-4711"),
	} {
		if got := at(t, srv.body, path); got != want {
			t.Errorf("%s is %q, want %q", path, got, want)
		}
	}
}

func TestFCMChecksTheMessage(t *testing.T) {
	t.Parallel()
	p := newFCM(t, "http://127.0.0.1:1")
	data := func(text string) func(*channels.Message) {
		return func(m *channels.Message) { m.Content.Data = jsontext.Value(text) }
	}
	runChecks(t, p, func() *channels.Message { return deviceMessage(ProviderFCM) }, []checkCase{
		{"no token", func(m *channels.Message) { m.To.Device.Token = "" }, "/to/push/token"},
		{"a reserved key", data(`{"from":"x"}`), "/content/data"},
		{"a key that is reserved by its prefix", data(`{"google.a":"x"}`), "/content/data"},
		{"a key of the old service", data(`{"gcm.n.e":"1"}`), "/content/data"},
		{"the message's type as a key", data(`{"message_type":"x"}`), "/content/data"},
		{"an empty key", data(`{"":"x"}`), "/content/data"},
		{"a key that only looks reserved", data(`{"from_user":"x"}`), ""},
		{"a collapse key of 65 bytes", func(m *channels.Message) {
			m.Content.Push = &notify.PushContent{CollapseKey: strings.Repeat("k", 65)}
		}, "/content/push/collapse_key"},
		{"data too big", data(`{"a":"` + strings.Repeat("x", 4096) + `"}`), "/content/push"},
	})
	t.Run("at the size limit", func(t *testing.T) {
		t.Parallel()
		m := deviceMessage(ProviderFCM)
		m.Content.Data = nil
		m.Content.Title = ""
		m.Content.Body = strings.Repeat("x", fcmMaxPayload-len(`{"notification":{"body":""}}`))
		checkRefusal(t, p, m, "")
		m.Content.Body += "x"
		checkRefusal(t, p, m, "/content/push")
	})
	checkExpired(t, p, deviceMessage(ProviderFCM), time.Now())
}

func TestFCMConfigNamesEveryProblem(t *testing.T) {
	t.Parallel()
	_, err := NewFCM("a", FCMConfig{BaseURL: "ftp://x"})
	checkProblems(t, err, []string{"credentials", "base_url"})

	_, err = NewFCM("a", FCMConfig{Credentials: secret.New("hunter2"), Project: "../x", BaseURL: "https://u:hunter2@h/"})
	checkProblems(t, err, []string{"credentials", "project", "base_url"}, "hunter2")

	_, err = NewFCM("a", FCMConfig{Credentials: secret.New(`{"type":"authorized_user","private_key":"hunter2","token_uri":"file:///hunter2"}`)})
	checkProblems(t, err, []string{"credentials", "project"}, "hunter2")
	for _, part := range []string{"type", "client_email", "token_uri", "private_key"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s is not named in:\n%v", part, err)
		}
	}

	p, err := NewFCM("a", FCMConfig{Credentials: secret.New(serviceAccountJSON(t, "https://oauth2.googleapis.com/token")), Project: "other-project"})
	if err != nil {
		t.Fatal(err)
	}
	if want := "https://fcm.googleapis.com/v1/projects/other-project/messages:send"; p.endpoint != want {
		t.Errorf("endpoint %s, want %s", p.endpoint, want)
	}
}

func BenchmarkFCMSend(b *testing.B) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /token", grantToken)
	mux.HandleFunc("POST /", acceptFCM)
	srv := httptest.NewServer(mux)
	b.Cleanup(srv.Close)
	benchmarkSend(b, newFCM(b, srv.URL), deviceMessage(ProviderFCM))
}

func benchmarkSend(b *testing.B, p channels.Provider, m *channels.Message) {
	b.Helper()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if r := p.Send(b.Context(), m); r.Outcome != notify.Accepted {
				b.Errorf("%+v", r)
				return
			}
		}
	})
}
