package sandbox_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/email"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const mailSecret = "sandbox-mail-secret"

// mailbox takes what a sandbox reports of mail, as an account reads it.
func mailbox(t *testing.T, s *sandbox.Server) <-chan channels.Report {
	t.Helper()
	account, err := email.New("smtp-main", email.Config{
		Host: "127.0.0.1", TLS: "none", From: email.Address{Address: "a@example.com"}, BounceSecret: secret.New(mailSecret),
	})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan channels.Report, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		report, err := account.ReadCallback(r.Context(), &channels.Callback{Method: r.Method, Path: "dsn", Header: r.Header, Body: body})
		if err != nil {
			t.Errorf("%v:\n%s", err, body)
			w.WriteHeader(http.StatusForbidden)
			return
		}
		got <- report
	}))
	t.Cleanup(server.Close)
	s.SetMailReports(sandbox.MailReports{URL: server.URL, Secret: mailSecret})
	return got
}

func TestMailThatWasAcceptedIsReportedOn(t *testing.T) {
	s := start(t, sandbox.Config{Receipts: &sandbox.Receipts{Final: sandbox.FinalDelivered, Repeat: 2}})
	got := mailbox(t, s)
	for name, want := range map[string]struct {
		outcome notify.Outcome
		reason  string
	}{
		"bounce-later+1": {outcome: notify.RecipientRejected},
		"full-later":     {outcome: notify.RecipientUnavailable},
		"complaint":      {reason: "complaint"},
	} {
		const id = "<AZPnogAAcACAAAAAAAAAqgEAAg.0193b0c0@example.com>"
		message := "From: a@example.com\r\nTo: " + name + "@sandbox.test\r\nMessage-ID: " + id + "\r\nSubject: s\r\n\r\nbody\r\n"
		if err := smtp.SendMail(s.SMTPAddr(), nil, "a@example.com", []string{name + "@sandbox.test"}, []byte(message)); err != nil {
			t.Fatal(err)
		}
		for range 2 { // as often as receipts are repeated
			select {
			case r := <-got:
				switch {
				case want.reason != "":
					if len(r.Consents) != 1 || r.Consents[0].Reason != want.reason || r.Consents[0].Ref.IsZero() || r.Consents[0].Target.Email.Address != name+"@sandbox.test" {
						t.Errorf("%s: %+v", name, r)
					}
				case len(r.Receipts) != 1 || r.Receipts[0].Outcome != want.outcome || r.Receipts[0].MessageID != id || r.Receipts[0].Ref.IsZero():
					t.Errorf("%s: %+v", name, r)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("nothing was reported of %s: %+v", name, s.Callbacks())
			}
		}
	}
	for _, quiet := range []string{"delivered@sandbox.test", "ana@example.org"} {
		if err := smtp.SendMail(s.SMTPAddr(), nil, "a@example.com", []string{quiet}, []byte("Subject: s\r\n\r\nb\r\n")); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range s.Callbacks() {
		if c.Provider != "smtp" || strings.Contains(c.Error, mailSecret) {
			t.Errorf("a callback %+v", c)
		}
	}
	if n := len(got); n != 0 {
		t.Errorf("%d reports of mail that is fine", n)
	}
}
