package email

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // what topics sign with unless told otherwise
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

const (
	topic   = "arn:aws:sns:eu-west-1:123456789012:bounces"
	snsHost = "sns.eu-west-1.amazonaws.com"
	certURL = "https://" + snsHost + "/SimpleNotificationService-0123456789abcdef.pem"
)

// amazon is SNS in one region: a TLS server whose authority only the tests trust,
// which hands out the certificate that messages are signed with.
type amazon struct {
	transport *http.Transport
	key       *rsa.PrivateKey
	pem       []byte
	asked     atomic.Int64 // for certificates
	confirmed atomic.Pointer[string]
	status    atomic.Int64 // of its answers, 0 for 200
}

// signingKey is slow to make.
var signingKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

// certified is a certificate for name and key, which signs itself.
func certified(tb testing.TB, key *rsa.PrivateKey, change func(*x509.Certificate)) []byte {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sns.amazonaws.com"}, DNSNames: []string{"sns.amazonaws.com"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		tb.Fatal(err)
	}
	return der
}

func inPEM(der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}) }

func newAmazon(tb testing.TB) *amazon {
	tb.Helper()
	a := &amazon{key: signingKey()}
	a.pem = inPEM(certified(tb, a.key, nil))
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s := a.status.Load(); s != 0 {
			w.Header().Set("Location", "https://evil.example.com/")
			w.WriteHeader(int(s))
			return
		}
		switch {
		case r.URL.String() == strings.TrimPrefix(certURL, "https://"+snsHost):
			a.asked.Add(1)
			_, _ = w.Write(a.pem)
		case r.URL.Query().Get("Action") == "ConfirmSubscription":
			token := r.URL.Query().Get("Token")
			a.confirmed.Store(&token)
		default:
			http.NotFound(w, r)
		}
	}))
	der := certified(tb, a.key, func(c *x509.Certificate) {
		c.DNSNames, c.IsCA, c.BasicConstraintsValid = []string{snsHost}, true, true
		c.KeyUsage |= x509.KeyUsageCertSign
	})
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: a.key}}}
	server.StartTLS()
	tb.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	a.transport = &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots},
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address != snsHost+":443" {
				return nil, errors.New("nobody else is to be called")
			}
			return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
		},
	}
	tb.Cleanup(a.transport.CloseIdleConnections)
	return a
}

// subscribed is an account that believes this SNS.
func (a *amazon) subscribed(tb testing.TB) *Provider {
	p := newProvider(tb, Config{Host: "127.0.0.1", TLS: tlsNone, From: Address{Address: "alerts@example.com"}, SNSTopic: topic})
	p.sns = newSNS(topic, a.transport)
	return p
}

// sign signs a message as SNS does.
func (a *amazon) sign(tb testing.TB, m *snsMessage) {
	tb.Helper()
	hash, digest := crypto.SHA256, sha256.Sum256([]byte(m.signed()))
	sum := digest[:]
	if m.SignatureVersion == "1" {
		old := sha1.Sum([]byte(m.signed())) //nolint:gosec // as above
		hash, sum = crypto.SHA1, old[:]
	}
	signature, err := rsa.SignPKCS1v15(rand.Reader, a.key, hash, sum)
	if err != nil {
		tb.Fatal(err)
	}
	m.Signature = base64.StdEncoding.EncodeToString(signature)
}

// notification is a genuine message around text, after change.
func (a *amazon) notification(tb testing.TB, text string, change ...func(*snsMessage)) *channels.Callback {
	tb.Helper()
	m := &snsMessage{
		Type: snsNotification, MessageID: "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", TopicARN: topic, Message: text, Timestamp: "2026-11-30T09:31:02.000Z",
		SignatureVersion: "2", SigningCertURL: certURL,
	}
	for _, f := range change {
		f(m)
	}
	if m.Signature == "" {
		a.sign(tb, m)
	}
	return posted(tb, m)
}

func posted(tb testing.TB, m *snsMessage) *channels.Callback {
	tb.Helper()
	body, err := json.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return &channels.Callback{
		Method: http.MethodPost, URL: "https://notify.example.com/v1/receipts/smtp-main/ses", Path: "ses",
		Header: http.Header{"Content-Type": {"text/plain; charset=UTF-8"}, "X-Amz-Sns-Message-Type": {m.Type}}, Body: body,
	}
}

func subscription(m *snsMessage) {
	m.Type, m.Token, m.Message = snsSubscribe, "2336412f37", "You have chosen to subscribe"
	m.SubscribeURL = "https://" + snsHost + "/?Action=ConfirmSubscription&TopicArn=" + topic + "&Token=2336412f37"
}
