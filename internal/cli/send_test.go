package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const notificationID = "01937f00-0000-7000-8000-000000000001"

// service is a stand-in for the API. It keeps what it was sent and answers each
// GET with the next of its views, the last one for ever.
type service struct {
	*httptest.Server
	mu     sync.Mutex
	header http.Header
	path   string
	body   string
	refuse string // a problem document to answer a POST with
	views  []string
	gets   int
	looked chan struct{} // told of every GET of a view, as far as there is room
	// events answers what asks for events; nil for a service that has none.
	events http.HandlerFunc
}

func newService(t *testing.T, views ...string) *service {
	t.Helper()
	s := &service{views: views, looked: make(chan struct{}, 100)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		s.get(w, r)
		return
	}
	body, _ := io.ReadAll(r.Body)
	s.header, s.path, s.body = r.Header, r.URL.String(), string(body)
	if s.refuse != "" {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, s.refuse)
		return
	}
	w.WriteHeader(http.StatusAccepted)
	_, _ = io.WriteString(w, `{"id":"`+notificationID+`","status":"queued","chain":[]}`)
}

func (s *service) get(w http.ResponseWriter, r *http.Request) {
	if strings.HasSuffix(r.URL.Path, "/events") {
		s.stream(w, r)
		return
	}
	view := s.views[min(s.gets, len(s.views)-1)]
	s.gets++
	select {
	case s.looked <- struct{}{}:
	default:
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer dsp_test", r.URL.Path != "/v1/notifications/"+notificationID:
		w.WriteHeader(http.StatusNotFound)
	case view == "away":
		w.WriteHeader(http.StatusServiceUnavailable)
	default:
		_, _ = io.WriteString(w, view)
	}
}

// stream lets events answer while other requests are served.
func (s *service) stream(w http.ResponseWriter, r *http.Request) {
	if s.events == nil {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	s.events(w, r)
}

func (s *service) env() []string {
	return []string{"DISPATCHER_URL=" + s.URL, "DISPATCHER_KEY=dsp_test"}
}

// sent returns the body as JSON.
func (s *service) sent(t *testing.T) any {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	return parse(t, s.body)
}

func parse(t *testing.T, text string) any {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return v
}

func TestSendMakesTheNotificationFromFlags(t *testing.T) {
	s := newService(t)
	r := run(t, s.env(), "send", "--to-push", "fcm:T:1", "--to-push", "apns:t2", "--to-sms", "+14155550100", "--to-whatsapp", "+14155550101",
		"--to-email", "ana@example.com", "--to-slack", "#ops", "--to-webhook", "https://example.com/h", "--title", "T", "--body", "B",
		"--chain", "push, sms,email", "--within", "90s", "--mode", "first", "--priority", "high", "--reference", "r", "--send-at",
		"2026-12-01T08:00:00Z", "--expires-at", "2026-12-01T09:00:00Z", "--idempotency-key", "k1")
	r.want(t, 0)
	if r.stdout != notificationID+" queued\n" {
		t.Errorf("stdout = %q", r.stdout)
	}
	want := parse(t, `{"to":{"push":[{"provider":"fcm","token":"T:1"},{"provider":"apns","token":"t2"}],"sms":"+14155550100",
		"whatsapp":"+14155550101","email":"ana@example.com","slack":{"channel":"#ops"},"webhook":{"url":"https://example.com/h"}},
		"content":{"title":"T","body":"B"},
		"chain":[{"channel":"push","within":"90s"},{"channel":"sms","within":"90s"},{"channel":"email"}],
		"mode":"first","priority":"high","reference":"r","send_at":"2026-12-01T08:00:00Z","expires_at":"2026-12-01T09:00:00Z"}`)
	if diff := cmp.Diff(want, s.sent(t)); diff != "" {
		t.Error(diff)
	}
	if s.path != "/v1/notifications" || s.header.Get("Idempotency-Key") != "k1" || s.header.Get("Authorization") != "Bearer dsp_test" ||
		s.header.Get("Content-Type") != "application/json" {
		t.Errorf("request to %s with %v", s.path, s.header)
	}
}

func TestSendJoinsAFileWithFlagsAndChangesNothingElseInIt(t *testing.T) {
	s := newService(t)
	const file = `{"to":{"sms":"+14155550100","webhook":{"url":"https://example.com"}},"content":{"body":"old","webhook":{"payload":12345678901234567890}},"metadata":{"n":1.10}}`
	want := parse(t, `{"to":{"sms":"+14155550199","slack":{"webhook_url":"https://hooks.slack.com/services/a"},"webhook":{"url":"https://example.com"}},
		"content":{"body":"new","webhook":{"payload":12345678901234567890}},"metadata":{"n":1.10}}`)
	flags := []string{"send", "--body", "new", "--to-sms", "+14155550199", "--to-slack", "https://hooks.slack.com/services/a", "--file"}

	runIn(t, t.Context(), s.env(), file, append(flags, "-")...).want(t, 0)
	if diff := cmp.Diff(want, s.sent(t)); diff != "" {
		t.Error(diff)
	}
	path := filepath.Join(t.TempDir(), "n.json")
	if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, s.env(), append(flags, path)...).want(t, 0)
	if diff := cmp.Diff(want, s.sent(t)); diff != "" {
		t.Error(diff)
	}
	runIn(t, t.Context(), s.env(), "[1]", append(flags, "-")...).want(t, 1, "no JSON object")
}

