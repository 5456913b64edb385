package cli_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// answering is a service that gives every request the same answer and keeps the
// last of them.
type answering struct {
	url, body, contentType, key string
	env                         []string
}

func answers(t *testing.T, text string) *answering {
	t.Helper()
	a := &answering{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a.url, a.body, a.contentType, a.key = r.URL.String(), string(body), r.Header.Get("Content-Type"), r.Header.Get("Idempotency-Key")
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(s.Close)
	a.env = []string{"DISPATCHER_URL=" + s.URL, "DISPATCHER_KEY=dsp_test"}
	return a
}

func TestCancelAckAndRetryPrintWhatTheServiceAnswers(t *testing.T) {
	for _, tt := range []struct {
		verb, result string
		code         int
	}{
		{"cancel", "canceled", 0},
		{"cancel", "already_final", 0},
		{"cancel", "too_late", 1},
		{"ack", "acknowledged", 0},
		{"ack", "already_acknowledged", 0},
		{"retry", "retried", 0},
		{"retry", "in_progress", 1},
	} {
		a := answers(t, `{"result":"`+tt.result+`"}`)
		r := run(t, a.env, tt.verb, notificationID)
		r.want(t, tt.code)
		if r.stdout != notificationID+" "+tt.result+"\n" || a.url != "/v1/notifications/"+notificationID+"/"+tt.verb {
			t.Errorf("%s %s: %s printed %q", tt.verb, tt.result, a.url, r.stdout)
		}
		run(t, a.env, tt.verb, "x").want(t, 2, "is not the id of a notification")
		run(t, a.env, tt.verb, notificationID, notificationID).want(t, 2)
	}
	run(t, nil, "retry", notificationID, "--status", "failed").want(t, 2, "either the id")
}

func TestRetrySelectsByFlags(t *testing.T) {
	a := answers(t, `{"matched":12,"retried":0,"more":true,"dry_run":true}`)
	r := run(t, a.env, "retry", "--status", "failed", "--channel", "sms", "--because", "overdue", "--limit", "7", "--dry-run")
	r.want(t, 0, "12 notifications would begin again", "There are older ones")
	if want := `{"because":"overdue","channel":"sms","dry_run":true,"limit":7,"status":"failed"}`; a.body != want || a.url != "/v1/notifications/retry" {
		t.Errorf("%s was sent %s", a.url, a.body)
	}
}

func TestSendOfLinesPrintsWhatBecameOfEach(t *testing.T) {
	a := answers(t, `{"index":0,"status":202,"id":"a"}`+"\n"+
		`{"index":1,"status":422,"error":{"status":422,"code":"invalid_request","errors":[{"pointer":"/to/sms","detail":"must be a number"}]}}`+"\n")
	file := filepath.Join(t.TempDir(), "rows.ndjson")
	if err := os.WriteFile(file, []byte("{}\n{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, a.env, "send", "--file", file, "--idempotency-key", "import")
	r.want(t, 1, "1 of 2 rows accepted")
	if r.stdout != "0 a\n1 refused (invalid_request) /to/sms: must be a number\n" {
		t.Errorf("stdout = %q", r.stdout)
	}
	if a.url != "/v1/notifications/batch" || a.body != "{}\n{}\n" || a.contentType != "application/x-ndjson" || a.key != "import" {
		t.Errorf("sent %+v", a)
	}
	run(t, a.env, "send", "--file", file, "--plan").want(t, 2, "are for one notification")
}

func TestSendWithPlanSendsNothing(t *testing.T) {
	a := answers(t, `{"acceptable":false,"steps":[{"channel":"sms","targets":1,"accounts":[{"account":"twilio-main","breaker":{"state":"open"}}],
		"earliest_call":null,"preview":{"body":"hello","segments":2,"encoding":"GSM-7"},"problems":[{"pointer":"/content/sms/body","detail":"must be shorter"}]}]}`)
	r := run(t, a.env, "send", "--to-sms", "+14155550100", "--body", "hello", "--plan")
	r.want(t, 1, "twilio-main (open)", `"hello" 2 segments, GSM-7`, "unknown", "step 0: /content/sms/body: must be shorter")
	if a.url != "/v1/notifications?plan=true" || !strings.Contains(a.body, "hello") {
		t.Errorf("sent %+v", a)
	}
}

func TestKeysAreRotated(t *testing.T) {
	url := pgtest.URL(t)
	env := []string{"DATABASE_URL=" + url}
	s, err := store.Open(t.Context(), url, store.Options{MaxConnections: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	key := func(args ...string) (id, secret string) {
		t.Helper()
		r := run(t, env, append(args, "--json")...)
		r.want(t, 0)
		var v struct{ ID, Key string }
		if err := json.Unmarshal([]byte(r.stdout), &v); err != nil {
			t.Fatal(err)
		}
		return v.ID, v.Key
	}
	oldID, old := key("keys", "create", "--name", "checkout")
	_, made := key("keys", "rotate", oldID, "--overlap", "1h")
	for _, secret := range []string{old, made} {
		if k, err := s.Authenticate(t.Context(), secret); err != nil || k.Name != "checkout" {
			t.Errorf("key %+v, %v", k, err)
		}
	}
	run(t, env, "keys", "rotate", oldID, "--overlap", "0s").want(t, 0, "takes the place of "+oldID)
	run(t, env, "keys", "rotate", oldID).want(t, 1, "is revoked or has expired")
	run(t, env, "keys", "rotate", oldID, "--overlap", "169h").want(t, 2, "--overlap")
	run(t, env, "keys", "rotate", "01937f00-0000-7000-8000-000000000001").want(t, 1, "there is no key")
}
