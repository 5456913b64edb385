package sandbox

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
)

// Forms that Twilio takes.
var (
	e164      = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)
	shortCode = regexp.MustCompile(`^[0-9]{3,8}$`)
	alphaName = regexp.MustCompile(`^[A-Za-z0-9 ]{1,11}$`)
)

// whatsAppPrefix marks WhatsApp addresses at Twilio.
const whatsAppPrefix = "whatsapp:"

// twilioScripts are Twilio's own magic numbers, and after them the sandbox's.
func twilioScripts() []Scripted {
	bad := http.StatusBadRequest
	out := []Scripted{
		{To: "+15005550001", Status: bad, Code: "21211", Note: "not a valid number"},
		{To: "+15005550002", Status: bad, Code: "21612", Note: "cannot be reached from this sender"},
		{To: "+15005550003", Status: bad, Code: "21408", Note: "account may not send to that region"},
		{To: "+15005550004", Status: bad, Code: "21610", Note: "recipient replied STOP"},
		{To: "+15005550006", Note: "fine, like every number that is not listed"},
		{To: "+15005550009", Status: bad, Code: "21614", Note: "not a mobile number"},
		{To: "+15005550010", Final: FinalUndelivered, Code: "30003", Note: "accepted, then undelivered: handset unreachable"},
		{To: "+15005550011", Status: http.StatusTooManyRequests, Code: "20429", Once: true, RetryAfter: 2, Note: "429 on a message's first call, then accepted"},
		{To: "+15005550012", Status: http.StatusServiceUnavailable, Code: "20503", Note: "always down"},
		{To: "+15005550013", Final: FinalNone, Note: "accepted, and no receipt ever comes"},
		{To: "+15005550014", Final: FinalDelivered, Note: "delivered, whatever /sandbox/receipts says"},
		{To: "+15005550015", Final: FinalFailed, Code: "30007", Note: "accepted, then failed: filtered by the carrier"},
	}
	for i := range out {
		out[i].Provider = twilio
	}
	return out
}

// twilioSend is POST …/Messages.json.
func (s *Server) twilioSend(w http.ResponseWriter, r *http.Request) {
	raw := readBody(r)
	form, err := url.ParseQuery(string(raw))
	if err != nil {
		form = url.Values{}
	}
	c := call{
		provider: twilio, channel: "sms", to: form.Get("To"), from: form.Get("From"), account: r.PathValue("sid"), raw: raw,
		headers: append(pick(r.Header, "User-Agent"), formFields(form, "MessagingServiceSid", "ContentSid", "ContentVariables",
			"MediaUrl", "ValidityPeriod", "StatusCallback")...),
	}
	if c.from == "" {
		c.from = form.Get("MessagingServiceSid")
	}
	if strings.HasPrefix(c.to, whatsAppPrefix) {
		c.channel = "whatsapp"
	}
	user, password, _ := r.BasicAuth()
	c.decide = func() reply {
		if !s.twilioAuthentic(c.account, user, password) {
			return twilioError(http.StatusUnauthorized, "20003")
		}
		if code := twilioCheck(form); code != "" {
			return twilioError(http.StatusBadRequest, code)
		}
		number := strings.TrimPrefix(c.to, whatsAppPrefix)
		script := s.scripted(twilio, number)
		if rep, refused := s.refusalFor(script, c.to+" "+form.Get("Body")+form.Get("ContentSid")+form.Get("ContentVariables")); refused {
			return rep
		}
		return s.twilioAccept(c, form, script, s.twilioToken(c.account, user, password))
	}
	s.handle(w, r, c)
}

func formFields(form url.Values, names ...string) []header {
	var out []header
	for _, name := range names {
		if v := form.Get(name); v != "" {
			out = append(out, header{name, v})
		}
	}
	return out
}

// twilioAuthentic takes any credentials, unless the account's token is configured;
// API keys (SK…) have secrets of their own and pass.
func (s *Server) twilioAuthentic(sid, user, password string) bool {
	if user == "" || password == "" {
		return false
	}
	token, known := s.cfg.TwilioTokens[sid]
	return !known || user != sid || password == token
}

// twilioToken is what signs an account's callbacks.
func (s *Server) twilioToken(sid, user, password string) string {
	if token, ok := s.cfg.TwilioTokens[sid]; ok || user != sid {
		return token
	}
	return password
}

