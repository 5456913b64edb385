package sandbox

import (
	"crypto"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

const (
	apnsMaxSize     = 4096
	apnsMaxVoIP     = 5120
	apnsMaxCollapse = 64
)

var apnsToken = regexp.MustCompile(`^[0-9A-Za-z_:-]+$`)

// apnsSend is POST /3/device/{token}. Apple speaks HTTP/2 alone; the sandbox
// takes HTTP/1.1 too, so that it can be tried with anything.
func (s *Server) apnsSend(w http.ResponseWriter, r *http.Request) {
	token := r.PathValue("token")
	c := call{
		provider: apns, channel: "push", to: token, from: r.Header.Get("apns-topic"), raw: readBody(r),
		headers: append(pick(r.Header, "apns-id", "apns-topic", "apns-push-type", "apns-priority", "apns-expiration",
			"apns-collapse-id", "User-Agent"), header{"Protocol", r.Proto}),
	}
	id := r.Header.Get("apns-id")
	if _, err := uuid.Parse(id); err != nil {
		id = strings.ToUpper(uuid.NewString())
	}
	c.decide = func() reply {
		rep := s.apnsDecide(r, c, id)
		rep.header = append(rep.header, header{"apns-id", id})
		return rep
	}
	s.handle(w, r, c)
}

func (s *Server) apnsDecide(r *http.Request, c call, id string) reply {
	if reason := s.apnsProvider(r); reason != "" {
		return apnsError(http.StatusForbidden, reason)
	}
	if reason := apnsCheck(r.Header, c); reason != "" {
		status := http.StatusBadRequest
		if reason == "PayloadTooLarge" {
			status = http.StatusRequestEntityTooLarge
		}
		return apnsError(status, reason)
	}
	key := r.Header.Get("apns-collapse-id")
	if key == "" {
		key = r.Header.Get("apns-id")
	}
	if key == "" {
		key = string(c.raw)
	}
	if rep, refused := s.refusalFor(s.scripted(apns, outcomeName(c.to)), c.to+" "+key); refused {
		return rep
	}
	return reply{status: http.StatusOK, id: id, accepted: true}
}

// apnsProvider checks the provider token: ES256 with a key id, a team as issuer,
// and not older than an hour.
func (s *Server) apnsProvider(r *http.Request) string {
	raw := bearer(r)
	if raw == "" {
		return "MissingProviderToken"
	}
	t, ok := s.readToken(raw, "ES256", func(keyID string) crypto.PublicKey {
		if keyID == s.keys.apnsKeyID {
			return &s.keys.apns.PublicKey
		}
		return nil
	})
	issued := t.time("iat")
	switch {
	case !ok, t.keyID == "", t.text("iss") == "", issued.IsZero():
		return "InvalidProviderToken"
	case s.now().Sub(issued) > time.Hour, issued.Sub(s.now()) > 5*time.Minute:
		return "ExpiredProviderToken"
	}
	return ""
}

func apnsCheck(h http.Header, c call) string {
	limit := apnsMaxSize
	if h.Get("apns-push-type") == "voip" {
		limit = apnsMaxVoIP
	}
	switch id := h.Get("apns-id"); {
	case id != "" && uuid.Validate(id) != nil:
		return "BadMessageId"
	case c.from == "":
		return "MissingTopic"
	case !apnsToken.MatchString(c.to):
		return "BadDeviceToken"
	case !oneOf(h.Get("apns-push-type"), "", "alert", "background", "location", "voip", "complication", "fileprovider", "mdm",
		"liveactivity", "pushtotalk", "widgets", "controls"):
		return "InvalidPushType"
	case !oneOf(h.Get("apns-priority"), "", "1", "5", "10"):
		return "BadPriority"
	case !wholeNumber(h.Get("apns-expiration")):
		return "BadExpirationDate"
	case len(h.Get("apns-collapse-id")) > apnsMaxCollapse:
		return "BadCollapseId"
	case len(c.raw) == 0 || jsontext.Value(c.raw).Kind() != '{':
		return "PayloadEmpty"
	case len(c.raw) > limit:
		return "PayloadTooLarge"
	}
	return ""
}

func oneOf(v string, allowed ...string) bool { return slices.Contains(allowed, v) }

func wholeNumber(v string) bool {
	if v == "" {
		return true
	}
	n, err := strconv.ParseInt(v, 10, 64)
	return err == nil && n >= 0
}

// apnsError is Apple's error body.
func apnsError(status int, reason string) reply {
	if reason == "" {
		reason = map[int]string{
			http.StatusBadRequest: "BadDeviceToken", http.StatusForbidden: "InvalidProviderToken", http.StatusNotFound: "BadPath",
			http.StatusMethodNotAllowed: "MethodNotAllowed", http.StatusGone: "Unregistered",
			http.StatusRequestEntityTooLarge: "PayloadTooLarge", http.StatusTooManyRequests: "TooManyRequests",
			http.StatusServiceUnavailable: "ServiceUnavailable",
		}[status]
	}
	if reason == "" {
		reason = "InternalServerError"
	}
	body := map[string]any{"reason": reason}
	if status == http.StatusGone {
		body["timestamp"] = time.Now().Add(-time.Hour).UnixMilli()
	}
	return reply{status: status, code: reason, body: object(body)}
}

func apnsText(e *entry) (title, body string) {
	var p struct {
		APS struct {
			Alert jsontext.Value `json:"alert"`
		} `json:"aps"`
	}
	_ = json.Unmarshal(e.raw, &p)
	if p.APS.Alert.Kind() == '"' {
		_ = json.Unmarshal(p.APS.Alert, &body)
		return "", body
	}
	var alert struct {
		Title string `json:"title"`
		Body  string `json:"body"`
	}
	_ = json.Unmarshal(p.APS.Alert, &alert)
	if alert.Title == "" && alert.Body == "" {
		return "", string(e.raw)
	}
	return alert.Title, alert.Body
}
