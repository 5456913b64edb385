package sandbox

import (
	"mime"
	"net/http"
	"net/url"
	"path"

	"github.com/go-json-experiment/json"
)

// slackWebhookScripts are last parts of incoming webhooks' URLs.
func slackWebhookScripts() []Scripted {
	out := []Scripted{
		{To: "unregistered", Status: http.StatusNotFound, Code: "no_service", Note: "the webhook was removed"},
		{To: "archived", Status: http.StatusGone, Code: "channel_is_archived", Note: "its channel is archived"},
		{To: "invalid", Status: http.StatusBadRequest, Code: "invalid_payload", Note: "the payload is refused"},
		{To: "auth", Status: http.StatusForbidden, Code: "invalid_token", Note: "the webhook's token is refused"},
		{To: "ratelimited", Status: http.StatusTooManyRequests, Code: "rate_limited", Once: true, RetryAfter: 2, Note: "429 on a message's first call, then accepted"},
		{To: "unavailable", Status: http.StatusServiceUnavailable, Code: "service_unavailable", Note: "always down"},
		{To: "flaky", Status: http.StatusServiceUnavailable, Code: "service_unavailable", Once: true, Note: "down on a message's first call, then accepted"},
	}
	for i := range out {
		out[i].Provider = slackWebhook
	}
	return out
}

// slackWebhookSend is POST /services/….
func (s *Server) slackWebhookSend(w http.ResponseWriter, r *http.Request) {
	raw := readBody(r)
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == "application/x-www-form-urlencoded" {
		if form, err := url.ParseQuery(string(raw)); err == nil && form.Has("payload") {
			raw = []byte(form.Get("payload"))
		}
	}
	var p slackPost
	readable := json.Unmarshal(raw, &p) == nil
	c := call{provider: slackWebhook, channel: "slack", to: s.callerURL(r), raw: raw, headers: pick(r.Header, "User-Agent")}
	c.decide = func() reply {
		switch code := p.check(readable, false); code {
		case "":
		case "no_text":
			return slackWebhookError(http.StatusBadRequest, code)
		default:
			return slackWebhookError(http.StatusBadRequest, "invalid_payload")
		}
		if rep, refused := s.refusalFor(s.scripted(slackWebhook, outcomeName(path.Base(r.URL.Path))), c.to+p.key()); refused {
			return rep
		}
		return reply{status: http.StatusOK, accepted: true, contentType: "text/html", body: "ok"}
	}
	s.handle(w, r, c)
}

// slackWebhookError is the bare word that incoming webhooks answer.
func slackWebhookError(status int, code string) reply {
	if code == "" {
		code = map[int]string{
			http.StatusBadRequest: "invalid_payload", http.StatusForbidden: "action_prohibited", http.StatusNotFound: "no_service",
			http.StatusGone: "channel_is_archived", http.StatusTooManyRequests: "rate_limited",
			http.StatusInternalServerError: "rollup_error",
		}[status]
	}
	return reply{status: status, code: code, contentType: "text/html", body: code}
}

// webhookSend is ANY /webhook/…: 200, whatever comes.
func (s *Server) webhookSend(w http.ResponseWriter, r *http.Request) {
	c := call{
		provider: webhook, channel: "webhook", to: s.callerURL(r), raw: readBody(r),
		headers: webhookHeaders(r),
		decide: func() reply {
			return reply{status: http.StatusOK, accepted: true, contentType: "text/plain; charset=utf-8", body: "ok\n"}
		},
	}
	s.handle(w, r, c)
}

// webhookHeaders keeps what a receiver would look at: everything but what the
// transport itself adds.
func webhookHeaders(r *http.Request) []header {
	out := make([]header, 0, len(r.Header)+1)
	if r.Method != http.MethodPost {
		out = append(out, header{"Method", r.Method})
	}
	for name, values := range r.Header {
		switch name {
		case "Accept-Encoding", "Content-Length", "Connection":
			continue
		}
		for _, v := range values {
			out = append(out, header{name, v})
		}
	}
	return out
}
