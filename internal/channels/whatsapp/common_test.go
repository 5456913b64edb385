package whatsapp

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const ana = "+14155550100"

var (
	key   = uuid.MustParse("0193e7a2-0000-7000-8000-000000000001")
	myRef = channels.Ref{Notification: uuid.MustParse("0193e7a2-0000-7000-8000-0000000000aa"), Step: 1, Target: 2, Attempt: uuid.MustParse("0193e7a2-0000-7000-8000-0000000000bb")}
	toMe  = channels.RecipientScope(notify.WhatsApp, notify.Target{Phone: ana})
)

func message(string) *channels.Message {
	return &channels.Message{
		Key:       key,
		Ref:       myRef,
		To:        notify.Target{Phone: ana},
		Content:   notify.Content{Title: "Deploy failed", Body: "api: 3 of 5 pods are down"},
		ExpiresAt: time.Now().Add(time.Hour),
	}
}

func templated(name, language string, variables map[string]string) *channels.Message {
	m := message("")
	m.Content.WhatsApp = &notify.WhatsAppContent{
		Body:     "not sent",
		Template: &notify.WhatsAppTemplate{Name: name, Language: language, Variables: variables},
	}
	return m
}

func only(o notify.Outcome) channels.Result { return channels.Result{Outcome: o} }

func scoped(o notify.Outcome, scope string, after time.Duration) channels.Result {
	return channels.Result{Outcome: o, Scope: scope, RetryAfter: after}
}

// received is what the server saw of one call.
type received struct {
	path, authorization, contentType string
	form                             url.Values
	json                             any
}

// capture has the provider that dial makes send m, and returns the request it
// made.
func capture(t *testing.T, accept http.HandlerFunc, dial func(baseURL string) channels.Provider, m *channels.Message) received {
	t.Helper()
	var got received
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got.path = r.Method + " " + r.URL.Path
		got.contentType, got.authorization = r.Header.Get("Content-Type"), r.Header.Get("Authorization")
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		if got.contentType == "application/json" {
			err = json.Unmarshal(body, &got.json)
		} else {
			got.form, err = url.ParseQuery(string(body))
		}
		if err != nil {
			t.Errorf("body %q: %v", body, err)
		}
		accept(w, r)
	}))
	defer srv.Close()
	if r := dial(srv.URL).Send(t.Context(), m); r.Outcome != notify.Accepted {
		t.Fatalf("result %+v", r)
	}
	return got
}

// wantProblems checks that err has one line for each key, and no secret.
func wantProblems(t *testing.T, err error, keys ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("a broken configuration was taken")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(keys) {
		t.Fatalf("problems %q, want those of %q", lines, keys)
	}
	for i, key := range keys {
		if !strings.HasPrefix(lines[i], key+": ") {
			t.Errorf("problem %q, want one of %s", lines[i], key)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("a secret in %q", err)
	}
}

// wantField checks what a Check points to; the empty field means no error.
func wantField(t *testing.T, err error, field string) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Errorf("Check: %v", err)
		}
		return
	}
	var ce *channels.CheckError
	if !errors.As(err, &ce) || ce.Field != field {
		t.Fatalf("Check: %v, want an error at %s", err, field)
	}
	if strings.Contains(ce.Reason, "éé") {
		t.Errorf("Check repeats the text: %v", err)
	}
}
