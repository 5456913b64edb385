package httpapi_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

const good = `{"to":{"sms":"+14155550100"},"content":{"body":"hi"},"reference":"r-1"}`

func TestPostAcceptsANotification(t *testing.T) {
	s := newService(t)
	a := s.do(t, "POST", "/v1/notifications", good, header{"Traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}).want(202)
	n := s.accepted[0].Notification
	if n.Project != "acme" || n.To.SMS != "+14155550100" || n.Reference != "r-1" || !n.CreatedAt.Equal(noon) || n.ID.Version() != 7 {
		t.Errorf("accepted %+v", n)
	}
	if n.Trace != "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01" {
		t.Errorf("trace %q", n.Trace)
	}
	if got := a.Header().Get("Location"); got != "/v1/notifications/"+n.ID.String() {
		t.Errorf("Location %q", got)
	}
	want := `{"id":"` + n.ID.String() + `","status":"queued","chain":[{"channel":"sms","success":"accepted","attempts":4}]}`
	if got := a.Body.String(); got != want {
		t.Errorf("answer %s, want %s", got, want)
	}
	if got := a.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	if a := s.accepted[0]; a.Key != "" || a.Fingerprint != [32]byte{} {
		t.Errorf("an idempotency key %q where none was sent", a.Key)
	}
}

func TestPostSaysUntilWhenANotificationWaits(t *testing.T) {
	s := newService(t)
	var got struct {
		Chain   []map[string]any  `json:"chain"`
		Waiting map[string]string `json:"waiting"`
	}
	s.do(t, "POST", "/v1/notifications", `{"to":{"sms":"+14155550100","email":"a@b.c"},"content":{"title":"t","body":"b"},
		"priority":"critical","send_at":"2026-12-02T00:00:00+01:00"}`).want(202).into(&got)
	if got.Waiting["reason"] != "scheduled" || got.Waiting["until"] != "2026-12-01T23:00:00Z" {
		t.Errorf("waiting %v", got.Waiting)
	}
	if len(got.Chain) != 2 || got.Chain[0]["within"] != "30s" || got.Chain[1]["within"] != nil {
		t.Errorf("chain %v", got.Chain)
	}
}

func TestPostIgnoresATraceparentThatIsNone(t *testing.T) {
	for _, trace := range []string{"x", "00-00000000000000000000000000000000-b7ad6b7169203331-01", "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"} {
		s := newService(t)
		s.do(t, "POST", "/v1/notifications", good, header{"Traceparent", trace}).want(202)
		if got := s.accepted[0].Notification.Trace; got != "" {
			t.Errorf("trace %q was taken", got)
		}
	}
}

func TestIdempotencyKeyReplaysTheAnswer(t *testing.T) {
	s := newService(t)
	key := header{"Idempotency-Key", `"k-1"`}
	first := s.do(t, "POST", "/v1/notifications", good, key).want(202)
	if got := first.Header().Get("Idempotent-Replayed"); got != "" {
		t.Errorf("the first answer says Idempotent-Replayed: %s", got)
	}
	// The same JSON in other white space, order and escapes, with the key bare.
	same := `{ "content" : {"body":"h\u0069"}, "reference":"r-1", "to":{"sms":"+14155550100"}}`
	again := s.do(t, "POST", "/v1/notifications", same, header{"Idempotency-Key", "k-1"}).want(202)
	if again.Header().Get("Idempotent-Replayed") != "true" {
		t.Error("the repeat does not say that it is one")
	}
	if again.Body.String() != first.Body.String() || again.Header().Get("Location") != first.Header().Get("Location") {
		t.Errorf("the repeat answers %s, the first %s", again.Body, first.Body)
	}
	if len(s.accepted) != 1 {
		t.Errorf("%d notifications, want 1", len(s.accepted))
	}
	p := s.do(t, "POST", "/v1/notifications", strings.Replace(good, "hi", "ho", 1), key).problem(422, "idempotency_key_mismatch")
	if diff := cmp.Diff([]string{"header.Idempotency-Key conflict"}, places(p)); diff != "" {
		t.Error(diff)
	}
	// Numbers that are one float64 are two notifications all the same.
	big := `{"to":{"sms":"+14155550100"},"content":{"body":"hi"},"metadata":{"n":9007199254740993}}`
	s.do(t, "POST", "/v1/notifications", big, header{"Idempotency-Key", "k-2"}).want(202)
	s.do(t, "POST", "/v1/notifications", strings.Replace(big, "993", "992", 1), header{"Idempotency-Key", "k-2"}).problem(422, "idempotency_key_mismatch")
	// Keys of another project are others.
	other := s.do(t, "POST", "/v1/notifications", good, key, header{"Authorization", "Bearer dsp_other"}).want(202)
	if other.Body.String() == first.Body.String() {
		t.Error("another project got the answer")
	}
}

func TestIdempotencyKeyHasAShape(t *testing.T) {
	for _, key := range []string{`"a b"`, `"a\"b\\"`, "8e03978e-40d5-43dd-bc93-6894a57f9324", strings.Repeat("k", 255), `"` + strings.Repeat("k", 255) + `"`} {
		newService(t).do(t, "POST", "/v1/notifications", good, header{"Idempotency-Key", key}).want(202)
	}
	for _, key := range []string{`""`, `" "`, `"a`, `a"`, `"a"b`, `"a\b"`, `"a";x=1`, "a b", "a,b", "schlüssel", strings.Repeat("k", 256)} {
		s := newService(t)
		p := s.do(t, "POST", "/v1/notifications", good, header{"Idempotency-Key", key}).problem(422, "invalid_request")
		if got := places(p); !slices.Equal(got, []string{"header.Idempotency-Key format"}) || s.writes != 0 {
			t.Errorf("key %q: errors %v, %d writes", key, got, s.writes)
		}
	}
	p := newService(t).do(t, "POST", "/v1/notifications", good, header{"Idempotency-Key", "a"}, header{"Idempotency-Key", "b"}).problem(422, "invalid_request")
	if got := places(p); !slices.Equal(got, []string{"header.Idempotency-Key duplicate"}) {
		t.Errorf("errors %v", got)
	}
}

func TestPostAsksTheProviders(t *testing.T) {
	s := newService(t)
	s.problems = []notify.Problem{{Pointer: "/content/sms/body", Code: notify.CodeLength, Detail: "must be at most 1600 characters"}}
	p := s.do(t, "POST", "/v1/notifications", good).problem(422, "invalid_request")
	if got := places(p); !slices.Equal(got, []string{"/content/sms/body length"}) || s.writes != 0 {
		t.Errorf("errors %v, %d writes", got, s.writes)
	}
}

func TestErrorsOfTheStoreBecomeProblems(t *testing.T) {
	secret := "+14155550199"
	tests := []struct {
		name   string
		err    error
		status int
		code   string
		retry  string
	}{
		{"a broken connection", errors.New("dial tcp: " + secret), 503, "unavailable", "1"},
		{"a server that shuts down", &pgconn.PgError{Code: "57P01", Message: secret}, 503, "unavailable", "1"},
		{"a value that the database refuses", &pgconn.PgError{Code: "22P05", Message: secret}, 422, "invalid_request", ""},
		{"a fault of ours", &pgconn.PgError{Code: "42601", Message: secret}, 500, "internal", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newService(t)
			s.err = tt.err
			a := s.do(t, "POST", "/v1/notifications", good)
			a.problem(tt.status, tt.code)
			if strings.Contains(a.Body.String(), secret) {
				t.Errorf("the answer holds the error's text: %s", a.Body)
			}
			if got := a.Header().Get("Retry-After"); got != tt.retry {
				t.Errorf("Retry-After %q, want %q", got, tt.retry)
			}
		})
	}
}

func TestGetShowsTheWholeStory(t *testing.T) {
	s := newService(t)
	id := uuid.MustParse("0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b")
	at := func(n int) time.Time { return noon.Add(time.Duration(n) * time.Second) }
	delivery := func(step, target, targets int16, status notify.Status, final bool) store.Delivery {
		d := store.Delivery{
			DeliveryID: store.DeliveryID{Notification: id, Step: step, Target: target}, Targets: targets, Status: status, Final: final,
		}
		if final {
			d.FinishedAt = at(2)
		}
		return d
	}
	first, second, sms := delivery(0, 0, 2, notify.Failed, true), delivery(0, 1, 2, notify.Failed, true), delivery(1, 0, 1, notify.Sent, false)
	email, slack := delivery(3, 0, 1, notify.Waiting, false), delivery(4, 0, 1, notify.Sent, true)
	email.Because, slack.Because = "backoff", "accepted" // neither ended without success
	first.Because, first.StartedWhy, first.Account = "recipient_rejected", "first", "fcm-main"
	second.Because, second.StartedWhy = "recipient_rejected", "first"
	sms.StartedWhy, sms.Account = "fallback: recipient_rejected", "sms-poor"
	s.records = []store.Record{{
		Notification: notify.Notification{
			ID: id, Project: "acme", Mode: notify.First, Priority: notify.High, Reference: "incident-4711",
			Metadata: []byte(`{"n":1.50}`), CreatedAt: at(0), SendAt: at(0), ExpiresAt: at(86400),
			Chain: []notify.Step{
				{Channel: notify.Push, Success: notify.UntilAccepted, Within: notify.Duration(2 * time.Minute), Attempts: 4},
				{Channel: notify.SMS, Success: notify.UntilDelivered, Attempts: 2, OnUnknown: notify.Resend},
				{Channel: notify.WhatsApp, Success: notify.UntilAccepted, Attempts: 4},
				{Channel: notify.Email, Success: notify.UntilAccepted, Attempts: 4},
				{Channel: notify.Slack, Success: notify.UntilAccepted, Attempts: 4},
			},
		},
		Deliveries: []store.Delivery{first, second, sms, email, slack},
		Waits: []store.Wait{
			{DeliveryID: sms.DeliveryID, Reason: notify.WaitReceipt, Due: at(90)},
			{DeliveryID: email.DeliveryID, Reason: notify.WaitBackoff, Due: at(60)},
		},
		Attempts: []store.Attempt{
			{DeliveryID: first.DeliveryID, N: 1, Account: "fcm-main", StartedAt: at(1), Duration: 41500 * time.Microsecond, Outcome: notify.RecipientRejected, HTTPStatus: 404, ProviderCode: "UNREGISTERED"},
			{DeliveryID: second.DeliveryID, N: 1, Account: "fcm-main", StartedAt: at(1), Duration: 40 * time.Millisecond, Outcome: notify.RecipientRejected, HTTPStatus: 404, ProviderCode: "UNREGISTERED"},
			{DeliveryID: sms.DeliveryID, N: 1, Account: "twilio-main", StartedAt: at(3), Duration: time.Second, Outcome: notify.Throttled, HTTPStatus: 429, RetryAfter: 2 * time.Second},
			{DeliveryID: sms.DeliveryID, N: 2, Account: "sms-poor", StartedAt: at(5), Duration: 118 * time.Millisecond, Outcome: notify.Accepted, HTTPStatus: 201, ProviderMessageID: "SM1", PossibleDuplicate: true},
		},
	}}
	var got, want any
	a := s.do(t, "GET", "/v1/notifications/"+id.String(), "").want(200)
	a.into(&got)
	answer{bodyOf(`{
		"id":"0193a1b2-7c3d-7e4f-8a5b-6c7d8e9f0a1b","status":"sending","reference":"incident-4711","priority":"high","mode":"first",
		"created_at":"2026-12-01T12:00:00Z","send_at":"2026-12-01T12:00:00Z","expires_at":"2026-12-02T12:00:00Z",
		"finished_at":null,"canceled_at":null,"acknowledged_at":null,
		"waiting":{"reason":"backoff","until":"2026-12-01T12:01:00Z"},"metadata":{"n":1.50},
		"steps":[
		 {"channel":"push","success":"accepted","within":"2m0s","max_attempts":4,"max_observable":"sent","status":"failed",
		  "because":"recipient_rejected","started_because":"first","targets":2,"attempts":[
		   {"account":"fcm-main","n":1,"started_at":"2026-12-01T12:00:01Z","duration_ms":41.5,"outcome":"recipient_rejected","http_status":404,"provider_code":"UNREGISTERED"},
		   {"account":"fcm-main","target":1,"n":1,"started_at":"2026-12-01T12:00:01Z","duration_ms":40,"outcome":"recipient_rejected","http_status":404,"provider_code":"UNREGISTERED"}]},
		 {"channel":"sms","success":"delivered","max_attempts":2,"on_unknown":"resend","max_observable":"sent","status":"sent",
		  "started_because":"fallback: recipient_rejected","targets":1,"waiting":{"reason":"receipt","until":"2026-12-01T12:01:30Z"},"attempts":[
		   {"account":"twilio-main","n":1,"started_at":"2026-12-01T12:00:03Z","duration_ms":1000,"outcome":"throttled","http_status":429,"retry_after_ms":2000},
		   {"account":"sms-poor","n":2,"started_at":"2026-12-01T12:00:05Z","duration_ms":118,"outcome":"accepted","http_status":201,"provider_message_id":"SM1","possible_duplicate":true}]},
		 {"channel":"whatsapp","success":"accepted","max_attempts":4,"max_observable":"read","status":"pending"},
		 {"channel":"email","success":"accepted","max_attempts":4,"max_observable":"delivered","status":"waiting","targets":1,
		  "waiting":{"reason":"backoff","until":"2026-12-01T12:01:00Z"}},
		 {"channel":"slack","success":"accepted","max_attempts":4,"max_observable":"sent","status":"sent","targets":1}]}`), t}.into(&want)
	status, _ := s.records[0].Overall() // what that is, is decided elsewhere
	want.(map[string]any)["status"] = string(status)
	delete(got.(map[string]any), "timeline") // see TestTheTimelineTellsTheStoryInOrder
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("notification (-want +got):\n%s", diff)
	}
	if !strings.Contains(a.Body.String(), `"metadata":{"n":1.50}`) {
		t.Errorf("metadata is not as it was sent: %s", a.Body)
	}
}

