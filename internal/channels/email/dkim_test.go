package email

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"strings"
	"testing"

	"github.com/emersion/go-msgauth/dkim"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// keyPEM returns a key and the record that publishes it.
func keyPEM(t *testing.T, key crypto.Signer) (text, record string) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	text = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	switch pub := key.Public().(type) {
	case ed25519.PublicKey:
		return text, "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(pub)
	case *rsa.PublicKey:
		der, err := x509.MarshalPKIXPublicKey(pub)
		if err != nil {
			t.Fatal(err)
		}
		return text, "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)
	}
	t.Fatal("no such key")
	return "", ""
}

func verify(t *testing.T, raw, record string) []*dkim.Verification {
	t.Helper()
	got, err := dkim.VerifyWithOptions(strings.NewReader(raw), &dkim.VerifyOptions{
		LookupTXT: func(name string) ([]string, error) {
			if name != "2026a._domainkey.example.com" {
				return nil, errors.New("no such name")
			}
			return []string{record}, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSignatureVerifies(t *testing.T) {
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{"ed25519": edKey, "rsa": rsaKey} {
		t.Run(name, func(t *testing.T) {
			text, record := keyPEM(t, key)
			s := newServer(t)
			cfg := s.config()
			cfg.DKIM = DKIM{Domain: "example.com", Selector: "2026a", PrivateKey: secret.New(text)}
			m := testMessage()
			m.Content.Email = &notify.EmailContent{
				Subject: "Störung 部署失败", Text: "a \n\n.\ntrailing  \n\n\n", HTML: "<p>ü</p>",
				UnsubscribeURL: "https://example.com/u", ReplyTo: &notify.EmailAddress{Address: "ops@example.com"},
			}
			if r := send(t, newProvider(t, cfg), m); r.Outcome != notify.Accepted {
				t.Fatalf("outcome %q (%s)", r.Outcome, r.Detail)
			}
			raw := s.message(0) // as it came over the wire
			got := verify(t, raw, record)
			if len(got) != 1 || got[0].Err != nil || got[0].Domain != "example.com" {
				t.Fatalf("verifications %+v of\n%s", got, raw)
			}
			signed := strings.ToLower(strings.Join(got[0].HeaderKeys, " ") + " ")
			for _, h := range []string{"from", "to", "subject", "date", "message-id", "list-unsubscribe", "list-unsubscribe-post", "content-type"} {
				if !strings.Contains(signed, h+" ") {
					t.Errorf("%s is not signed", h)
				}
			}
			for name, forged := range map[string]string{
				"another text":    strings.Replace(raw, "trailing", "forged", 1),
				"another subject": "Subject: forged\r\n" + raw,
				"a second From":   "From: eve@example.com\r\n" + raw,
			} {
				if got := verify(t, forged, record); len(got) != 1 || got[0].Err == nil {
					t.Errorf("%s verifies", name)
				}
			}
		})
	}
}

func TestPrivateKeyForms(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs1 := string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)}))
	if _, err := privateKey(pkcs1); err != nil {
		t.Errorf("PKCS #1: %v", err)
	}
	for name, text := range map[string]string{
		"nothing": "", "no PEM": "hunter2", "garbage": "-----BEGIN PRIVATE KEY-----\naHVudGVyMg==\n-----END PRIVATE KEY-----\n",
	} {
		if _, err := privateKey(text); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
