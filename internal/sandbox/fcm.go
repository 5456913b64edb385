package sandbox

import (
	"crypto"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	fcmScope   = "https://www.googleapis.com/auth/firebase.messaging"
	fcmMaxSize = 4096 // bytes of a message's payload
	// tokenLife is how long an access token lives, as Google's do.
	tokenLife = time.Hour
	// accessPrefix begins every access token; the instant of its end follows, so
	// that a restarted sandbox goes on honouring what it gave out before.
	accessPrefix = "ya29.sandbox-" //nolint:gosec // opens nothing but a sandbox
)

// googleToken is POST /token: an access token for a signed assertion (RFC 7523).
func (s *Server) googleToken(w http.ResponseWriter, r *http.Request) {
	assertion := r.PostFormValue("assertion")
	s.side(w, r, fcmToken, "*", func() reply {
		if r.PostFormValue("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer" {
			return tokenError(http.StatusBadRequest, "unsupported_grant_type")
		}
		t, ok := s.readToken(assertion, "RS256", func(keyID string) crypto.PublicKey {
			if keyID == s.keys.fcmKeyID {
				return s.keys.fcmPublic()
			}
			return nil
		})
		now := s.now()
		issued, expires := t.time("iat"), t.time("exp")
		switch {
		case !ok, t.text("iss") == "", !strings.HasSuffix(t.text("aud"), "/token"),
			!expires.After(now), issued.After(now.Add(time.Minute)), expires.Sub(issued) > tokenLife+time.Minute:
			return tokenError(http.StatusBadRequest, "invalid_grant")
		case !strings.Contains(t.text("scope"), fcmScope) && !strings.Contains(t.text("scope"), "cloud-platform"):
			return tokenError(http.StatusBadRequest, "invalid_scope")
		}
		end := now.Add(tokenLife)
		return reply{status: http.StatusOK, body: object(map[string]any{
			"access_token": accessPrefix + strconv.FormatInt(end.Unix(), 10) + "-" + randomHex(),
			"expires_in":   int(tokenLife.Seconds()) - 1, "token_type": "Bearer",
		})}
	})
}

func tokenError(status int, code string) reply {
	if code == "" {
		code = "invalid_grant"
		if status >= 500 {
			code = "internal_failure"
		}
	}
	return reply{status: status, code: code, body: object(map[string]string{"error": code, "error_description": "the sandbox refuses"})}
}

// honoured tells whether an access token is one of ours and has not run out.
func (s *Server) honoured(token string) bool {
	rest, ok := strings.CutPrefix(token, accessPrefix)
	if !ok {
		return false
	}
	end, _, _ := strings.Cut(rest, "-")
	unix, err := strconv.ParseInt(end, 10, 64)
	return err == nil && s.now().Unix() < unix
}

// fcmRequest is what the sandbox reads of a message.
type fcmRequest struct {
	Message *fcmMessage `json:"message"`
}

type fcmMessage struct {
	Token        string            `json:"token"`
	Topic        string            `json:"topic"`
	Condition    string            `json:"condition"`
	Data         map[string]string `json:"data"` // FCM takes nothing but strings
	Notification *struct {
		Title string `json:"title"`
		Body  string `json:"body"`
		Image string `json:"image"`
	} `json:"notification"`
	Android *struct {
		CollapseKey string `json:"collapse_key"`
		TTL         string `json:"ttl"`
	} `json:"android"`
	APNS *struct {
		Headers map[string]string `json:"headers"`
	} `json:"apns"`
}

func (s *Server) fcmSend(w http.ResponseWriter, r *http.Request) {
	project := r.PathValue("project")
	raw := readBody(r)
	var req fcmRequest
	malformed := json.Unmarshal(raw, &req) != nil || req.Message == nil
	if req.Message == nil {
		req.Message = &fcmMessage{}
	}
	m := req.Message
	c := call{provider: fcm, channel: "push", to: m.Token, from: project, raw: raw, headers: pick(r.Header, "User-Agent")}
	c.decide = func() reply {
		switch {
		case !s.honoured(bearer(r)):
			return fcmError(http.StatusUnauthorized, "UNAUTHENTICATED")
		case malformed, !m.oneTarget(), !m.ttlValid(), m.payload() > fcmMaxSize:
			return fcmError(http.StatusBadRequest, "INVALID_ARGUMENT")
		}
		script := s.scripted(fcm, outcomeName(m.Token))
		if rep, refused := s.refusalFor(script, m.key()); refused {
			return rep
		}
		id := "projects/" + project + "/messages/" + randomHex()
		return reply{status: http.StatusOK, id: id, accepted: true, body: object(map[string]string{"name": id})}
	}
	s.handle(w, r, c)
}

func (m *fcmMessage) oneTarget() bool {
	n := 0
	for _, target := range []string{m.Token, m.Topic, m.Condition} {
		if target != "" {
			n++
		}
	}
	return n == 1
}

// ttlValid checks android.ttl: seconds with an s, at most four weeks.
func (m *fcmMessage) ttlValid() bool {
	if m.Android == nil || m.Android.TTL == "" {
		return true
	}
	digits, ok := strings.CutSuffix(m.Android.TTL, "s")
	seconds, err := strconv.ParseFloat(digits, 64)
	return ok && err == nil && seconds >= 0 && seconds <= 2_419_200
}

func (m *fcmMessage) payload() int {
	n := 0
	if m.Notification != nil {
		n = len(m.Notification.Title) + len(m.Notification.Body) + len(m.Notification.Image)
	}
	for k, v := range m.Data {
		n += len(k) + len(v)
	}
	return n
}

// key tells repeats of one message: what collapses it, else its content.
func (m *fcmMessage) key() string {
	switch {
	case m.Android != nil && m.Android.CollapseKey != "":
		return m.Token + " " + m.Android.CollapseKey
	case m.APNS != nil && m.APNS.Headers["apns-collapse-id"] != "":
		return m.Token + " " + m.APNS.Headers["apns-collapse-id"]
	}
	return m.Token + " " + object(map[string]any{"notification": m.Notification, "data": m.Data})
}

// fcmError is Google's error body; without FcmError detail where the vendor
// sends none.
func fcmError(status int, code string) reply {
	if code == "" {
		code = fcmUsual(status)
	}
	rpc := map[string]string{
		"UNREGISTERED": "NOT_FOUND", "SENDER_ID_MISMATCH": "PERMISSION_DENIED", "QUOTA_EXCEEDED": "RESOURCE_EXHAUSTED",
		"THIRD_PARTY_AUTH_ERROR": "UNAUTHENTICATED",
	}[code]
	if rpc == "" {
		rpc = code
	}
	details := []any{}
	if code != "UNAUTHENTICATED" && code != "PERMISSION_DENIED" {
		details = append(details, map[string]string{"@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError", "errorCode": code})
	}
	if code == "INVALID_ARGUMENT" {
		details = append(details, map[string]any{
			"@type":           "type.googleapis.com/google.rpc.BadRequest",
			"fieldViolations": []any{map[string]string{"field": "message.token", "description": "Invalid registration token"}},
		})
	}
	return reply{status: status, code: code, body: object(map[string]any{"error": map[string]any{
		"code": status, "message": "the sandbox answers " + code, "status": rpc, "details": details,
	}})}
}

func fcmUsual(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusForbidden:
		return "PERMISSION_DENIED"
	case http.StatusNotFound:
		return "UNREGISTERED"
	case http.StatusTooManyRequests:
		return "QUOTA_EXCEEDED"
	case http.StatusServiceUnavailable:
		return "UNAVAILABLE"
	}
	if status >= 500 {
		return "INTERNAL"
	}
	return "INVALID_ARGUMENT"
}

func fcmText(e *entry) (title, body string) {
	var req struct {
		Message struct {
			Notification struct {
				Title string `json:"title"`
				Body  string `json:"body"`
			} `json:"notification"`
			Data jsontext.Value `json:"data"`
		} `json:"message"`
	}
	_ = json.Unmarshal(e.raw, &req)
	n := req.Message.Notification
	if n.Title == "" && n.Body == "" {
		return "", string(req.Message.Data)
	}
	return n.Title, n.Body
}