func TestSendUsesANewIdempotencyKeyEachTime(t *testing.T) {
	s := newService(t)
	seen := map[string]bool{}
	for range 3 {
		run(t, s.env(), "send", "--to-sms", "+14155550100", "--body", "x").want(t, 0)
		seen[s.header.Get("Idempotency-Key")] = true
	}
	if len(seen) != 3 || seen[""] {
		t.Errorf("keys = %v", seen)
	}
}

func TestSendShowsWhatTheServiceSaysIsWrong(t *testing.T) {
	s := newService(t)
	s.refuse = `{"status":422,"code":"invalid_request","detail":"The request has 1 problem, see errors.",
		"errors":[{"pointer":"/to/sms","code":"format","detail":"must be a phone number in E.164 form"}]}`
	run(t, s.env(), "send", "--to-sms", "123", "--body", "x").
		want(t, 1, "answered 422 (invalid_request)", "/to/sms: must be a phone number in E.164 form")
	s.refuse = "<html>proxy</html>"
	run(t, s.env(), "send", "--to-sms", "123", "--body", "x").want(t, 1, "answered 422: Unprocessable Entity")
}

func TestSendTakesTheKeyOfDevWhereNoneIsGiven(t *testing.T) {
	s := newService(t)
	t.Chdir(t.TempDir())
	args := []string{"send", "--url", s.URL, "--to-sms", "+14155550100", "--body", "x"}
	run(t, nil, args...).want(t, 2, "there is no API key")
	if err := os.Mkdir(".dispatcher", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(".dispatcher/key", []byte("dsp_dev\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, nil, args...).want(t, 0)
	if got := s.header.Get("Authorization"); got != "Bearer dsp_dev" {
		t.Errorf("Authorization = %q", got)
	}
}

func TestSendWithJSONPrintsTheAnswer(t *testing.T) {
	s := newService(t)
	run(t, s.env(), "send", "--json", "--to-sms", "+14155550100", "--body", "x").want(t, 0, `"status": "queued"`)
}

func TestSendThatFailsSaysHowToRepeatItSafely(t *testing.T) {
	s := newService(t)
	s.Close()
	run(t, s.env(), "send", "--to-sms", "+14155550100", "--body", "x", "--idempotency-key", "k7").
		want(t, 1, "cannot be reached", "--idempotency-key k7 repeats it without a second notification")
}