func TestGetFindsNothingOfOtherProjects(t *testing.T) {
	s := newService(t)
	id := uuid.Must(uuid.NewV7())
	s.records = []store.Record{{Notification: notify.Notification{ID: id, Project: "acme"}}}
	s.canceled[id] = store.Canceled
	s.do(t, "GET", "/v1/notifications/"+id.String(), "").want(200)
	s.do(t, "POST", "/v1/notifications/"+id.String()+"/cancel", "").want(200)
	other := header{"Authorization", "Bearer dsp_other"}
	s.do(t, "GET", "/v1/notifications/"+id.String(), "", other).problem(404, "not_found")
	s.do(t, "POST", "/v1/notifications/"+id.String()+"/cancel", "", other).problem(404, "not_found")
	for _, no := range []string{uuid.NewString(), "x", "%00", "{" + id.String() + "}", "urn:uuid:" + id.String(), strings.ReplaceAll(id.String(), "-", "")} {
		s.do(t, "GET", "/v1/notifications/"+no, "").problem(404, "not_found")
		s.do(t, "POST", "/v1/notifications/"+no+"/cancel", "").problem(404, "not_found")
	}
}

func TestCancelIsDefinitive(t *testing.T) {
	for _, result := range []store.CancelResult{store.Canceled, store.TooLate, store.AlreadyFinal} {
		for _, body := range []string{"", "{}"} {
			s := newService(t)
			id := uuid.Must(uuid.NewV7())
			s.canceled[id] = result
			a := s.do(t, "POST", "/v1/notifications/"+id.String()+"/cancel", body).want(200)
			if got, want := a.Body.String(), `{"result":"`+string(result)+`"}`; got != want {
				t.Errorf("answer %s, want %s", got, want)
			}
		}
	}
	s := newService(t)
	p := s.do(t, "POST", "/v1/notifications/"+uuid.NewString()+"/cancel", `{"force":true}`).problem(422, "invalid_request")
	if got := places(p); !slices.Equal(got, []string{"/force unknown_member"}) || s.writes != 0 {
		t.Errorf("errors %v, %d writes", got, s.writes)
	}
}

func TestHandlersPanicIsAProblemWithoutItsText(t *testing.T) {
	s := newService(t)
	s.panics = true
	a := s.do(t, "POST", "/v1/notifications", good)
	a.problem(http.StatusInternalServerError, "internal")
	if strings.Contains(a.Body.String()+s.log.String(), "secret of") {
		t.Errorf("answer or log hold the panic's text: %s %s", a.Body, s.log)
	}
	if !strings.Contains(s.log.String(), "part=request") {
		t.Errorf("the log says nothing: %s", s.log)
	}
}
