package email

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// secrets are what no Result may hold.
func secrets(m *channels.Message) []string {
	return append(channeltest.MessageSecrets(m), "ana@example.org", testPassword)
}

func send(t *testing.T, p *Provider, m *channels.Message) channels.Result {
	t.Helper()
	r := p.Send(t.Context(), m)
	channeltest.CheckResult(t, r, secrets(m))
	return r
}

func TestAcceptedMessageCarriesBothIDs(t *testing.T) {
	s := newServer(t)
	r := send(t, newProvider(t, s.config()), testMessage())
	want := channels.Result{
		Outcome: notify.Accepted, Status: notify.Sent, Code: "250 2.0.0",
		MessageID: "<0193b0c0-0000-5000-8000-000000000001@example.com>", Detail: "queued as 4F1D2A0C3B",
	}
	if r != want {
		t.Errorf("result %+v, want %+v", r, want)
	}
	if n := s.count("MAIL FROM:<alerts@example.com>"); n != 1 {
		t.Errorf("%d MAIL, want 1", n)
	}
	if n := s.count("RCPT TO:<ana@example.org>"); n != 1 {
		t.Errorf("%d RCPT, want 1", n)
	}
	if !strings.Contains(s.message(0), "\r\nMessage-ID: "+want.MessageID+"\r\n") {
		t.Errorf("the message does not carry %s:\n%s", want.MessageID, s.message(0))
	}
}

func TestMessageIDIsTheSameInEveryAttempt(t *testing.T) {
	s := newServer(t, script{".": "451 4.3.0 later"})
	p := newProvider(t, s.config())
	send(t, p, testMessage())
	send(t, p, testMessage())
	id := func(i int) string { return parseMessage(t, s.message(i)).header.Get("Message-Id") }
	if id(0) == "" || id(0) != id(1) {
		t.Errorf("message ids %q and %q", id(0), id(1))
	}
	other := testMessage()
	other.Key[0]++
	send(t, p, other)
	if id(2) == id(0) {
		t.Errorf("two deliveries share the message id %q", id(0))
	}
}

func TestLostConnections(t *testing.T) {
	for at, want := range map[string]notify.Outcome{
		"banner": notify.ProviderUnavailable,
		"EHLO":   notify.ProviderUnavailable,
		"MAIL":   notify.ProviderUnavailable,
		"RCPT":   notify.ProviderUnavailable,
		"DATA":   notify.ProviderUnavailable,
		"body":   notify.ProviderUnavailable,
		".":      notify.Unknown,
	} {
		m := testMessage()
		if at == "body" {
			// More than socket buffers hold.
			m.Content.Email = &notify.EmailContent{Attachments: []notify.Attachment{{Filename: "a", Content: make([]byte, 7<<20)}}}
		}
		t.Run("dropped at "+at, func(t *testing.T) {
			s := newServer(t, script{at: drop})
			if r := send(t, newProvider(t, s.config()), m); r.Outcome != want {
				t.Errorf("outcome %q, want %q (%s)", r.Outcome, want, r.Detail)
			} else if at == "body" && !strings.HasSuffix(r.Detail, " at body") {
				t.Errorf("detail %q does not say where", r.Detail)
			}
		})
		t.Run("timed out at "+at, func(t *testing.T) {
			s := newServer(t, script{at: hang})
			ctx := newExpiring(t.Context())
			s.whenHung(ctx.expire)
			r := newProvider(t, s.config()).Send(ctx, m)
			if r.Outcome != want || !strings.HasPrefix(r.Detail, "timed out") && at != "body" {
				t.Errorf("outcome %q (%s), want %q", r.Outcome, r.Detail, want)
			}
		})
		t.Run("canceled at "+at, func(t *testing.T) {
			s := newServer(t, script{at: hang})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			s.whenHung(cancel)
			want := want
			if want == notify.ProviderUnavailable {
				want = notify.NotAttempted // it was ours to end, and nothing was sent
			}
			if r := newProvider(t, s.config()).Send(ctx, m); r.Outcome != want {
				t.Errorf("outcome %q (%s), want %q", r.Outcome, r.Detail, want)
			}
		})
	}
}

func TestWhatFollowsTheAnswerDoesNotChangeIt(t *testing.T) {
	for name, sc := range map[string]script{
		"QUIT is dropped": {"QUIT": drop},
		"QUIT is refused": {"QUIT": "500 5.5.1 what?"},
		"RSET is refused": {"RSET": "421 4.3.2 going down"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, sc)
			cfg := s.config()
			cfg.IdleTimeout = -1
			if r := send(t, newProvider(t, cfg), testMessage()); r.Outcome != notify.Accepted {
				t.Errorf("outcome %q (%s)", r.Outcome, r.Detail)
			}
			s.await("QUIT")
			if n := s.count("RSET"); n != 0 {
				t.Errorf("%d RSET, want none", n)
			}
		})
	}
	t.Run("QUIT hangs", func(t *testing.T) {
		s := newServer(t, script{"QUIT": hang})
		cfg := s.config()
		cfg.IdleTimeout = -1
		if r := send(t, newProvider(t, cfg), testMessage()); r.Outcome != notify.Accepted {
			t.Errorf("outcome %q (%s)", r.Outcome, r.Detail)
		}
	})
}

