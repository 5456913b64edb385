package email

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// peer is an SMTP server of another hand than the scripted one, with TLS and
// AUTH. It notes what it was told.
type peer struct {
	srv  *smtp.Server
	addr *net.TCPAddr

	mu              sync.Mutex
	user, from, to  string
	utf8, secured   bool
	mechanism, text string
	options         smtp.MailOptions
}

// peerSession is one connection to a peer.
type peerSession struct {
	p *peer
	c *smtp.Conn
}

func newPeer(t *testing.T, implicit bool, change func(*smtp.Server)) *peer {
	t.Helper()
	p := new(peer)
	p.srv = smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return &peerSession{p, c}, nil }))
	p.srv.Domain = "mx.example.com"
	p.srv.ErrorLog = log.New(io.Discard, "", 0)
	if change != nil {
		change(p.srv)
	}
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var ok bool
	if p.addr, ok = ln.Addr().(*net.TCPAddr); !ok {
		t.Fatal("not a TCP listener")
	}
	if implicit {
		ln = tls.NewListener(ln, p.srv.TLSConfig)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.srv.Serve(ln)
	}()
	t.Cleanup(func() {
		_ = p.srv.Close()
		<-done
	})
	return p
}

func (p *peer) config(mode string) Config {
	return Config{
		Host: "127.0.0.1", Port: p.addr.Port, TLS: mode, Helo: "client.example.com",
		From: Address{Address: "alerts@example.com"},
	}
}

func (s *peerSession) AuthMechanisms() []string { return []string{"PLAIN", "LOGIN"} }

func (s *peerSession) Auth(mech string) (sasl.Server, error) {
	check := func(user, password string) error {
		if user != "relay-user" || password != testPassword {
			return smtp.ErrAuthFailed
		}
		s.p.mu.Lock()
		defer s.p.mu.Unlock()
		s.p.user, s.p.mechanism = user, mech
		return nil
	}
	switch mech {
	case sasl.Plain:
		return sasl.NewPlainServer(func(_, user, password string) error { return check(user, password) }), nil
	case sasl.Login:
		return &loginServer{check: check}, nil
	}
	return nil, smtp.ErrAuthUnknownMechanism
}

// loginServer is the server of the mechanism LOGIN, which asks twice.
type loginServer struct {
	check func(user, password string) error
	said  []string
}

func (l *loginServer) Next(response []byte) ([]byte, bool, error) {
	if response != nil {
		l.said = append(l.said, string(response))
	}
	switch len(l.said) {
	case 0:
		return []byte("Username:"), false, nil
	case 1:
		return []byte("Password:"), false, nil
	}
	return nil, true, l.check(l.said[0], l.said[1])
}

func (s *peerSession) Mail(from string, opts *smtp.MailOptions) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.from, s.p.utf8, s.p.options = from, opts.UTF8, *opts
	_, s.p.secured = s.c.TLSConnectionState()
	return nil
}

func (s *peerSession) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.to = to
	return nil
}

func (s *peerSession) Data(r io.Reader) error {
	b, err := io.ReadAll(r)
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	s.p.text = string(b)
	return err
}

func (s *peerSession) Reset()        {}
func (s *peerSession) Logout() error { return nil }

// newCertificate makes a certificate that signs itself for 127.0.0.1 and
// mail.example.com, and the file that has it trusted.
func newCertificate(t *testing.T) (*tls.Config, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"mail.example.com"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	}, file
}

func TestTLSModes(t *testing.T) {
	cert, ca := newCertificate(t)
	secure := func(s *smtp.Server) { s.TLSConfig = cert }
	tests := []struct {
		name, mode string
		implicit   bool
		server     func(*smtp.Server)
		change     func(*Config)
		want       notify.Outcome
		secured    bool
	}{
		{"starttls", tlsStartTLS, false, secure, nil, notify.Accepted, true},
		{"starttls by default", "", false, secure, nil, notify.Accepted, true},
		{"starttls is mandatory", tlsStartTLS, false, nil, nil, notify.AccountRejected, false},
		{"starttls without trust", tlsStartTLS, false, secure, func(c *Config) { c.CAFile = "" }, notify.ProviderUnavailable, false},
		{"starttls with another name", tlsStartTLS, false, secure, func(c *Config) { c.ServerName = "mail.example.com" }, notify.Accepted, true},
		{"starttls with a wrong name", tlsStartTLS, false, secure, func(c *Config) { c.ServerName = "mail.example.org" }, notify.ProviderUnavailable, false},
		{"any certificate on the loopback", tlsStartTLS, false, secure, func(c *Config) { c.CAFile, c.Insecure = "", true }, notify.Accepted, true},
		{"implicit", tlsImplicit, true, secure, nil, notify.Accepted, true},
		{"implicit without trust", tlsImplicit, true, secure, func(c *Config) { c.CAFile = "" }, notify.ProviderUnavailable, false},
		{"opportunistic with an offer", tlsOpportunistic, false, secure, nil, notify.Accepted, true},
		{"opportunistic without", tlsOpportunistic, false, nil, nil, notify.Accepted, false},
		{"none in spite of an offer", tlsNone, false, secure, nil, notify.Accepted, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			peer := newPeer(t, tt.implicit, tt.server)
			cfg := peer.config(tt.mode)
			cfg.CAFile = ca
			if tt.change != nil {
				tt.change(&cfg)
			}
			r := send(t, newProvider(t, cfg), testMessage())
			if r.Outcome != tt.want || peer.secured != tt.secured {
				t.Errorf("outcome %q (%s), secured %t", r.Outcome, r.Detail, peer.secured)
			}
			if tt.want == notify.ProviderUnavailable && r.Detail != "certificate not trusted at TLS" {
				t.Errorf("detail %q", r.Detail)
			}
		})
	}
}

