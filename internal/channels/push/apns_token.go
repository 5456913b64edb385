package push

import (
	"crypto/ecdsa"
	"fmt"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// Apple refuses provider tokens older than an hour, and accounts whose token
// changes more often than every 20 minutes (TooManyProviderTokenUpdates).
const (
	apnsTokenLife = 50 * time.Minute
	apnsTokenRest = 20 * time.Minute
)

// providerToken makes and keeps the JWT by which APNs knows the account: ES256,
// with the key's id in its header (RFC 7519, 7518).
type providerToken struct {
	key           *ecdsa.PrivateKey
	keyID, teamID string

	mu      sync.Mutex
	current string
	issued  time.Time
	stale   bool
}

// get returns the token to use now.
func (t *providerToken) get(now time.Time) (string, error) {
	now = now.Round(0) // Apple compares wall clocks, and so must we
	t.mu.Lock()
	defer t.mu.Unlock()
	age := now.Sub(t.issued)
	if t.current != "" && !t.stale && age >= 0 && age < apnsTokenLife {
		return t.current, nil
	}
	claims := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": t.teamID, "iat": now.Unix()})
	claims.Header["kid"] = t.keyID
	signed, err := claims.SignedString(t.key)
	if err != nil {
		return "", fmt.Errorf("sign provider token: %w", err)
	}
	t.current, t.issued, t.stale = signed, now, false
	return signed, nil
}

// refresh is told that APNs called used expired. It reports whether the next call
// has a newer token. It has none if used is newer than Apple allows a token to be
// replaced: then a clock is wrong, and another token would be refused as well.
func (t *providerToken) refresh(used string, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if used != t.current {
		return true
	}
	if age := now.Round(0).Sub(t.issued); age >= 0 && age < apnsTokenRest {
		return false
	}
	t.stale = true
	return true
}
