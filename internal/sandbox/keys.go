package sandbox

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"sync"
	"time"
)

const (
	// FCMProject is the project of [Credentials.FCM].
	FCMProject = "sandbox"
	// APNsTeamID goes with [Credentials.APNsKey].
	APNsTeamID = "SANDBOXTEA"
)

// keyring holds throwaway keys made at start, or when first asked for where
// making them takes long.
type keyring struct {
	fcmKeyID, apnsKeyID string

	fcm   func() (*rsa.PrivateKey, error)
	apns  *ecdsa.PrivateKey
	vapid *ecdsa.PrivateKey
	tls   tls.Certificate // zero without STARTTLS
}

func newKeyring(withTLS bool) (*keyring, error) {
	k := &keyring{
		fcmKeyID: randomHex(), apnsKeyID: "SBX" + fmt.Sprintf("%07X", time.Now().UnixNano()&0xfffffff),
		fcm: sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) }),
	}
	var err error
	if k.apns, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("make apns key: %w", err)
	}
	if k.vapid, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, fmt.Errorf("make vapid key: %w", err)
	}
	if withTLS {
		if k.tls, err = selfSigned(k.apns); err != nil {
			return nil, fmt.Errorf("make certificate: %w", err)
		}
	}
	return k, nil
}

func (k *keyring) fcmPublic() crypto.PublicKey {
	key, err := k.fcm()
	if err != nil {
		return nil
	}
	return &key.PublicKey
}

// Credentials are throwaway credentials for the providers that want keys.
type Credentials struct {
	// FCM is a service account's JSON whose token_uri is a sandbox; the project is
	// [FCMProject].
	FCM []byte
	// APNsKey is a provider key as Apple hands it out, PKCS #8 in PEM (.p8), with
	// its id; the team is [APNsTeamID].
	APNsKey   []byte
	APNsKeyID string
	// VAPIDPublic and VAPIDPrivate are a key pair for web push in URL-safe base64
	// without padding: an uncompressed point, and a number.
	VAPIDPublic, VAPIDPrivate string
}

// Credentials returns the sandbox's own, whose signatures it verifies; of keys that
// callers brought themselves it checks the form alone. The first call makes an
// RSA key, which takes a fraction of a second.
func (s *Server) Credentials() (Credentials, error) { return s.keys.credentials(s.baseURL) }

// FCMCredentials returns the FCM part of [Server.Credentials].
func (s *Server) FCMCredentials() ([]byte, error) {
	c, err := s.Credentials()
	return c.FCM, err
}

// APNsKey returns the APNs part of [Server.Credentials].
func (s *Server) APNsKey() (p8 []byte, keyID string, err error) {
	c, err := s.Credentials()
	return c.APNsKey, c.APNsKeyID, err
}

// VAPIDKeys returns the web push part of [Server.Credentials].
func (s *Server) VAPIDKeys() (public, private string, err error) {
	c, err := s.Credentials()
	return c.VAPIDPublic, c.VAPIDPrivate, err
}

func (k *keyring) credentials(baseURL string) (Credentials, error) {
	key, err := k.fcm()
	if err != nil {
		return Credentials{}, fmt.Errorf("make fcm key: %w", err)
	}
	private, err := privatePEM(key)
	if err != nil {
		return Credentials{}, fmt.Errorf("encode fcm key: %w", err)
	}
	p8, err := privatePEM(k.apns)
	if err != nil {
		return Credentials{}, fmt.Errorf("encode apns key: %w", err)
	}
	public, err := k.vapid.PublicKey.Bytes()
	if err != nil {
		return Credentials{}, fmt.Errorf("encode vapid key: %w", err)
	}
	number, err := k.vapid.Bytes()
	if err != nil {
		return Credentials{}, fmt.Errorf("encode vapid key: %w", err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	return Credentials{
		FCM: []byte(object(map[string]string{
			"type": "service_account", "project_id": FCMProject, "private_key_id": k.fcmKeyID, "private_key": string(private),
			"client_email": "dispatcher@" + FCMProject + ".iam.gserviceaccount.com", "client_id": "100000000000000000000",
			"auth_uri": baseURL + "/auth", "token_uri": baseURL + "/token",
		})),
		APNsKey: p8, APNsKeyID: k.apnsKeyID,
		VAPIDPublic: b64(public), VAPIDPrivate: b64(number),
	}, nil
}

// SMTPCertificate returns the certificate of the SMTP port in PEM, nil without
// STARTTLS. It is good for localhost, 127.0.0.1, ::1 and sandbox.test.
func (s *Server) SMTPCertificate() []byte {
	if len(s.keys.tls.Certificate) == 0 {
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.keys.tls.Certificate[0]})
}

func privatePEM(key any) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func selfSigned(key *ecdsa.PrivateKey) (tls.Certificate, error) {
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: scriptedDomain},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(365 * 24 * time.Hour),
		DNSNames: []string{"localhost", scriptedDomain}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
