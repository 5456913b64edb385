package sandbox

import (
	"bytes"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"net/http"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	webPushMaxSize = 4096
	webPushMaxTTL  = 2_592_000 // seconds, Mozilla's figure
	maxVAPIDLife   = 24 * time.Hour
)

var webPushTopic = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// NewSubscription returns a web push subscription of this sandbox: its endpoint,
// and its keys in URL-safe base64. The name becomes part of the endpoint and may
// be an outcome ([ScriptedRecipients]). The same name gives the same keys, also
// after a restart, so that the sandbox can show what it is sent.
func (s *Server) NewSubscription(name string) (endpoint, p256dh, auth string) {
	key, secret := subscriptionKeys(name)
	b64 := base64.RawURLEncoding.EncodeToString
	return s.baseURL + "/webpush/" + url.PathEscape(name), b64(key.PublicKey().Bytes()), b64(secret)
}

// subscriptionKeys derives a subscriber's keys from its name: they protect
// nothing, and need not be stored.
func subscriptionKeys(name string) (*ecdh.PrivateKey, []byte) {
	for n := 0; ; n++ {
		seed := sha256.Sum256([]byte("sandbox subscription " + strconv.Itoa(n) + " " + name))
		key, err := ecdh.P256().NewPrivateKey(seed[:])
		if err != nil {
			continue // one in 2^32 numbers is no key of the curve
		}
		auth := sha256.Sum256([]byte("sandbox auth secret " + name))
		return key, auth[:16]
	}
}

func (s *Server) webPushSend(w http.ResponseWriter, r *http.Request) {
	name := path.Base(r.URL.Path)
	sealed := readBody(r)
	c := call{
		provider: webPush, channel: "push", to: s.callerURL(r), raw: sealed,
		headers: pick(r.Header, "TTL", "Urgency", "Topic", "Content-Encoding", "Content-Type", "User-Agent"),
	}
	if len(sealed) > 0 {
		plain, err := openWebPush(name, sealed)
		c.raw = plain
		if err != nil {
			c.headers = append(c.headers, header{"Sandbox-Note", "cannot be decrypted with this subscription's keys"})
		}
	}
	c.decide = func() reply {
		if status, code := s.webPushCheck(r, sealed); status != 0 {
			return webPushError(status, code)
		}
		key := r.Header.Get("Topic")
		if key == "" {
			key = string(c.raw)
		}
		if rep, refused := s.refusalFor(s.scripted(webPush, outcomeName(name)), name+" "+key); refused {
			return rep
		}
		id := s.baseURL + "/webpush-message/" + randomHex()
		return reply{
			status: http.StatusCreated, id: id, accepted: true, contentType: "text/plain",
			header: []header{{"Location", id}, {"TTL", r.Header.Get("TTL")}},
		}
	}
	s.handle(w, r, c)
}

// callerURL is the URL as the caller wrote it.
func (s *Server) callerURL(r *http.Request) string { return "http://" + r.Host + r.URL.RequestURI() }

// webPushCheck returns the status and error number of what is wrong; the numbers
// are those of Mozilla's push service.
func (s *Server) webPushCheck(r *http.Request, sealed []byte) (int, string) {
	h := r.Header
	ttl, err := strconv.Atoi(h.Get("TTL"))
	switch {
	case h.Get("TTL") == "":
		return http.StatusBadRequest, "111"
	case err != nil || ttl < 0 || ttl > webPushMaxTTL:
		return http.StatusBadRequest, "112"
	case h.Get("Topic") != "" && !webPushTopic.MatchString(h.Get("Topic")):
		return http.StatusBadRequest, "113"
	case !oneOf(h.Get("Urgency"), "", "very-low", "low", "normal", "high"):
		return http.StatusBadRequest, "101"
	case len(sealed) > 0 && h.Get("Content-Encoding") != "aes128gcm":
		return http.StatusBadRequest, "110"
	case len(sealed) > webPushMaxSize:
		return http.StatusRequestEntityTooLarge, "104"
	case !s.vapid(r):
		return http.StatusUnauthorized, "109"
	}
	return 0, ""
}

