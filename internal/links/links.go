// Package links makes and reads the links that this service puts into messages.
// A link is a proof by itself: whoever has it got the message.
package links

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"

	"github.com/google/uuid"
)

const (
	// KeySize is how long a signing key is, in bytes.
	KeySize = 32
	// macSize is 96 bits: a guess needs a request, and those are limited. Short
	// links matter in a text message.
	macSize = 12
	// ackPath is short for the same reason.
	ackPath = "/a/"
	// purpose keeps a signature from being one for something else.
	purpose = "acknowledge\x00"
)

// ErrInvalid says that a token is not one that was made here.
var ErrInvalid = errors.New("not a link of this service")

// Signer makes and checks links with one key.
type Signer struct {
	base string
	key  []byte
}

// NewSigner returns a signer for links below base, an absolute URL without a
// slash at its end. key has [KeySize] bytes.
func NewSigner(base string, key []byte) Signer { return Signer{base, key} }

// Acknowledge returns the link by which a person acknowledges a notification:
// the base, "/a/" and 38 characters of the URL-safe base64 alphabet.
func (s Signer) Acknowledge(id uuid.UUID) string {
	return s.base + ackPath + base64.RawURLEncoding.EncodeToString(append(id[:], s.mac(id)...))
}

// Acknowledged returns which notification a link's last part, its token, is for,
// or [ErrInvalid].
func (s Signer) Acknowledged(token string) (uuid.UUID, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || len(b) != len(uuid.UUID{})+macSize || base64.RawURLEncoding.EncodedLen(len(b)) != len(token) {
		return uuid.Nil, ErrInvalid
	}
	id := uuid.UUID(b[:16])
	if !hmac.Equal(b[16:], s.mac(id)) {
		return uuid.Nil, ErrInvalid
	}
	return id, nil
}

func (s Signer) mac(id uuid.UUID) []byte {
	h := hmac.New(sha256.New, s.key)
	h.Write([]byte(purpose))
	h.Write(id[:])
	return h.Sum(nil)[:macSize]
}
