package sandbox

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	slackMaxText   = 40_000
	slackMaxBlocks = 50
)

// slackScripts are channels named after what becomes of their messages. Slack
// answers most errors with status 200.
func slackScripts() []Scripted {
	ok := http.StatusOK
	out := []Scripted{
		{To: "archived", Status: ok, Code: "is_archived", Note: "the channel is archived"},
		{To: "unregistered", Status: ok, Code: "channel_not_found", Note: "no such channel"},
		{To: "invalid", Status: ok, Code: "channel_not_found", Note: "no such channel"},
		{To: "private", Status: ok, Code: "not_in_channel", Note: "the bot was not invited"},
		{To: "auth", Status: ok, Code: "invalid_auth", Note: "the token is refused"},
		{To: "toolong", Status: ok, Code: "msg_too_long", Note: "the text is refused"},
		{To: "broken", Status: ok, Code: "internal_error", Note: "fails on Slack's side, perhaps after posting"},
		{To: "ratelimited", Status: http.StatusTooManyRequests, Code: "ratelimited", Once: true, RetryAfter: 2, Note: "429 on a message's first call, then accepted"},
		{To: "unavailable", Status: http.StatusServiceUnavailable, Note: "always down"},
		{To: "flaky", Status: http.StatusServiceUnavailable, Once: true, Note: "down on a message's first call, then accepted"},
	}
	for i := range out {
		out[i].Provider = slack
	}
	return out
}

// slackPost is what chat.postMessage and incoming webhooks are given.
type slackPost struct {
	Channel     string         `json:"channel"`
	Text        string         `json:"text"`
	Blocks      jsontext.Value `json:"blocks"`
	Attachments jsontext.Value `json:"attachments"`
	Metadata    jsontext.Value `json:"metadata"`
	ThreadTS    string         `json:"thread_ts"`
}

// slackArguments reads a Web API call's arguments, JSON or form, and its token.
func slackArguments(r *http.Request, raw []byte) (p slackPost, token string, ok bool) {
	token = bearer(r)
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if kind == "application/json" {
		return p, token, json.Unmarshal(raw, &p) == nil
	}
	form, err := url.ParseQuery(string(raw))
	if token == "" {
		token = form.Get("token")
	}
	p = slackPost{
		Channel: form.Get("channel"), Text: form.Get("text"), ThreadTS: form.Get("thread_ts"),
		Blocks: jsontext.Value(form.Get("blocks")), Attachments: jsontext.Value(form.Get("attachments")),
		Metadata: jsontext.Value(form.Get("metadata")),
	}
	return p, token, err == nil
}

func (s *Server) slackPostMessage(w http.ResponseWriter, r *http.Request) {
	raw := readBody(r)
	p, token, readable := slackArguments(r, raw)
	if readable {
		raw = []byte(p.json())
	}
	c := call{provider: slack, channel: "slack", to: p.Channel, raw: raw, headers: pick(r.Header, "User-Agent")}
	c.decide = func() reply {
		if code := slackToken(token); code != "" {
			return slackError(http.StatusOK, code)
		}
		if code := p.check(readable, true); code != "" {
			return slackError(http.StatusOK, code)
		}
		if rep, refused := s.refusalFor(s.scripted(slack, outcomeName(p.Channel)), p.key()); refused {
			return rep
		}
		ts := s.stamps.next(s.now())
		return reply{status: http.StatusOK, id: ts, accepted: true, body: object(map[string]any{
			"ok": true, "channel": slackChannelID(p.Channel), "ts": ts, "message": p.message(ts),
		})}
	}
	s.handle(w, r, c)
}

// json is the post as JSON, whatever form it came in.
func (p slackPost) json() string {
	m := map[string]any{"channel": p.Channel, "text": p.Text}
	for name, v := range map[string]jsontext.Value{"blocks": p.Blocks, "attachments": p.Attachments, "metadata": p.Metadata} {
		if v.IsValid() {
			m[name] = v
		}
	}
	if p.ThreadTS != "" {
		m["thread_ts"] = p.ThreadTS
	}
	return object(m)
}

// key tells repeats of one message: Slack knows nothing but its content.
func (p slackPost) key() string {
	p.Metadata = nil
	return p.json()
}

func (p slackPost) message(ts string) map[string]any {
	m := map[string]any{"type": "message", "subtype": "bot_message", "text": p.Text, "ts": ts, "bot_id": "B0SANDBOX"}
	if p.Blocks.IsValid() {
		m["blocks"] = p.Blocks
	}
	if p.Metadata.IsValid() {
		m["metadata"] = p.Metadata
	}
	if p.ThreadTS != "" {
		m["thread_ts"] = p.ThreadTS
	}
	return m
}

func slackToken(token string) string {
	switch {
	case token == "":
		return "not_authed"
	case !strings.HasPrefix(token, "xox"):
		return "invalid_auth"
	}
	return ""
}

// check returns Slack's name for what is wrong with a post.
func (p slackPost) check(readable, needsChannel bool) string {
	var blocks []jsontext.Value
	switch {
	case !readable:
		return "invalid_json"
	case needsChannel && p.Channel == "":
		return "channel_not_found"
	case len(p.Blocks) > 0 && json.Unmarshal(p.Blocks, &blocks) != nil, len(blocks) > slackMaxBlocks:
		return "invalid_blocks"
	case p.Text == "" && len(blocks) == 0 && len(p.Attachments) == 0:
		return "no_text"
	case utf8.RuneCountInString(p.Text) > slackMaxText:
		return "msg_too_long"
	}
	return ""
}

// slackChannelID is what Slack calls a channel that was given by name.
func slackChannelID(channel string) string {
	if len(channel) > 1 && strings.ContainsRune("CDGU", rune(channel[0])) && strings.ToUpper(channel) == channel {
		return channel
	}
	return "C" + strings.ToUpper(strings.Trim(strings.Map(func(r rune) rune {
		if r == '#' || r == '-' || r == '_' {
			return -1
		}
		return r
	}, channel), " "))
}

// slackClock makes the unique time stamps that are Slack's message ids.
type slackClock struct {
	mu   sync.Mutex
	last int64 // microseconds
}

func (c *slackClock) next(now time.Time) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = max(c.last+1, now.UnixMicro())
	return fmt.Sprintf("%d.%06d", c.last/1e6, c.last%1e6)
}

// slackError is an answer of the Web API: ok:false under status 200, except where
// the transport itself says no.
func slackError(status int, code string) reply {
	if code == "" && status == http.StatusTooManyRequests {
		code = "ratelimited"
	}
	if status >= 500 || (status >= 400 && code == "") {
		return reply{status: status, code: code, contentType: "text/html; charset=utf-8", body: "<html><body>Server Error</body></html>"}
	}
	return reply{status: status, code: code, body: object(map[string]any{"ok": false, "error": code})}
}

func slackText(e *entry) string {
	var p slackPost
	_ = json.Unmarshal(e.raw, &p)
	return p.readable()
}

// readable is the text, or what the blocks say.
func (p slackPost) readable() string {
	if p.Text != "" {
		return p.Text
	}
	var blocks []struct {
		Text struct {
			Text string `json:"text"`
		} `json:"text"`
	}
	_ = json.Unmarshal(p.Blocks, &blocks)
	var lines []string
	for _, b := range blocks {
		if b.Text.Text != "" {
			lines = append(lines, b.Text.Text)
		}
	}
	return strings.Join(lines, "\n")
}