// mute is a connection that fails to write the end of the data.
type mute struct{ net.Conn }

var errMute = &net.OpError{Op: "write", Err: errors.New("broken pipe")}

func (m mute) Write(p []byte) (int, error) {
	if bytes.HasSuffix(p, []byte("\r\n.\r\n")) {
		return 0, errMute
	}
	return m.Conn.Write(p)
}

func TestEndOfDataThatWasNotWrittenLeavesNothingOpen(t *testing.T) {
	s := newServer(t)
	raw, err := new(net.Dialer).DialContext(t.Context(), "tcp", s.addr.String())
	if err != nil {
		t.Fatal(err)
	}
	ses := &session{conn: &conn{Conn: mute{raw}}}
	ctx := newExpiring(t.Context())
	release := ses.conn.bind(ctx)
	if f := newProvider(t, s.config()).prepare(ctx, ses); f != nil {
		t.Fatal(f.err)
	}
	go func() { // the server waits for more, and we for its answer
		s.await("DATA")
		ctx.expire()
	}()
	_, f := ses.deliver(envelope{from: "<a@example.com>", to: "<ana@example.org>", message: []byte("Subject: x\r\n\r\nx\r\n")})
	if f == nil {
		t.Fatal("no fault")
	}
	if r := f.result(ctx); r.Outcome != notify.ProviderUnavailable {
		t.Errorf("outcome %q (%s)", r.Outcome, r.Detail)
	}
	if release() {
		t.Error("the connection may be used again")
	}
	ses.end()
}

func TestRefusedConnectionIsTheProvidersFault(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Host: "127.0.0.1", TLS: tlsNone, From: Address{Address: "alerts@example.com"}}
	if cfg.Port, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	if r := send(t, newProvider(t, cfg), testMessage()); r.Outcome != notify.ProviderUnavailable || r.Detail != "network error on dial at connect" {
		t.Errorf("outcome %q (%s)", r.Outcome, r.Detail)
	}
}

func TestCanceledContextMakesNoConnection(t *testing.T) {
	s := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := newProvider(t, s.config()).Send(ctx, testMessage()); r.Outcome != notify.NotAttempted {
		t.Errorf("outcome %q (%s)", r.Outcome, r.Detail)
	}
	if s.connections() != 0 {
		t.Errorf("%d connections", s.connections())
	}
}

func TestFloodingServerIsGivenUp(t *testing.T) {
	s := newServer(t, script{"EHLO": strings.Repeat("250-x\r\n", maxAnswers/7+1) + "250 x"})
	r := send(t, newProvider(t, s.config()), testMessage())
	if r.Outcome != notify.ProviderUnavailable {
		t.Errorf("outcome %q (%s)", r.Outcome, r.Detail)
	}
}

func TestConnectionIsUsedAgain(t *testing.T) {
	for name, first := range map[string]script{
		"after a message":                   {},
		"after a refusal of the sender":     {"MAIL": "550 5.1.8 no"},
		"after a refusal of what it said":   {".": "554 5.6.0 no"},
		"after a passing failure of a text": {".": "451 4.3.0 later"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, first)
			p := newProvider(t, s.config())
			for range 3 {
				send(t, p, testMessage())
			}
			if s.connections() != 1 || s.count("MAIL") != 3 || s.count("RSET") != 0 {
				t.Errorf("%d connections, %d MAIL, %d RSET", s.connections(), s.count("MAIL"), s.count("RSET"))
			}
		})
	}
	t.Run("not after a refused recipient, whose transaction is open", func(t *testing.T) {
		s := newServer(t, script{"RCPT": "550 5.1.1 no"})
		p := newProvider(t, s.config())
		send(t, p, testMessage())
		send(t, p, testMessage())
		s.await("QUIT")
		if s.connections() != 2 {
			t.Errorf("%d connections, want 2", s.connections())
		}
	})
	t.Run("not after a 421, whatever it answers", func(t *testing.T) {
		s := newServer(t, script{".": "421 4.3.2 going down"})
		p := newProvider(t, s.config())
		send(t, p, testMessage())
		send(t, p, testMessage())
		if s.connections() != 2 {
			t.Errorf("%d connections, want 2", s.connections())
		}
	})
	t.Run("not for ever", func(t *testing.T) {
		s := newServer(t)
		p := newProvider(t, s.config())
		for range maxPerConnection + 1 {
			send(t, p, testMessage())
		}
		if s.connections() != 2 {
			t.Errorf("%d connections, want 2", s.connections())
		}
	})
}

