package sandbox_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/smtp"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/wneessen/go-mail"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// dialMail opens a session up to EHLO.
func dialMail(t *testing.T, s *sandbox.Server) *smtp.Client {
	t.Helper()
	var d net.Dialer
	conn, err := d.DialContext(t.Context(), "tcp", s.SMTPAddr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c, err := smtp.NewClient(conn, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Hello("localhost"); err != nil {
		t.Fatal(err)
	}
	return c
}

// mailTo sends one message on a session of its own.
func mailTo(t *testing.T, s *sandbox.Server, to, id string) error {
	t.Helper()
	return rawMail(t, s, to, "Message-ID: <"+id+">\r\nSubject: S\r\n\r\nText\r\n")
}

func rawMail(t *testing.T, s *sandbox.Server, to, source string) error {
	t.Helper()
	c := dialMail(t, s)
	if err := c.Mail("ops@example.com"); err != nil {
		return err
	}
	if err := c.Rcpt(to); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := io.WriteString(w, source); err != nil {
		return err
	}
	return w.Close()
}

func wantReply(t *testing.T, err error, code int, text string) {
	t.Helper()
	var reply *textproto.Error
	if !errors.As(err, &reply) || reply.Code != code || !strings.HasPrefix(reply.Msg, text) {
		t.Errorf("got %v, want %d %s", err, code, text)
	}
}

func TestMailIsShownAsItsReaderSeesIt(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{STARTTLS: true})
	m := mail.NewMsg()
	for _, err := range []error{m.FromFormat("Ops Ünit", "ops@example.com"), m.To("ana@example.com")} {
		if err != nil {
			t.Fatal(err)
		}
	}
	m.Subject("Störung: api")
	m.SetBodyString(mail.TypeTextPlain, "3 von 5 Pods sind aus – "+strings.Repeat("lang ", 40))
	m.AddAlternativeString(mail.TypeTextHTML, "<p>3 von 5</p>")
	if err := m.AttachReader("log.txt", strings.NewReader("line")); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(s.SMTPCertificate()) {
		t.Fatal("no certificate")
	}
	host, port, _ := net.SplitHostPort(s.SMTPAddr())
	var portNumber int
	if _, err := fmt.Sscan(port, &portNumber); err != nil {
		t.Fatal(err)
	}
	c, err := mail.NewClient(host, mail.WithPort(portNumber), mail.WithTLSPolicy(mail.TLSMandatory),
		mail.WithTLSConfig(&tls.Config{RootCAs: roots, ServerName: host, MinVersion: tls.VersionTLS12}),
		mail.WithSMTPAuth(mail.SMTPAuthLogin), mail.WithUsername("u"), mail.WithPassword("p"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.DialAndSendWithContext(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	got := last(t, s)
	if got.To != "ana@example.com" || got.From != "ops@example.com" || got.Title != "Störung: api" ||
		!strings.HasPrefix(got.Text, "3 von 5 Pods sind aus – lang") || strings.TrimSpace(got.HTML) != "<p>3 von 5</p>" {
		t.Errorf("recorded %+v", got)
	}
	if len(got.Attachments) != 1 || got.Attachments[0].Filename != "log.txt" || got.Attachments[0].Size != 4 {
		t.Errorf("attachments %+v", got.Attachments)
	}
	if !strings.Contains(got.Headers["From"], "Ops Ünit") || got.Answer.Status != 250 || !strings.Contains(got.Source, "multipart/") {
		t.Errorf("headers %v, answer %+v", got.Headers, got.Answer)
	}
}

func TestTheMailServerOffersWhatItShould(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	c := dialMail(t, s)
	for extension, want := range map[string]string{"SMTPUTF8": "", "8BITMIME": "", "SIZE": "26214400", "AUTH": "PLAIN LOGIN"} {
		if ok, args := c.Extension(extension); !ok || args != want {
			t.Errorf("%s: %v %q, want %q", extension, ok, args, want)
		}
	}
	if ok, _ := c.Extension("STARTTLS"); ok || s.SMTPCertificate() != nil {
		t.Error("STARTTLS is offered without being asked for")
	}
	if err := c.Auth(smtp.PlainAuth("", "anyone", "anything", "127.0.0.1")); err != nil {
		t.Errorf("credentials: %v", err)
	}
	wantReply(t, dialMail(t, s).Auth(smtp.PlainAuth("", "invalid", "x", "127.0.0.1")), 535, "5.7.8")
	if err := c.Mail("jürgen@example.com"); err != nil {
		t.Errorf("an address in UTF-8: %v", err)
	}
}

func TestMailboxesScriptThemselves(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	if err := mailTo(t, s, "delivered@sandbox.test", "a"); err != nil {
		t.Errorf("delivered: %v", err)
	}
	wantReply(t, mailTo(t, s, "bounce+42@sandbox.test", "a"), 550, "5.1.1")
	if m := last(t, s); m.Answer.Status != 550 || m.Answer.Code != "5.1.1" || m.Answer.Accepted || m.To != "bounce+42@sandbox.test" {
		t.Errorf("recorded %+v", m)
	}
	wantReply(t, mailTo(t, s, "full@sandbox.test", "a"), 552, "5.2.2")
	wantReply(t, mailTo(t, s, "greylist@sandbox.test", "a"), 451, "4.7.1")
	wantReply(t, mailTo(t, s, "greylist@sandbox.test", "b"), 451, "4.7.1")
	if err := mailTo(t, s, "greylist@sandbox.test", "a"); err != nil {
		t.Errorf("the second try of a message: %v", err)
	}
	if err := mailTo(t, s, "bounce@example.com", "a"); err != nil {
		t.Errorf("another domain: %v", err)
	}
}

func TestRulesBreakMail(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	setFaults(
		t, s,
		sandbox.Rule{Provider: "*", Times: 1, Answer: sandbox.RuleAnswer{Status: 503}},
		sandbox.Rule{Provider: "smtp", To: "Ana@example.com", Times: 1, Answer: sandbox.RuleAnswer{Status: 451, Body: []byte(`"4.3.2 later"`)}},
		sandbox.Rule{Provider: "smtp", Times: 1, Answer: sandbox.RuleAnswer{Drop: sandbox.DropBefore}},
		sandbox.Rule{Provider: "smtp", Times: 1, Answer: sandbox.RuleAnswer{Drop: sandbox.DropAfter}},
		sandbox.Rule{Provider: "smtp", Times: 1, Answer: sandbox.RuleAnswer{Delay: ms(120)}},
	)
	wantReply(t, mailTo(t, s, "ana@example.com", "1"), 451, "4.3.2 later")
	for _, drop := range []string{sandbox.DropBefore, sandbox.DropAfter} {
		err := mailTo(t, s, "ana@example.com", "1")
		if !errors.Is(err, io.EOF) && !isReset(err) {
			t.Errorf("drop %s: %v", drop, err)
		}
		if m := last(t, s); m.Answer.Drop != drop || m.Answer.Accepted != (drop == sandbox.DropAfter) || m.Answer.Status != 0 {
			t.Errorf("drop %s is recorded as %+v", drop, m.Answer)
		}
	}
	began := time.Now()
	if err := mailTo(t, s, "ana@example.com", "1"); err != nil || time.Since(began) < 120*time.Millisecond {
		t.Errorf("late: %v after %v", err, time.Since(began))
	}
	if left := s.Faults(); len(left) != 1 || left[0].Provider != "*" {
		t.Errorf("an http status for all providers was used up by mail: %+v", left)
	}
}

func isReset(err error) bool {
	var op *net.OpError
	return errors.As(err, &op)
}

func TestMailBeyondTheLimitIsRefused(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	c := dialMail(t, s)
	if err := errors.Join(c.Mail("ops@example.com"), c.Rcpt("ana@example.com")); err != nil {
		t.Fatal(err)
	}
	w, err := c.Data()
	if err != nil {
		t.Fatal(err)
	}
	line := append(bytes.Repeat([]byte("x"), 998), '\r', '\n')
	for range 26_300 {
		if _, err := w.Write(line); err != nil {
			t.Fatal(err)
		}
	}
	wantReply(t, w.Close(), 552, "5.3.4")
	if m := last(t, s); m.Answer.Accepted || m.Answer.Status != 552 {
		t.Errorf("recorded %+v", m.Answer)
	}
}

func TestARefusedRecipientRefusesTheWholeMessage(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	c := dialMail(t, s)
	if err := errors.Join(c.Mail("ops@example.com"), c.Rcpt("ana@example.com"), c.Rcpt("greylist@sandbox.test")); err != nil {
		t.Fatal(err)
	}
	w, err := c.Data()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, "Message-ID: <1>\r\n\r\nText\r\n"); err != nil {
		t.Fatal(err)
	}
	wantReply(t, w.Close(), 451, "4.7.1")
	for _, m := range s.Messages(sandbox.Filter{}) {
		if m.Answer.Accepted {
			t.Errorf("%s is recorded as accepted", m.To)
		}
	}
}
