package sandbox

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

var metaPath = regexp.MustCompile(`^/v[0-9]+\.[0-9]+/([0-9A-Za-z_-]+)/messages$`)

func metaScripts() []Scripted {
	bad := http.StatusBadRequest
	out := []Scripted{
		{To: "+15005550001", Status: bad, Code: "131026", Note: "not on WhatsApp"},
		{To: "+15005550002", Status: bad, Code: "131047", Note: "the 24 h window is closed: free text is refused"},
		{To: "+15005550003", Status: http.StatusForbidden, Code: "131031", Note: "the account is locked"},
		{To: "+15005550004", Status: bad, Code: "131050", Note: "the person stopped marketing messages"},
		{To: "+15005550006", Note: "fine, like every number that is not listed"},
		{To: "+15005550010", Final: FinalUndelivered, Code: "131026", Note: "accepted, then failed: undeliverable"},
		{To: "+15005550011", Status: http.StatusTooManyRequests, Code: "131056", Once: true, RetryAfter: 2, Note: "429 on a message's first call, then accepted"},
		{To: "+15005550012", Status: http.StatusServiceUnavailable, Code: "2", Note: "always down"},
		{To: "+15005550013", Final: FinalNone, Note: "accepted, and no receipt ever comes"},
		{To: "+15005550014", Final: FinalRead, Note: "delivered and read, whatever /sandbox/receipts says"},
	}
	for i := range out {
		out[i].Provider = meta
	}
	return out
}

// metaRequest is what the sandbox reads of a message; the API knows more.
type metaRequest struct {
	Product string `json:"messaging_product"`
	To      string `json:"to"`
	Type    string `json:"type"`
	Text    *struct {
		Body string `json:"body"`
	} `json:"text"`
	Template *struct {
		Name     string `json:"name"`
		Language struct {
			Code string `json:"code"`
		} `json:"language"`
		Components jsontext.Value `json:"components"`
	} `json:"template"`
	Opaque string `json:"biz_opaque_callback_data"`
}

func (s *Server) metaSend(w http.ResponseWriter, r *http.Request) {
	phone := metaPath.FindStringSubmatch(r.URL.Path)[1]
	var req metaRequest
	raw := readBody(r)
	malformed := json.Unmarshal(raw, &req) != nil
	to := req.To
	if to != "" && !strings.HasPrefix(to, "+") {
		to = "+" + to
	}
	c := call{provider: meta, channel: "whatsapp", to: to, from: phone, raw: raw, headers: pick(r.Header, "User-Agent")}
	c.decide = func() reply {
		if bearer(r) == "" {
			return metaError(http.StatusUnauthorized, "190")
		}
		if code := req.check(malformed, to); code != "" {
			return metaError(http.StatusBadRequest, code)
		}
		script := s.scripted(meta, to)
		if rep, refused := s.refusalFor(script, to+" "+metaText(&entry{raw: raw})); refused {
			return rep
		}
		return s.metaAccept(c, req, script)
	}
	s.handle(w, r, c)
}

func (m metaRequest) check(malformed bool, to string) string {
	switch {
	case malformed, m.Product != "whatsapp", !e164.MatchString(to):
		return "100"
	case m.Type == "template":
		if m.Template == nil || m.Template.Name == "" || m.Template.Language.Code == "" {
			return "131008"
		}
		return ""
	case m.Type != "" && m.Type != "text":
		return "131051"
	case m.Text == nil || m.Text.Body == "":
		return "131008"
	case utf8.RuneCountInString(m.Text.Body) > 4096:
		return "100"
	}
	return ""
}

func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return token
}

func (s *Server) metaAccept(c call, req metaRequest, script *Scripted) reply {
	id := metaID()
	digits := strings.TrimPrefix(c.to, "+")
	rep := reply{
		status: http.StatusOK, id: id, accepted: true,
		course: s.course(failures{stage{"failed", "131026"}, stage{"failed", "131000"}}, true, script),
		body: object(map[string]any{
			"messaging_product": "whatsapp",
			"contacts":          []any{map[string]string{"input": req.To, "wa_id": digits}},
			"messages":          []any{map[string]string{"id": id}},
		}),
	}
	if hook := *s.meta.Load(); hook.URL != "" {
		rep.callback = s.metaCallback(hook, c.from, digits, id, req.Opaque)
	}
	return rep
}

func metaID() string {
	var b [27]byte
	_, _ = rand.Read(b[:]) // never fails
	return "wamid." + base64.StdEncoding.EncodeToString(b[:])
}

// SetMetaWebhook changes where status webhooks of messages accepted from now on
// go, for receivers that start after the sandbox; without a URL there are none.
func (s *Server) SetMetaWebhook(hook MetaWebhook) { s.meta.Store(&hook) }

// metaCallback makes the signed status webhooks of a message.
func (s *Server) metaCallback(hook MetaWebhook, phone, digits, id, opaque string) func(context.Context, stage) (*http.Request, error) {
	return func(ctx context.Context, st stage) (*http.Request, error) {
		status := map[string]any{
			"id": id, "status": st.status, "recipient_id": digits,
			"timestamp": strconv.FormatInt(s.now().Unix(), 10),
		}
		if opaque != "" {
			status["biz_opaque_callback_data"] = opaque
		}
		if st.code != "" {
			n, _ := strconv.Atoi(st.code)
			status["errors"] = []any{map[string]any{
				"code": n, "title": "Message undeliverable", "message": "Message undeliverable",
				"error_data": map[string]string{"details": "the sandbox was told to fail"},
			}}
		}
		body := []byte(object(map[string]any{
			"object": "whatsapp_business_account",
			"entry": []any{map[string]any{"id": "100000000000000", "changes": []any{map[string]any{
				"field": "messages",
				"value": map[string]any{
					"messaging_product": "whatsapp",
					"metadata":          map[string]string{"display_phone_number": "15550000000", "phone_number_id": phone},
					"statuses":          []any{status},
				},
			}}}},
		}))
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, hook.URL, bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		mac := hmac.New(sha256.New, []byte(hook.AppSecret))
		mac.Write(body)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("User-Agent", "facebookexternalua")
		req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		return req, nil
	}
}

// metaError is the Graph API's error body.
func metaError(status int, code string) reply {
	if code == "" {
		switch status {
		case http.StatusUnauthorized:
			code = "190"
		case http.StatusForbidden:
			code = "10"
		case http.StatusTooManyRequests:
			code = "130429"
		case http.StatusServiceUnavailable:
			code = "2"
		default:
			code = "131000"
			if status < 500 {
				code = "100"
			}
		}
	}
	n, _ := strconv.Atoi(code)
	return reply{status: status, code: code, body: object(map[string]any{"error": map[string]any{
		"message": "(#" + code + ") the sandbox refuses", "type": "OAuthException", "code": n,
		"error_data": map[string]string{"messaging_product": "whatsapp", "details": "the sandbox refuses"},
		"fbtrace_id": "A" + strconv.FormatInt(time.Now().UnixNano(), 36),
	}})}
}

func metaText(e *entry) string {
	var m metaRequest
	_ = json.Unmarshal(e.raw, &m)
	switch {
	case m.Text != nil:
		return m.Text.Body
	case m.Template != nil:
		return "[template " + m.Template.Name + " " + m.Template.Language.Code + " " + string(m.Template.Components) + "]"
	}
	return ""
}
