package sandbox

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// signedToken is a JWT whose form was looked at.
type signedToken struct {
	keyID  string
	claims jwt.MapClaims
}

// readToken parses a JWT made with method. Where key names a public key for it,
// the signature is checked; a token with a stranger's key id passes on its form,
// because a sandbox lets people bring credentials of their own. Tokens found
// good are remembered, since verifying costs more than everything else here.
func (s *Server) readToken(raw, method string, key func(keyID string) crypto.PublicKey) (signedToken, bool) {
	claims := jwt.MapClaims{}
	parser := jwt.NewParser(jwt.WithValidMethods([]string{method}), jwt.WithoutClaimsValidation())
	t, _, err := parser.ParseUnverified(raw, claims)
	if err != nil || t.Method.Alg() != method {
		return signedToken{}, false
	}
	keyID, _ := t.Header["kid"].(string)
	out := signedToken{keyID: keyID, claims: claims}
	public := key(keyID)
	if public == nil || s.tokens.has(raw) {
		return out, true
	}
	if _, err := parser.Parse(raw, func(*jwt.Token) (any, error) { return public, nil }); err != nil {
		return signedToken{}, false
	}
	s.tokens.first(raw)
	return out, true
}

func (t signedToken) text(claim string) string {
	v, _ := t.claims[claim].(string)
	return v
}

func (t signedToken) time(claim string) time.Time {
	v, ok := t.claims[claim].(float64)
	if !ok {
		return time.Time{}
	}
	return time.Unix(int64(v), 0)
}

// pointKey reads an uncompressed P-256 point in URL-safe base64, as VAPID's k.
func pointKey(raw string) crypto.PublicKey {
	b, err := base64.RawURLEncoding.DecodeString(raw)
	if err != nil {
		return nil
	}
	key, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), b)
	if err != nil {
		return nil
	}
	return key
}
