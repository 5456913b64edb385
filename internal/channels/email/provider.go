package email

import (
	"context"
	"crypto/tls"
	"errors"
	"net/textproto"
	"regexp"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Provider sends through one SMTP server, one recipient to a transaction, over a
// small number of connections that are used again. The deadline of a call is its
// context's and bounds the whole exchange.
type Provider struct {
	info       channels.Info
	cfg        Config
	tls        *tls.Config
	from       mailbox
	replyTo    mailbox // empty for none
	returnPath mailbox // empty for the sender
	signer     *signer // nil for none
	pool       *pool
	now        func() time.Time

	bounceSecret func() string // not the value, which %+v of an unexported field would print
	sns          *sns          // nil for none
}

// Info implements [channels.Provider].
func (p *Provider) Info() channels.Info { return p.info }

// MaxCalls implements [channels.Bounded]: each call takes a connection for itself.
func (p *Provider) MaxCalls() int { return p.cfg.MaxConnections }

// Close ends the idle connections. Calls in flight go on, and a provider that is
// closed still sends, with a connection for each message.
func (p *Provider) Close() { p.pool.close() }

// Check implements [channels.Checker].
func (p *Provider) Check(m *channels.Message) error {
	if _, err := p.read(m); err != nil {
		return err
	}
	return nil
}

// Send implements [channels.Provider].
func (p *Provider) Send(ctx context.Context, m *channels.Message) channels.Result {
	if err := ctx.Err(); err != nil {
		return channels.Transport(ctx, err, false)
	}
	l, bad := p.read(m)
	if bad != nil {
		return refuse(bad)
	}
	id, ref := messageID(m, l.from), deliveryRef(m).String()
	message, err := p.render(l, id, ref)
	if err != nil {
		// The text of err may hold the message.
		return channels.Result{Outcome: notify.MessageRejected, Detail: "message could not be written"}
	}
	e := envelope{from: l.from.path(), to: l.to.path(), utf8: l.utf8(), ref: ref, message: message}
	if !p.returnPath.empty() {
		e.from, e.utf8 = p.returnPath.path(), e.utf8 || p.returnPath.utf8()
	}
	if err := p.pool.enter(ctx); err != nil {
		return channels.Result{Outcome: notify.NotAttempted, Detail: "no connection was free"}
	}
	defer p.pool.leave()
	said, f := p.transact(ctx, e)
	if f != nil {
		return f.result(ctx)
	}
	return p.accepted(id, said)
}

// refuse is the result of a message that Check will not let pass.
func refuse(err *channels.CheckError) channels.Result {
	r := channels.Result{Outcome: notify.MessageRejected, Detail: err.Error()}
	if strings.HasPrefix(err.Field, "/to/") {
		r.Outcome = notify.RecipientRejected
	}
	return r
}

func (p *Provider) render(l *letter, id, ref string) ([]byte, error) {
	message, err := l.write(id, ref, p.now())
	if err != nil || p.signer == nil {
		return message, err
	}
	return p.signer.sign(message)
}

// transact delivers e on an idle session, or on a new one where there is none or
// the server has given up the idle one. That is no second attempt: a session that
// ends at MAIL has not seen the message.
func (p *Provider) transact(ctx context.Context, e envelope) (string, *fault) {
	if s := p.pool.take(); s != nil {
		said, f := p.use(s, s.conn.bind(ctx), e)
		if f == nil || !f.stale(s) || ctx.Err() != nil {
			return said, f
		}
	}
	s, release, f := p.open(ctx)
	if f != nil {
		return "", f
	}
	return p.use(s, release, e)
}

// use delivers e on s and puts s back where that can be done. Nothing that comes
// after the server's answer changes it.
func (p *Provider) use(s *session, release func() bool, e envelope) (string, *fault) {
	said, f := s.deliver(e)
	switch reusable := release(); {
	case !reusable:
		s.end()
	case f == nil || f.idle():
		p.pool.put(s)
	default:
		go s.quit() // a transaction is open, and RSET would cost what a new session does
	}
	return said, f
}

// accepted is the result of a message that the server took. Its own id for it
// helps an operator to find it in the server's log, and is what Amazon SES calls
// the message by, having put it in place of ours.
func (p *Provider) accepted(id, said string) channels.Result {
	r := channels.Ok("<" + id + ">")
	if m := sesPattern.FindStringSubmatch(said); m != nil && p.sns != nil {
		r.MessageID = m[1]
	}
	r.Code = parseReply(250, said).String()
	if queue := queueID(said); queue != "" {
		r.Detail = "queued as " + queue
	}
	return r
}

// queuePattern finds the id in what the common servers say: "queued as X"
// (Postfix and others), "OK id=X" (Exim), "X Message accepted" (Sendmail).
var queuePattern = regexp.MustCompile(`(?:queued as |\bid=)([A-Za-z0-9._-]{4,64})\b|^(?:2\.[0-9.]+ )?([A-Za-z0-9]{8,32}) Message accepted`)

// sesPattern is what Amazon SES answers: "Ok" and its id of the message.
var sesPattern = regexp.MustCompile(`^(?:2\.[0-9.]+ )?Ok ([0-9a-f]{16}-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-[0-9]{6})\b`)

// sesID is an id that SES gave, empty for what is none.
func sesID(id string) string {
	if !sesPattern.MatchString("Ok " + id) {
		return ""
	}
	return id
}

func queueID(said string) string {
	m := queuePattern.FindStringSubmatch(said)
	if m == nil {
		return ""
	}
	return m[1] + m[2]
}

// answer returns the server's reply, if it is what ended the exchange.
func (f *fault) answer() (reply, bool) {
	if e, ok := errors.AsType[*textproto.Error](f.err); ok {
		return parseReply(e.Code, e.Msg), true
	}
	return reply{}, false
}

// stale reports whether a session that had been idle was given up by the server.
func (f *fault) stale(s *session) bool {
	r, answered := f.answer()
	return f.stage == stageMail && (s.conn.broken != nil && !answered || answered && r.code == 421)
}

// idle reports whether the session is as it was before the transaction.
func (f *fault) idle() bool {
	if errors.Is(f.err, errNoUTF8) || errors.Is(f.err, errTooBig) {
		return true
	}
	r, answered := f.answer()
	return answered && r.code != 421 && (f.stage == stageMail || f.stage == stageDot)
}

// result classifies the fault, in the order of what is known best: our own
// checks, the server's answer, the network.
func (f *fault) result(ctx context.Context) channels.Result {
	switch {
	case errors.Is(f.err, errNoUTF8), errors.Is(f.err, errTooBig):
		return channels.Result{Outcome: notify.MessageRejected, Detail: f.err.Error()}
	case errors.Is(f.err, errNoStartTLS), errors.Is(f.err, errNoAuth), errors.Is(f.err, errAuth):
		return channels.Result{Outcome: notify.AccountRejected, Detail: f.err.Error()}
	}
	if r, ok := f.answer(); ok {
		return r.result(f.stage)
	}
	r := channels.Transport(ctx, f.err, f.stage == stageDot && !f.unwritten)
	if kind := f.kind(); kind != "" {
		r.Detail = kind
	}
	r.Detail += " at " + string(f.stage)
	return r
}

// kind names what [channels.Transport] has no words for.
func (f *fault) kind() string {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](f.err); ok {
		return "certificate not trusted"
	}
	if _, ok := errors.AsType[textproto.ProtocolError](f.err); ok {
		return "malformed reply"
	}
	return ""
}

var (
	_ channels.Provider = (*Provider)(nil)
	_ channels.Checker  = (*Provider)(nil)
	_ channels.Bounded  = (*Provider)(nil)

	_ channels.CallbackReader = (*Provider)(nil)
)
