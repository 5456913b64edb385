package sandbox

import (
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
)

// slackAuthTest is /api/auth.test.
func (s *Server) slackAuthTest(w http.ResponseWriter, r *http.Request) {
	_, token, _ := slackArguments(r, readBody(r))
	s.side(w, r, slackLookup, "auth.test", func() reply {
		if code := slackToken(token); code != "" {
			return slackError(http.StatusOK, code)
		}
		return reply{status: http.StatusOK, body: object(map[string]any{
			"ok": true, "url": "https://sandbox.slack.com/", "team": "Sandbox", "team_id": "T0SANDBOX",
			"user": "dispatcher", "user_id": "U0SANDBOX", "bot_id": "B0SANDBOX",
		})}
	})
}

// slackHistory is /api/conversations.history: newest first, bounded by oldest,
// latest and limit.
func (s *Server) slackHistory(w http.ResponseWriter, r *http.Request) {
	raw := readBody(r)
	form, _ := url.ParseQuery(string(raw))
	maps.Copy(form, r.URL.Query())
	p, token, _ := slackArguments(r, raw)
	if p.Channel == "" {
		p.Channel = form.Get("channel")
	}
	s.side(w, r, slackLookup, p.Channel, func() reply {
		if code := slackToken(token); code != "" {
			return slackError(http.StatusOK, code)
		}
		limit, err := strconv.Atoi(form.Get("limit"))
		if err != nil || limit < 1 || limit > 999 {
			limit = 100
		}
		found := s.slackMessages(p.Channel, form.Get("oldest"), form.Get("latest"), limit+1)
		more := len(found) > limit
		return reply{status: http.StatusOK, body: object(map[string]any{
			"ok": true, "messages": found[:min(limit, len(found))], "has_more": more,
		})}
	})
}

func (s *Server) slackMessages(channel, oldest, latest string, limit int) []map[string]any {
	found := []map[string]any{}
	for _, e := range slices.Backward(s.messages.all()) {
		if len(found) == limit {
			break
		}
		ts := e.answer.ID
		if e.provider != slack || ts == "" || slackChannelID(e.to) != slackChannelID(channel) {
			continue
		}
		// Stamps of one width compare as text.
		if (oldest != "" && ts <= oldest) || (latest != "" && ts >= latest) {
			continue
		}
		var p slackPost
		_ = json.Unmarshal(e.raw, &p)
		found = append(found, p.message(ts))
	}
	return found
}
