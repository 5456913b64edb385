package sandbox

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net/mail"
	"strconv"
	"strings"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// scriptedDomain is the mail domain whose mailboxes script themselves.
const scriptedDomain = "sandbox.test"

func smtpScripts() []Scripted {
	out := []Scripted{
		{To: "delivered", Note: "fine, like every address that is not listed"},
		{To: "bounce", Status: 550, Code: "5.1.1", Note: "no such mailbox"},
		{To: "full", Status: 552, Code: "5.2.2", Note: "the mailbox is full"},
		{To: "blocked", Status: 554, Code: "5.7.1", Note: "refused by policy"},
		{To: "greylist", Status: 451, Code: "4.7.1", Once: true, Note: "greylisted: refused on a Message-ID's first try, then accepted"},
		{To: "ratelimited", Status: 450, Code: "4.2.1", Once: true, Note: "receives too fast: refused on a Message-ID's first try, then accepted"},
		{To: "unavailable", Status: 421, Code: "4.3.2", Note: "the server is shutting down, always"},
		{To: "bounce-later", Code: "5.1.1", Final: FinalUndelivered, Note: "accepted, then bounced: no such mailbox"},
		{To: "full-later", Code: "5.2.2", Final: FinalUndelivered, Note: "accepted, then bounced: the mailbox is full"},
		{To: "complaint", Final: FinalComplaint, Note: "accepted, then taken for spam"},
		{To: "slow", Delay: notify.Duration(3 * time.Second), Note: "accepted 3 s late"},
	}
	for i := range out {
		out[i].Provider = smtpProvider
	}
	return out
}

func (s *Server) newSMTPServer() *smtp.Server {
	srv := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		return &mailSession{s: s, conn: c}, nil
	}))
	srv.Domain = scriptedDomain
	srv.MaxMessageBytes = maxMail
	srv.MaxRecipients = 100
	srv.AllowInsecureAuth = true
	srv.EnableSMTPUTF8 = true
	srv.ReadTimeout = 2 * time.Minute
	srv.WriteTimeout = 30 * time.Second
	srv.ErrorLog = slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelDebug)
	if s.cfg.STARTTLS {
		srv.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{s.keys.tls}}
	}
	return srv
}

// mailSession is one SMTP connection. Its methods are called one at a time.
type mailSession struct {
	s    *Server
	conn *smtp.Conn
	from string
	rcpt []mailRecipient
}

// mailRecipient is a recipient that was taken, and what awaits its message.
type mailRecipient struct {
	to     string
	rule   RuleAnswer
	fault  bool
	script *Scripted
}

// AuthMechanisms implements [smtp.AuthSession].
func (m *mailSession) AuthMechanisms() []string { return []string{sasl.Plain, sasl.Login} }

// Auth implements [smtp.AuthSession]: any credentials are taken, but for the user
// "invalid".
func (m *mailSession) Auth(mech string) (sasl.Server, error) {
	switch mech {
	case sasl.Plain:
		return sasl.NewPlainServer(func(_, user, _ string) error { return checkMailUser(user) }), nil
	case sasl.Login:
		return &loginServer{}, nil
	}
	return nil, smtp.ErrAuthUnknownMechanism
}

func checkMailUser(user string) error {
	if user == "invalid" {
		return smtp.ErrAuthFailed
	}
	return nil
}

// loginServer speaks LOGIN, which many clients prefer and few libraries serve.
type loginServer struct{ user, step string }

// Next implements [sasl.Server].
func (l *loginServer) Next(response []byte) ([]byte, bool, error) {
	switch {
	case l.step == "" && response == nil:
		l.step = "user"
		return []byte("Username:"), false, nil
	case l.step == "" || l.step == "user":
		l.user, l.step = string(response), "password"
		return []byte("Password:"), false, nil
	}
	return nil, true, checkMailUser(l.user)
}

// Reset implements [smtp.Session].
func (m *mailSession) Reset() { m.from, m.rcpt = "", nil }

// Logout implements [smtp.Session].
func (m *mailSession) Logout() error { return nil }

// Mail implements [smtp.Session].
func (m *mailSession) Mail(from string, _ *smtp.MailOptions) error {
	m.from = from
	return nil
}

