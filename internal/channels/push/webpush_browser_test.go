package push

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// browser is a subscriber: the receiving half of RFC 8291.
type browser struct {
	key  *ecdh.PrivateKey
	auth []byte
}

func newBrowser(tb testing.TB) browser {
	tb.Helper()
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	auth := make([]byte, 16)
	_, _ = rand.Read(auth)
	return browser{key, auth}
}

func (b browser) message(endpoint string) *channels.Message {
	m := deviceMessage(ProviderWebPush)
	m.To.Device = &notify.Device{Provider: ProviderWebPush, Endpoint: endpoint, Keys: &notify.WebPushKeys{
		P256dh: b64.EncodeToString(b.key.PublicKey().Bytes()), Auth: b64.EncodeToString(b.auth),
	}}
	return m
}

// decrypt opens a body as the browser does (RFC 8188, 2; RFC 8291, 3.4).
func (b browser) decrypt(t *testing.T, body []byte) []byte {
	t.Helper()
	const saltLen, pointLen = 16, 65
	if len(body) < 86 || body[20] != pointLen {
		t.Fatalf("body of %d bytes has no aes128gcm header", len(body))
	}
	salt, size, point, sealed := body[:saltLen], binary.BigEndian.Uint32(body[saltLen:]), body[21:86], body[86:]
	if len(sealed) > int(size) {
		t.Fatalf("record of %d bytes, announced as %d", len(sealed), size)
	}
	sender, err := ecdh.P256().NewPublicKey(point)
	if err != nil {
		t.Fatal(err)
	}
	shared, err := b.key.ECDH(sender)
	if err != nil {
		t.Fatal(err)
	}
	derive := func(secret, salt []byte, info string, n int) []byte {
		out, err := hkdf.Key(sha256.New, secret, salt, info, n)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	ikm := derive(shared, b.auth, "WebPush: info\x00"+string(b.key.PublicKey().Bytes())+string(point), 32)
	block, err := aes.NewCipher(derive(ikm, salt, "Content-Encoding: aes128gcm\x00", 16))
	if err != nil {
		t.Fatal(err)
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	clear, err := gcm.Open(nil, derive(ikm, salt, "Content-Encoding: nonce\x00", 12), sealed, nil)
	if err != nil {
		t.Fatal(err)
	}
	clear = bytes.TrimRight(clear, "\x00")
	if len(clear) == 0 || clear[len(clear)-1] != 2 {
		t.Fatal("no delimiter of a last record")
	}
	return clear[:len(clear)-1]
}
