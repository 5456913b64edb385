package email

import (
	"bytes"
	"crypto"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"

	"github.com/emersion/go-msgauth/dkim"
)

// minRSA is the least that verifiers must accept (RFC 8301, 3.2), in bits.
const minRSA = 1024

var selectorPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*$`)

// signedHeaders are those of RFC 6376, 5.4.1 that a message may have, and the two
// that RFC 8058 wants inside the signature. From, To and Subject stand twice, so
// that nobody can add another.
var signedHeaders = []string{
	"From", "To", "Subject", "Date", "Message-ID", "Reply-To", "MIME-Version", "Content-Type",
	"Content-Transfer-Encoding", "List-Unsubscribe", "List-Unsubscribe-Post", "From", "To", "Subject",
}

// signer makes DKIM signatures. go-mail could, but folds a list of headers that is
// longer than one line in a way that no verifier accepts (v0.8.1).
type signer struct {
	options dkim.SignOptions
}

// newSigner returns nil where nothing is configured.
func newSigner(cfg DKIM) (*signer, error) {
	if cfg == (DKIM{}) {
		return nil, nil
	}
	var errs []error
	domain, err := asciiDomain(cfg.Domain)
	if err != nil {
		errs = append(errs, errors.New("dkim.domain: must be a domain name"))
	}
	if !selectorPattern.MatchString(cfg.Selector) {
		errs = append(errs, errors.New("dkim.selector: must be a selector such as 2026a"))
	}
	key, err := privateKey(cfg.PrivateKey.Reveal())
	if err != nil {
		errs = append(errs, fmt.Errorf("dkim.private_key: %w", err))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &signer{dkim.SignOptions{
		Domain:                 domain,
		Selector:               cfg.Selector,
		Signer:                 key,
		HeaderCanonicalization: dkim.CanonicalizationRelaxed,
		BodyCanonicalization:   dkim.CanonicalizationRelaxed,
		HeaderKeys:             signedHeaders,
	}}, nil
}

// privateKey reads a key. Its errors are words of our own, since those of a parser
// may quote what it read.
func privateKey(text string) (crypto.Signer, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("must be a key in PEM")
	}
	var key any
	var err error
	if block.Type == "RSA PRIVATE KEY" {
		key, err = x509.ParsePKCS1PrivateKey(block.Bytes)
	} else {
		key, err = x509.ParsePKCS8PrivateKey(block.Bytes)
	}
	if err != nil {
		return nil, errors.New("must be a key in PKCS #1 or PKCS #8")
	}
	switch key := key.(type) {
	case *rsa.PrivateKey:
		if key.N.BitLen() < minRSA {
			return nil, errors.New("must have at least 1024 bits")
		}
		return key, nil
	case ed25519.PrivateKey:
		return key, nil
	}
	return nil, errors.New("must be an RSA or an Ed25519 key")
}

// sign returns msg with its signature before it.
func (s *signer) sign(msg []byte) ([]byte, error) {
	var b bytes.Buffer
	b.Grow(len(msg) + 1024)
	options := s.options
	if err := dkim.Sign(&b, bytes.NewReader(msg), &options); err != nil {
		return nil, fmt.Errorf("sign message: %w", err)
	}
	return b.Bytes(), nil
}
