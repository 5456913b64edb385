package email

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"io"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"time"
)

const (
	certTimeout = 5 * time.Second
	// maxCert bounds a certificate, in bytes; those of SNS have some 2,000.
	maxCert = 64 << 10
	// certFor is how long a certificate is used before it is fetched anew: SNS changes
	// them about once a year, and announces the new one in each message.
	certFor = 24 * time.Hour
	// maxCerts bounds the certificates that are kept.
	maxCerts = 8
)

// certificates fetches and keeps the certificates of SNS. It goes to no other
// address than it is asked for, whatever it is answered.
type certificates struct {
	client *http.Client
	now    func() time.Time

	mu   sync.Mutex
	kept map[string]keptKey
	// busy lets one fetch at a time: messages come in bursts.
	busy chan struct{}
}

type keptKey struct {
	key   *rsa.PublicKey
	until time.Time
}

// newCertificates takes the transport of requests; nil means one of its own.
func newCertificates(transport http.RoundTripper) *certificates {
	if transport == nil {
		t := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
		t.DisableKeepAlives = true
		t.MaxResponseHeaderBytes = 64 << 10
		transport = t
	}
	return &certificates{
		client: &http.Client{
			Transport: transport, Timeout: certTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		now: time.Now, kept: map[string]keptKey{}, busy: make(chan struct{}, 1),
	}
}

// key returns the key of the certificate at address, which the caller trusts to be
// SNS's. The error is a callback's.
func (c *certificates) key(ctx context.Context, address string) (*rsa.PublicKey, error) {
	if key := c.held(address); key != nil {
		return key, nil
	}
	select {
	case c.busy <- struct{}{}:
		defer func() { <-c.busy }()
	case <-ctx.Done():
		return nil, refuseCallback(http.StatusServiceUnavailable, "the certificate could not be fetched in time")
	}
	if key := c.held(address); key != nil { // somebody else fetched it meanwhile
		return key, nil
	}
	text, err := c.get(ctx, address)
	if err != nil {
		return nil, err
	}
	cert := signing(text, c.now())
	if cert == nil {
		return nil, refuseCallback(http.StatusForbidden, "the certificate is not one of sns that is valid now")
	}
	key, ok := cert.PublicKey.(*rsa.PublicKey)
	if !ok {
		return nil, refuseCallback(http.StatusForbidden, "the certificate's key is not rsa")
	}
	until := c.now().Add(certFor)
	if cert.NotAfter.Before(until) {
		until = cert.NotAfter
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kept) >= maxCerts {
		clear(c.kept)
	}
	c.kept[address] = keptKey{key, until}
	return key, nil
}

func (c *certificates) held(address string) *rsa.PublicKey {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.kept[address]; ok && c.now().Before(k.until) {
		return k.key
	}
	return nil
}

// get fetches what is at address. What is not there is not to be believed; a
// server that cannot say now may be able to later.
func (c *certificates) get(ctx context.Context, address string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, refuseCallback(http.StatusForbidden, "an address of sns is malformed")
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, refuseCallback(http.StatusServiceUnavailable, "sns cannot be reached")
	}
	defer resp.Body.Close() //nolint:errcheck // it was only read
	if resp.StatusCode != http.StatusOK {
		if resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests {
			return nil, refuseCallback(http.StatusServiceUnavailable, "sns cannot answer now")
		}
		return nil, refuseCallback(http.StatusForbidden, "sns has nothing at an address of the message")
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxCert+1))
	if err != nil || len(text) > maxCert {
		return nil, refuseCallback(http.StatusServiceUnavailable, "sns's answer broke off, or is too long")
	}
	return text, nil
}

// confirm calls the address by which a subscription is confirmed.
func (c *certificates) confirm(ctx context.Context, address string) error {
	_, err := c.get(ctx, address)
	return err
}

// snsName is what SNS's certificates are made out to: sns.amazonaws.com, or for
// some regions sns.<region>, sns-signing.<region> or sns-<region>.
var snsName = regexp.MustCompile(`^sns(?:[.-][a-z0-9-]+)*\.amazonaws\.com(?:\.cn)?$`)

// signing returns the first certificate in text if it is one of SNS and valid at
// now, else nil. The file has no chain to a root; that it is SNS's own follows
// from where it was fetched, over TLS.
func signing(text []byte, now time.Time) *x509.Certificate {
	block, _ := pem.Decode(text)
	if block == nil || block.Type != "CERTIFICATE" {
		return nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || now.Before(cert.NotBefore) || now.After(cert.NotAfter) || cert.IsCA {
		return nil
	}
	names := cert.DNSNames
	if len(names) == 0 {
		names = []string{cert.Subject.CommonName}
	}
	if !slices.ContainsFunc(names, snsName.MatchString) {
		return nil
	}
	return cert
}