func TestAuth(t *testing.T) {
	cert, ca := newCertificate(t)
	for _, tt := range []struct {
		name, auth, password string
		want                 notify.Outcome
		mechanism            string
	}{
		{"auto takes the best that is offered", "", testPassword, notify.Accepted, "PLAIN"},
		{"plain", "plain", testPassword, notify.Accepted, "PLAIN"},
		{"login", "login", testPassword, notify.Accepted, "LOGIN"},
		{"a mechanism that is not offered", "scram-sha-256", testPassword, notify.AccountRejected, ""},
		{"a wrong password", "", "wrong-" + testPassword, notify.AccountRejected, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			peer := newPeer(t, false, func(s *smtp.Server) { s.TLSConfig = cert })
			cfg := peer.config(tlsStartTLS)
			cfg.CAFile, cfg.Auth, cfg.Username, cfg.Password = ca, tt.auth, "relay-user", secret.New(tt.password)
			r := send(t, newProvider(t, cfg), testMessage())
			if r.Outcome != tt.want || peer.mechanism != tt.mechanism {
				t.Errorf("outcome %q (%s), mechanism %q", r.Outcome, r.Detail, peer.mechanism)
			}
		})
	}
}

func TestAuthReplies(t *testing.T) {
	offer := "250-mx.example.com\r\n250 AUTH PLAIN"
	for reply, want := range map[string]notify.Outcome{
		"535 5.7.8 no":             notify.AccountRejected,
		"534 5.7.9 too weak":       notify.AccountRejected,
		"530 5.7.0 TLS first":      notify.AccountRejected,
		"504 5.5.4 what mechanism": notify.AccountRejected,
		"454 4.7.0 later":          notify.ProviderUnavailable,
		"421 4.3.2 later":          notify.ProviderUnavailable,
		"334 bW9yZQ==":             notify.AccountRejected, // PLAIN has said all that it has to say
		drop:                       notify.ProviderUnavailable,
	} {
		t.Run(reply, func(t *testing.T) {
			s := newServer(t, script{"EHLO": offer, "AUTH": reply})
			cfg := s.config()
			cfg.Username, cfg.Password = "relay-user", secret.New(testPassword)
			r := send(t, newProvider(t, cfg), testMessage())
			if r.Outcome != want {
				t.Errorf("outcome %q (%s)", r.Outcome, r.Detail)
			}
		})
	}
}

func TestPasswordIsNotSentInClear(t *testing.T) {
	cfg := Config{Host: "mail.example.com", Username: "u", Password: secret.New("p"), Auth: authAuto}
	for _, tt := range []struct {
		offered string
		private bool
		want    bool
	}{
		{"PLAIN LOGIN XOAUTH2", false, false},
		{"PLAIN LOGIN", true, true},
		{"PLAIN CRAM-MD5", false, true},
		{"scram-sha-256 PLAIN", false, true},
		{"GSSAPI", true, false},
		{"", true, false},
	} {
		if _, ok := cfg.pickAuth(tt.offered, tt.private); ok != tt.want {
			t.Errorf("%q, private %t: %t", tt.offered, tt.private, ok)
		}
	}
}

func TestInternationalAddresses(t *testing.T) {
	tests := []struct {
		name, to string
		offer    bool
		want     notify.Outcome
		utf8     bool
		rcpt     string
	}{
		{"a domain is written in punycode", "ana@bücher.example", false, notify.Accepted, false, "ana@xn--bcher-kva.example"},
		{"a local part needs SMTPUTF8", "jörg@bücher.example", true, notify.Accepted, true, "jörg@xn--bcher-kva.example"},
		{"a server without SMTPUTF8 is not tried", "jörg@bücher.example", false, notify.MessageRejected, false, ""},
		{"SMTPUTF8 is not asked for without need", "ana@example.org", true, notify.Accepted, false, "ana@example.org"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			peer := newPeer(t, false, func(s *smtp.Server) { s.EnableSMTPUTF8 = tt.offer })
			m := testMessage()
			m.To.Email.Address = tt.to
			r := send(t, newProvider(t, peer.config(tlsNone)), m)
			if r.Outcome != tt.want || peer.utf8 != tt.utf8 || peer.to != tt.rcpt {
				t.Errorf("outcome %q (%s), SMTPUTF8 %t, RCPT %q", r.Outcome, r.Detail, peer.utf8, peer.to)
			}
		})
	}
}

func TestMessageLargerThanTheServerTakesIsNotSent(t *testing.T) {
	peer := newPeer(t, false, func(s *smtp.Server) { s.MaxMessageBytes = 2000 })
	p := newProvider(t, peer.config(tlsNone))
	m := testMessage()
	m.Content.Body = strings.Repeat("long ", 1000)
	if r := send(t, p, m); r.Outcome != notify.MessageRejected || peer.from != "" {
		t.Errorf("outcome %q (%s), MAIL from %q", r.Outcome, r.Detail, peer.from)
	}
	if r := send(t, p, testMessage()); r.Outcome != notify.Accepted {
		t.Errorf("outcome %q (%s) of a small one on the same connection", r.Outcome, r.Detail)
	}
}

func TestReturnPathIsTheEnvelopesSender(t *testing.T) {
	peer := newPeer(t, false, nil)
	cfg := peer.config(tlsNone)
	cfg.ReturnPath = "bounces@example.net"
	send(t, newProvider(t, cfg), testMessage())
	if peer.from != "bounces@example.net" || !strings.Contains(peer.text, "From: <alerts@example.com>") {
		t.Errorf("envelope from %q, message\n%s", peer.from, peer.text)
	}
}