// vapid checks `Authorization: vapid t=…, k=…` (RFC 8292): signed by k, for this
// origin, ending within a day, and naming whom to ask.
func (s *Server) vapid(r *http.Request) bool {
	scheme, rest, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "vapid") {
		return false
	}
	params := map[string]string{}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		params[name] = value
	}
	key := pointKey(params["k"])
	if key == nil {
		return false
	}
	t, ok := s.readToken(params["t"], "ES256", func(string) crypto.PublicKey { return key })
	left := t.time("exp").Sub(s.now())
	subject := t.text("sub")
	return ok && left > 0 && left <= maxVAPIDLife && audience(t.text("aud"), r.Host) &&
		(strings.HasPrefix(subject, "mailto:") || strings.HasPrefix(subject, "https:")) &&
		!strings.HasPrefix(subject, "mailto:mailto:")
}

// audience tells whether a token is for this origin. An origin of another host is
// let through where it is https: callers are pointed at the sandbox by replacing
// the host of the endpoint that they signed for.
func audience(aud, host string) bool {
	u, err := url.Parse(aud)
	if err != nil || u.Host == "" || u.Path != "" || u.RawQuery != "" {
		return false
	}
	return u.Scheme == "https" || (u.Scheme == "http" && u.Host == host)
}

// forwarded tells whether a call is a web push for an endpoint of another path,
// which came here because its host was replaced.
func forwarded(r *http.Request) bool {
	scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return r.Method == http.MethodPost && r.Header.Get("TTL") != "" && strings.EqualFold(scheme, "vapid")
}

// openWebPush decrypts an aes128gcm body of one record (RFC 8188, RFC 8291).
func openWebPush(name string, sealed []byte) ([]byte, error) {
	const head = 16 + 4 + 1 // salt, record size, length of the key id
	if len(sealed) < head+65+16 || sealed[20] != 65 || binary.BigEndian.Uint32(sealed[16:20]) < 18 {
		return nil, errors.New("no aes128gcm record")
	}
	salt, sender, record := sealed[:16], sealed[head:head+65], sealed[head+65:]
	private, auth := subscriptionKeys(name)
	public, err := ecdh.P256().NewPublicKey(sender)
	if err != nil {
		return nil, err
	}
	shared, err := private.ECDH(public)
	if err != nil {
		return nil, err
	}
	info := "WebPush: info\x00" + string(private.PublicKey().Bytes()) + string(sender)
	ikm, err := hkdf.Key(sha256.New, shared, auth, info, 32)
	if err != nil {
		return nil, err
	}
	key, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Key(sha256.New, ikm, salt, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	return openRecord(key, nonce, record)
}

func openRecord(key, nonce, record []byte) ([]byte, error) {
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	plain, err := gcm.Open(nil, nonce, record, nil)
	if err != nil {
		return nil, err
	}
	plain = bytes.TrimRight(plain, "\x00")
	if len(plain) == 0 || plain[len(plain)-1] != 2 {
		return nil, errors.New("last record has no delimiter")
	}
	return plain[:len(plain)-1], nil
}

// webPushError is Mozilla's error body.
func webPushError(status int, errno string) reply {
	if errno == "" {
		errno = map[int]string{
			http.StatusUnauthorized: "109", http.StatusForbidden: "109", http.StatusNotFound: "102", http.StatusGone: "106",
			http.StatusRequestEntityTooLarge: "104", http.StatusTooManyRequests: "202", http.StatusServiceUnavailable: "201",
		}[status]
	}
	n, _ := strconv.Atoi(errno)
	return reply{status: status, code: errno, body: object(map[string]any{
		"code": status, "errno": n, "error": http.StatusText(status), "message": "the sandbox refuses",
	})}
}

// webPushText reads the payload where it looks like a notification; what a web
// push carries is the application's own affair.
func webPushText(e *entry) (title, body string) {
	type card struct {
		Title string `json:"title"`
		Body  string `json:"body"`
	}
	var p struct {
		card
		Notification card `json:"notification"`
	}
	if jsontext.Value(e.raw).Kind() == '{' && json.Unmarshal(e.raw, &p) == nil {
		if p.Title != "" || p.Body != "" {
			return p.Title, p.Body
		}
		if p.Notification != (card{}) {
			return p.Notification.Title, p.Notification.Body
		}
	}
	return "to " + path.Base(e.to), string(e.raw)
}