// Rcpt implements [smtp.Session]. Rules and scripts refuse here; a rule's drop
// after, its delay, and what depends on the Message-ID come after the data.
func (m *mailSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	rule, fault := m.s.faults.take(smtpProvider, "", to)
	r := mailRecipient{to: to, rule: rule, fault: fault, script: m.s.scripted(smtpProvider, mailboxName(to))}
	switch {
	case rule.Drop == DropBefore:
		m.s.waitOut(rule.Delay.Std())
		m.record(r, nil, Answer{Drop: DropBefore, Fault: true})
		_ = m.conn.Close()
		return errDropped
	case rule.Status != 0:
		m.s.waitOut(rule.Delay.Std())
		return m.refuse(r, nil, smtpReply(rule.Status, rule.text()))
	case r.script != nil && r.script.Status != 0 && !r.script.Once && !fault:
		return m.refuse(r, nil, smtpReply(r.script.Status, r.script.Code+" "+r.script.Note))
	}
	m.rcpt = append(m.rcpt, r)
	return nil
}

var errDropped = errors.New("connection dropped")

// Data implements [smtp.Session]. The reply is about every recipient that was
// taken: refused for one, the message is refused for all.
func (m *mailSession) Data(body io.Reader) error {
	raw, err := io.ReadAll(body)
	if err != nil {
		return m.refuseAll(nil, err)
	}
	id := messageID(raw)
	var late time.Duration
	drop := false
	for _, r := range m.rcpt {
		late = max(late, r.rule.Delay.Std())
		if r.script != nil && !r.fault {
			late = max(late, r.script.Delay.Std())
		}
		drop = drop || r.rule.Drop == DropAfter
	}
	if err := m.scriptedRefusal(id); err != nil {
		return m.refuseAll(raw, err)
	}
	for _, r := range m.rcpt {
		a := Answer{Status: 250, ID: id, Accepted: true, Drop: r.rule.Drop, Fault: r.fault}
		if drop {
			a.Status = 0
		}
		m.record(r, raw, a)
	}
	m.s.waitOut(late)
	if drop {
		_ = m.conn.Close()
		return errDropped
	}
	for _, r := range m.rcpt {
		m.s.report(r, m.from, id, raw)
	}
	return nil
}

// scriptedRefusal refuses the first try of a Message-ID where a recipient's
// script says so.
func (m *mailSession) scriptedRefusal(id string) error {
	for _, r := range m.rcpt {
		sc := r.script
		if sc != nil && sc.Once && !r.fault && m.s.refused.first(smtpProvider+" "+r.to+" "+id) {
			return smtpReply(sc.Status, sc.Code+" "+sc.Note)
		}
	}
	return nil
}

// refuseAll records the refusal of a message that was being, or had been, sent.
// A transmission that broke off is nothing to record.
func (m *mailSession) refuseAll(raw []byte, err error) error {
	if reply, ok := errors.AsType[*smtp.SMTPError](err); ok {
		for _, r := range m.rcpt {
			_ = m.refuse(r, raw, reply)
		}
	}
	return err
}

// waitOut delays an answer; SMTP sessions have no context to be broken by.
func (s *Server) waitOut(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.done:
	}
}

func (m *mailSession) refuse(r mailRecipient, raw []byte, err *smtp.SMTPError) error {
	code := err.EnhancedCode
	text := strconv.Itoa(code[0]) + "." + strconv.Itoa(code[1]) + "." + strconv.Itoa(code[2])
	m.record(r, raw, Answer{Status: err.Code, Code: text, Fault: r.fault})
	return err
}

func (m *mailSession) record(r mailRecipient, raw []byte, a Answer) {
	m.s.messages.add(&entry{
		at: m.s.now(), provider: smtpProvider, channel: "email", to: r.to, from: m.from, raw: raw, answer: a,
	})
}

// mailboxName is the script that an address asks for, empty for none: bounce of
// bounce+42@sandbox.test.
func mailboxName(to string) string {
	local, domain, _ := strings.Cut(to, "@")
	if !strings.EqualFold(domain, scriptedDomain) {
		return ""
	}
	name, _, _ := strings.Cut(local, "+")
	return strings.ToLower(name)
}

// messageID reads the one header that recording needs.
func messageID(raw []byte) string {
	m, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return ""
	}
	return m.Header.Get("Message-Id")
}