func TestIdleConnectionThatTheServerGaveUpIsReplaced(t *testing.T) {
	// The second MAIL on the first connection is what finds out.
	for name, how := range map[string]string{"by closing it": drop, "with a 421": "421 4.4.2 idle too long"} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, script{}, script{})
			p := newProvider(t, s.config())
			send(t, p, testMessage())
			s.change("MAIL", how)
			if r := send(t, p, testMessage()); r.Outcome != notify.Accepted {
				t.Errorf("outcome %q (%s)", r.Outcome, r.Detail)
			}
			if s.connections() != 2 || len(s.messages) != 2 {
				t.Errorf("%d connections, %d messages, want 2 and 2", s.connections(), len(s.messages))
			}
		})
	}
	t.Run("but a message that was begun is not sent twice", func(t *testing.T) {
		s := newServer(t, script{}, script{})
		p := newProvider(t, s.config())
		send(t, p, testMessage())
		s.change(".", drop)
		if r := send(t, p, testMessage()); r.Outcome != notify.Unknown || s.connections() != 1 {
			t.Errorf("outcome %q (%s), %d connections", r.Outcome, r.Detail, s.connections())
		}
	})
}

func TestIdleConnectionIsClosedPolitely(t *testing.T) {
	t.Run("after its time", func(t *testing.T) {
		s := newServer(t)
		cfg := s.config()
		cfg.IdleTimeout = time.Millisecond
		send(t, newProvider(t, cfg), testMessage())
		s.await("QUIT")
	})
	t.Run("when the provider is closed", func(t *testing.T) {
		s := newServer(t)
		p := newProvider(t, s.config())
		send(t, p, testMessage())
		p.Close()
		s.await("QUIT")
		if r := send(t, p, testMessage()); r.Outcome != notify.Accepted {
			t.Errorf("outcome %q after Close", r.Outcome)
		}
	})
}

func TestConnectionsAreBounded(t *testing.T) {
	s := newServer(t)
	cfg := s.config()
	cfg.MaxConnections = 2
	p := newProvider(t, cfg)
	if p.MaxCalls() != 2 {
		t.Errorf("the account is said to make %d calls at once", p.MaxCalls())
	}
	m := testMessage() // one for all: a provider must not write to it
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if r := p.Send(t.Context(), m); r.Outcome != notify.Accepted {
				t.Errorf("outcome %q (%s)", r.Outcome, r.Detail)
			}
		})
	}
	wg.Wait()
	if s.connections() > 2 || len(s.messages) != 16 {
		t.Errorf("%d connections, %d messages", s.connections(), len(s.messages))
	}
}

func TestMessageWithoutAFreeConnectionIsNotAttempted(t *testing.T) {
	s := newServer(t)
	cfg := s.config()
	cfg.MaxConnections = 1
	p := newProvider(t, cfg)
	if err := p.pool.enter(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := p.Send(lapsing{newExpiring(t.Context())}, testMessage()); r.Outcome != notify.NotAttempted {
		t.Errorf("outcome %q (%s)", r.Outcome, r.Detail)
	}
	if s.connections() != 0 {
		t.Errorf("%d connections", s.connections())
	}
	p.pool.leave()
	if r := send(t, p, testMessage()); r.Outcome != notify.Accepted {
		t.Errorf("outcome %q (%s) with a free connection", r.Outcome, r.Detail)
	}
}

// TestAnswersAreNotRepeated: a server may put the address, the text and even the
// password into its answers, and none of that is ours to keep.
func TestAnswersAreNotRepeated(t *testing.T) {
	echo := "ana@example.org " + testPassword + " Deploy failed 3 of 5 pods are down"
	for _, at := range []string{"banner", "EHLO", "AUTH", "MAIL", "RCPT", "DATA", ".", "body"} {
		for _, code := range []string{"250 2.0.0 Ok: queued as ", "250 id=", "354 ", "421 4.3.2 ", "450 ", "550 5.1.1 ", "550 5.7.1 ", "", "999 "} {
			t.Run(at+" "+code, func(t *testing.T) {
				sc := script{"EHLO": "250-mx.example.com\r\n250 AUTH PLAIN", "HELO": "550 no", "AUTH": "235 2.7.0 ok"}
				sc[at] = code + echo
				s := newServer(t, sc)
				cfg := s.config()
				cfg.Username, cfg.Password = "relay-user", secret.New(testPassword)
				send(t, newProvider(t, cfg), testMessage())
			})
		}
	}
}
