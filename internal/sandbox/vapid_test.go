package sandbox_test

import (
	"crypto/ecdsa"
	"encoding/base64"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// vapid makes an Authorization header of RFC 8292.
func vapid(t *testing.T, key *ecdsa.PrivateKey, audience string, life time.Duration, subject string) string {
	t.Helper()
	token, err := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{
		"aud": audience, "exp": time.Now().Add(life).Unix(), "sub": subject,
	}).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return "vapid t=" + token + ", k=" + base64.RawURLEncoding.EncodeToString(public)
}