// twilioCheck returns the code of what is wrong with a form, empty for nothing.
func twilioCheck(form url.Values) string {
	to, from, service := form.Get("To"), form.Get("From"), form.Get("MessagingServiceSid")
	body, content := form.Get("Body"), form.Get("ContentSid")
	number, wa := strings.CutPrefix(to, whatsAppPrefix)
	switch {
	case to == "":
		return "21604"
	case from == "" && service == "":
		return "21603"
	case body == "" && content == "" && form.Get("MediaUrl") == "":
		return "21602"
	case !e164.MatchString(number):
		return "21211"
	case service != "" && !strings.HasPrefix(service, "MG"):
		return "21705"
	case utf8.RuneCountInString(body) > 1600:
		return "21617"
	case content != "" && !strings.HasPrefix(content, "HX"):
		return "21655"
	case !stringObject(form.Get("ContentVariables")):
		return "21656"
	case !validity(form.Get("ValidityPeriod")):
		return "30045"
	}
	if raw := form.Get("StatusCallback"); raw != "" && !absoluteURL(raw) {
		return "21609"
	}
	return twilioFromCheck(from, service, wa)
}

// twilioFromCheck knows Twilio's magic senders too.
func twilioFromCheck(from, service string, wa bool) string {
	sender, waFrom := strings.CutPrefix(from, whatsAppPrefix)
	switch {
	case from == "" && service != "":
		return ""
	case wa != waFrom:
		return "63007"
	case sender == "+15005550001":
		return "21212"
	case sender == "+15005550007":
		return "21606"
	case sender == "+15005550008":
		return "21611"
	case e164.MatchString(sender), !wa && (shortCode.MatchString(sender) || alphaName.MatchString(sender)):
		return ""
	}
	return "21212"
}

func stringObject(raw string) bool {
	return raw == "" || json.Unmarshal([]byte(raw), new(map[string]string)) == nil
}

func validity(raw string) bool {
	if raw == "" {
		return true
	}
	seconds, err := strconv.Atoi(raw)
	return err == nil && seconds >= 1 && seconds <= 36000
}

// twilioAccept is the answer of an accepted message.
func (s *Server) twilioAccept(c call, form url.Values, script *Scripted, token string) reply {
	m := twilioMessage{
		sid: "SM" + randomHex(), account: c.account, to: c.to, from: form.Get("From"), service: form.Get("MessagingServiceSid"),
		body: form.Get("Body"), status: "queued", created: s.now().UTC(),
	}
	m.updated = m.created
	if m.service != "" {
		m.status = "accepted"
	}
	rep := reply{
		status: http.StatusCreated, id: m.sid, accepted: true, body: m.json(),
		course: s.course(failures{stage{"undelivered", "30003"}, stage{"failed", "30008"}}, c.channel == "whatsapp", script),
	}
	if target := form.Get("StatusCallback"); target != "" {
		rep.callback = twilioCallback(target, token, m)
		_, fragment, _ := strings.Cut(target, "#")
		rep.overrides = readOverrides(fragment)
	}
	return rep
}

// object writes v as JSON; v is made of what JSON knows.
func object(v any) string {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		return "{}"
	}
	return string(b)
}

// twilioError is Twilio's error body.
func twilioError(status int, code string) reply {
	if code == "" {
		code = strconv.Itoa(status)
		switch status {
		case http.StatusBadRequest:
			code = "21211"
		case http.StatusUnauthorized, http.StatusNotFound, http.StatusTooManyRequests,
			http.StatusInternalServerError, http.StatusServiceUnavailable:
			code = "20" + code
		}
	}
	n, _ := strconv.Atoi(code)
	return reply{status: status, code: code, body: object(map[string]any{
		"code": n, "message": "the sandbox answers with error " + code, "status": status,
		"more_info": "https://www.twilio.com/docs/errors/" + code,
	})}
}

func randomHex() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func twilioText(e *entry) string {
	form, _ := url.ParseQuery(string(e.raw))
	if body := form.Get("Body"); body != "" || form.Get("ContentSid") == "" {
		return body
	}
	return fmt.Sprintf("[template %s %s]", form.Get("ContentSid"), form.Get("ContentVariables"))
}
