package channeltest

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// CheckResult checks what must hold for every Result: a valid outcome that
// [channels.Result.Clean] leaves alone, a status only where accepted, no negative
// durations, a scope of at most 64 bytes, and none of the secrets in any of its
// texts. Secrets shorter than four bytes are passed over.
func CheckResult(t *testing.T, r channels.Result, secrets []string) {
	t.Helper()
	if !r.Outcome.Valid() {
		t.Errorf("outcome %q is no outcome", r.Outcome)
	}
	if c := r.Clean(); c.Outcome != r.Outcome || c.RetryAfter != r.RetryAfter {
		t.Errorf("Clean changes %+v to %+v", r, c)
	}
	if r.Status != "" && r.Outcome != notify.Accepted {
		t.Errorf("status %q beside outcome %q", r.Status, r.Outcome)
	}
	if r.SuppressFor < 0 || r.SuppressFor > 0 && !r.Suppress {
		t.Errorf("suppress %t for %v", r.Suppress, r.SuppressFor)
	}
	if r.Outcome == notify.NotAttempted && (r.HTTPStatus != 0 || r.MessageID != "") {
		t.Errorf("not attempted, and yet answered: %+v", r)
	}
	if len(r.Scope) > 64 {
		t.Errorf("scope of %d bytes, want at most 64", len(r.Scope))
	}
	texts := map[string]string{"Scope": r.Scope, "Code": r.Code, "MessageID": r.MessageID, "Detail": r.Detail}
	for field, text := range texts {
		for _, s := range secrets {
			if len(s) >= 4 && strings.Contains(text, s) {
				t.Errorf("%s discloses a secret: %q", field, text)
			}
		}
	}
}

// MessageSecrets are the addresses and texts of m, none of which may appear in a
// Result.
func MessageSecrets(m *channels.Message) []string {
	c := m.Content
	out := []string{m.To.Phone, c.Title, c.Body, string(c.Data), string(m.Metadata), m.Reference}
	if d := m.To.Device; d != nil {
		out = append(append(out, d.Token), urlSecrets(d.Endpoint)...)
		if d.Keys != nil {
			out = append(out, d.Keys.P256dh, d.Keys.Auth)
		}
	}
	if e := m.To.Email; e != nil {
		out = append(out, e.Address, e.Name)
	}
	if s := m.To.Slack; s != nil {
		out = append(append(out, s.Channel), urlSecrets(s.WebhookURL)...)
	}
	if w := m.To.Webhook; w != nil {
		out = append(out, urlSecrets(w.URL)...)
		for _, v := range w.Headers {
			out = append(out, v)
		}
	}
	title, body := c.PushText()
	subject, text, html := c.EmailParts()
	return append(out, title, body, subject, text, html, c.SMSText(), c.WhatsAppText(), c.SlackText())
}

// urlSecrets are a URL and its parts that may hold a token.
func urlSecrets(raw string) []string {
	u, err := url.Parse(raw)
	if err != nil {
		return []string{raw}
	}
	return []string{raw, u.Path, u.RawQuery}
}

// compare reports where got is not what the row wants; see [Case].
func compare(t *testing.T, got, want channels.Result) {
	t.Helper()
	if got.Outcome != want.Outcome {
		t.Errorf("outcome %q, want %q (%+v)", got.Outcome, want.Outcome, got)
	}
	if got.RetryAfter != want.RetryAfter {
		t.Errorf("retry after %v, want %v", got.RetryAfter, want.RetryAfter)
	}
	if got.Suppress != want.Suppress || got.SuppressFor != want.SuppressFor {
		t.Errorf("suppress %t for %v, want %t for %v", got.Suppress, got.SuppressFor, want.Suppress, want.SuppressFor)
	}
	if (want.Scope != "" || want.Outcome == notify.Throttled) && got.Scope != want.Scope {
		t.Errorf("scope %q, want %q", got.Scope, want.Scope)
	}
	if want.Status != "" && got.Clean().Status != want.Status {
		t.Errorf("status %q, want %q", got.Clean().Status, want.Status)
	}
	if want.HTTPStatus != 0 && got.HTTPStatus != want.HTTPStatus {
		t.Errorf("http status %d, want %d", got.HTTPStatus, want.HTTPStatus)
	}
	if want.Code != "" && got.Code != want.Code {
		t.Errorf("code %q, want %q", got.Code, want.Code)
	}
	if want.MessageID != "" && got.MessageID != want.MessageID {
		t.Errorf("message id %q, want %q", got.MessageID, want.MessageID)
	}
	if want.Detail != "" && got.Detail != want.Detail {
		t.Errorf("detail %q, want %q", got.Detail, want.Detail)
	}
}

// wantOutcome reports an outcome that is none of those allowed.
func wantOutcome(t *testing.T, got channels.Result, allowed ...notify.Outcome) {
	t.Helper()
	if !slices.Contains(allowed, got.Outcome) {
		t.Errorf("outcome %q, want %q (%+v)", got.Outcome, allowed, got)
	}
}
