package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"

	"github.com/go-json-experiment/json"
)

// exampleVAPIDKey is the public half of a key that was thrown away.
const exampleVAPIDKey = "BNcRdreALRFXTkOOUHK1EtK2wtaz5Ry4YfYCA_0QTpQtUbVlUls0VJXg7A8u-Ts1XbjhazAkj7I99e8QcYP7DkM"

// throwaway is a set of keys that open nothing: a sandbox looks at their form
// only.
type throwaway struct {
	FCMCredentials  string // a service account's JSON
	APNsKey         string // .p8
	APNsKeyID       string
	VAPIDPublicKey  string
	VAPIDPrivateKey string
	WebhookSecret   string
}

func newThrowaway(sandbox string) (throwaway, error) {
	t := throwaway{APNsKeyID: rand.Text()[:10], WebhookSecret: "whsec_" + base64.StdEncoding.EncodeToString([]byte(rand.Text()))}
	var err error
	if t.FCMCredentials, err = serviceAccount(sandbox); err != nil {
		return t, err
	}
	p8, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return t, err
	}
	if t.APNsKey, err = privatePEM(p8); err != nil {
		return t, err
	}
	t.VAPIDPublicKey, t.VAPIDPrivateKey, err = vapidPair()
	return t, err
}

// serviceAccount is a Google service account whose tokens come from the sandbox.
func serviceAccount(sandbox string) (string, error) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", err
	}
	private, err := privatePEM(key)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "sandbox", "private_key_id": "throwaway-" + rand.Text(), "private_key": private,
		"client_email": "dispatcher@sandbox.iam.gserviceaccount.com", "token_uri": sandbox + "/token",
	}, json.Deterministic(true))
	return string(b), err
}

func vapidPair() (public, private string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", "", err
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		return "", "", err
	}
	scalar, err := key.Bytes()
	if err != nil {
		return "", "", err
	}
	return base64.RawURLEncoding.EncodeToString(point), base64.RawURLEncoding.EncodeToString(scalar), nil
}

func privatePEM(key any) (string, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return "", err
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), nil
}
