package email

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/wneessen/go-mail/smtp"
)

// stage is how far an exchange with a server came.
type stage string

const (
	stageConnect  stage = "connect"
	stageGreeting stage = "greeting"
	stageHello    stage = "EHLO"
	stageTLS      stage = "TLS"
	stageAuth     stage = "AUTH"
	stageMail     stage = "MAIL"
	stageRcpt     stage = "RCPT"
	stageData     stage = "DATA"
	stageBody     stage = "body"
	stageDot      stage = "end of data"
)

// fault is why an exchange ended early, and where.
type fault struct {
	stage stage
	err   error
	// unwritten says that not all of what was to be sent has left this machine.
	unwritten bool
}

// The faults that are neither the network's nor an answer.
var (
	errNoStartTLS = errors.New("server does not offer STARTTLS")
	errNoAuth     = errors.New("server offers no mechanism that this account may use")
	errAuth       = errors.New("authentication failed")
	errNoUTF8     = errors.New("server lacks SMTPUTF8, which the address needs")
	errTooBig     = errors.New("message is larger than the server takes")
)

// session is a connection on which mail can be sent, one message after another.
type session struct {
	conn   *conn
	client *smtp.Client
	sent   int
	expiry *time.Timer // set while idle
}

// open connects, says hello, and starts TLS and authenticates as configured. The
// session is bound to ctx; release is as [conn.bind] has it.
func (p *Provider) open(ctx context.Context) (s *session, release func() bool, f *fault) {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort(p.cfg.Host, strconv.Itoa(p.cfg.Port)))
	if err != nil {
		return nil, nil, &fault{stage: stageConnect, err: err}
	}
	s = &session{conn: &conn{Conn: raw}}
	release = s.conn.bind(ctx)
	if f = p.prepare(ctx, s); f != nil {
		release()
		s.end()
		return nil, nil, f
	}
	return s, release, nil
}

func (p *Provider) prepare(ctx context.Context, s *session) *fault {
	var link net.Conn = s.conn
	if p.cfg.TLS == tlsImplicit {
		secured := tls.Client(link, p.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			return &fault{stage: stageTLS, err: err}
		}
		link = secured
	}
	var err error
	if s.client, err = smtp.NewClient(link, p.cfg.Host); err != nil {
		return &fault{stage: stageGreeting, err: err}
	}
	if err := s.client.Hello(p.cfg.Helo); err != nil {
		return &fault{stage: stageHello, err: err}
	}
	if p.cfg.TLS == tlsStartTLS || p.cfg.TLS == tlsOpportunistic {
		if f := p.startTLS(s); f != nil {
			return f
		}
	}
	return p.authenticate(s)
}

func (p *Provider) startTLS(s *session) *fault {
	offered, _ := s.client.Extension("STARTTLS")
	if !offered {
		if p.cfg.TLS == tlsOpportunistic {
			return nil
		}
		return &fault{stage: stageTLS, err: errNoStartTLS}
	}
	if err := s.client.StartTLS(p.tls); err != nil {
		return &fault{stage: stageTLS, err: err}
	}
	return nil
}

func (p *Provider) authenticate(s *session) *fault {
	if p.cfg.Username == "" {
		return nil
	}
	_, secured := s.client.TLSConnectionState()
	_, offered := s.client.Extension("AUTH")
	auth, ok := p.cfg.pickAuth(offered, secured || loopback(p.cfg.Host) || p.cfg.AllowPlaintext)
	if !ok {
		return &fault{stage: stageAuth, err: errNoAuth}
	}
	err := s.client.Auth(auth)
	if err == nil {
		return nil
	}
	if _, answered := errors.AsType[*textproto.Error](err); !answered && !network(err) {
		err = errAuth // the server did not prove itself, or broke the mechanism's rules
	}
	return &fault{stage: stageAuth, err: err}
}

// envelope is one message to one recipient.
type envelope struct {
	from, to string // in angle brackets
	utf8     bool
	ref      string // names the delivery; empty for none
	message  []byte
}

// mailFrom is the argument of MAIL. Where the server knows RFC 3461, a bounce is to
// name the delivery, and to leave the message itself away: its header is enough.
func (s *session) mailFrom(e envelope) string {
	if ok, _ := s.client.Extension("DSN"); !ok || e.ref == "" {
		return e.from
	}
	return e.from + " RET=HDRS ENVID=" + e.ref // whose characters need no xtext
}

// deliver runs one mail transaction. It returns the text of the answer that took
// the message, or where and why it ended.
func (s *session) deliver(e envelope) (string, *fault) {
	if f := s.suits(e); f != nil {
		return "", f
	}
	// The library asks for SMTPUTF8 wherever it is offered, and a server that
	// relays such a message must find the next one that offers it too.
	s.client.SkipSMTPUTF8(!e.utf8)
	s.sent++
	if err := s.client.Mail(s.mailFrom(e)); err != nil {
		return "", &fault{stage: stageMail, err: err}
	}
	if err := s.client.Rcpt(e.to); err != nil {
		return "", &fault{stage: stageRcpt, err: err}
	}
	w, err := s.client.Data()
	if err != nil {
		return "", &fault{stage: stageData, err: err}
	}
	_, writeErr := w.Write(e.message)
	err = w.Close() // also after writeErr: the server may have said why it went away
	return s.verdict(w, writeErr, err)
}

// verdict tells what became of a message that was written, err being the answer.
func (s *session) verdict(w io.Writer, writeErr, err error) (string, *fault) {
	refusal, answered := errors.AsType[*textproto.Error](err)
	switch {
	case err == nil:
		if d, ok := w.(*smtp.DataCloser); ok {
			return d.ServerResponse(), nil
		}
		return "", nil
	case answered && refusal.Code/100 == 2 && !s.conn.unwritten:
		return refusal.Msg, nil // RFC 5321, 4.3.2: an unknown code is as good as its first digit
	case !answered && writeErr != nil:
		return "", &fault{stage: stageBody, err: writeErr}
	}
	return "", &fault{stage: stageDot, err: err, unwritten: s.conn.unwritten}
}

// suits tells before the transaction what the server said it will not take.
func (s *session) suits(e envelope) *fault {
	if ok, _ := s.client.Extension("SMTPUTF8"); e.utf8 && !ok {
		return &fault{stage: stageMail, err: errNoUTF8}
	}
	if ok, limit := s.client.Extension("SIZE"); ok {
		n, err := strconv.ParseInt(strings.TrimSpace(limit), 10, 64)
		if err == nil && n > 0 && int64(len(e.message)) > n { // 0 is no limit, RFC 1870
			return &fault{stage: stageMail, err: errTooBig}
		}
	}
	return nil
}

// network reports whether err is the connection's.
func network(err error) bool {
	_, ok := errors.AsType[net.Error](err)
	return ok || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, errTooMuch)
}

// quit ends a session that is at rest.
func (s *session) quit() {
	_ = s.conn.SetDeadline(time.Now().Add(parting))
	_ = s.client.Quit()
	s.end()
}

// end closes the connection without a word.
func (s *session) end() { _ = s.conn.Close() }
