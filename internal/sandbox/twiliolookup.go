package sandbox

import (
	"context"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // Twilio signs with HMAC-SHA1
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// twilioGet is GET …/Messages/{sid}.json.
func (s *Server) twilioGet(w http.ResponseWriter, r *http.Request) {
	sid := strings.TrimSuffix(r.PathValue("message"), ".json")
	s.side(w, r, twilioLookup, sid, func() reply {
		if rep, ok := s.twilioReader(r); !ok {
			return rep
		}
		e := s.messages.bySID(sid)
		if e == nil || e.account != r.PathValue("sid") {
			return twilioError(http.StatusNotFound, "20404")
		}
		return reply{status: http.StatusOK, body: s.twilioNow(e)}
	})
}

func (s *Server) twilioReader(r *http.Request) (reply, bool) {
	user, password, _ := r.BasicAuth()
	if !s.twilioAuthentic(r.PathValue("sid"), user, password) {
		return twilioError(http.StatusUnauthorized, "20003"), false
	}
	return reply{}, true
}

// twilioList is GET …/Messages.json: newest first, filtered by To, From and
// DateSent (with its forms DateSent> and DateSent<), one page of PageSize.
func (s *Server) twilioList(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	s.side(w, r, twilioLookup, query.Get("To"), func() reply {
		if rep, ok := s.twilioReader(r); !ok {
			return rep
		}
		size := 50
		if n, err := strconv.Atoi(query.Get("PageSize")); err == nil && n >= 1 && n <= 1000 {
			size = n
		}
		found := []jsontext.Value{}
		var next any // null without a next page
		for _, e := range slices.Backward(s.messages.all()) {
			if e.provider != twilio || e.account != r.PathValue("sid") || e.answer.ID == "" || !twilioMatches(e, query) {
				continue
			}
			if len(found) == size {
				next = r.URL.Path + "?Page=1" // which shows the first page again
				break
			}
			found = append(found, jsontext.Value(s.twilioNow(e)))
		}
		return reply{status: http.StatusOK, body: object(map[string]any{
			"messages": found, "page": 0, "page_size": size, "start": 0, "end": max(0, len(found)-1),
			"uri": r.URL.RequestURI(), "first_page_uri": r.URL.RequestURI(), "next_page_uri": next, "previous_page_uri": nil,
		})}
	})
}

func twilioMatches(e *entry, query url.Values) bool {
	if to := query.Get("To"); to != "" && to != e.to {
		return false
	}
	if from := query.Get("From"); from != "" && from != e.from {
		return false
	}
	day := func(t time.Time) string { return t.UTC().Format(time.DateOnly) }
	// Some clients send a whole timestamp; Twilio filters by its date.
	bound := func(name string) string { v := query.Get(name); return v[:min(len(v), len(time.DateOnly))] }
	sent := day(e.at)
	on, from, until := bound("DateSent"), bound("DateSent>"), bound("DateSent<")
	return (on == "" || on == sent) && (from == "" || sent >= from) && (until == "" || sent <= until)
}

// twilioNow is the message as it stands now.
func (s *Server) twilioNow(e *entry) string {
	form, _ := url.ParseQuery(string(e.raw))
	m := twilioMessage{
		sid: e.answer.ID, account: e.account, to: e.to, from: form.Get("From"), service: form.Get("MessagingServiceSid"),
		body: form.Get("Body"), status: "queued", created: e.at.UTC(), updated: e.at.UTC(),
	}
	if m.service != "" {
		m.status = "accepted"
	}
	if st, after, ok := e.course.at(s.now().Sub(e.at)); ok {
		m.status, m.code, m.updated = st.status, st.code, m.created.Add(after)
	} else if len(e.course.stages) == 0 {
		m.status = "sent" // nobody will ever hear more
	}
	return m.json()
}

// twilioCallback makes the signed status callbacks of a message.
func twilioCallback(target, token string, m twilioMessage) func(context.Context, stage) (*http.Request, error) {
	target, _, _ = strings.Cut(target, "#") // neither sent nor signed, see [overrides]
	return func(ctx context.Context, st stage) (*http.Request, error) {
		form := url.Values{
			"MessageSid": {m.sid}, "SmsSid": {m.sid}, "MessageStatus": {st.status}, "SmsStatus": {st.status},
			"To": {m.to}, "From": {m.from}, "AccountSid": {m.account}, "ApiVersion": {"2010-04-01"},
		}
		if m.service != "" {
			form.Set("MessagingServiceSid", m.service)
		}
		if st.code != "" {
			form.Set("ErrorCode", st.code)
		}
		if number, ok := strings.CutPrefix(m.to, whatsAppPrefix); ok {
			form.Set("ChannelPrefix", "whatsapp")
			form.Set("ChannelToAddress", number)
		}
		req, err := twilioRequest(ctx, target, token, form)
		if err != nil {
			return nil, err
		}
		req.Header.Set("I-Twilio-Idempotency-Token", m.sid+"-"+st.status)
		return req, nil
	}
}

// twilioSignature is base64 of HMAC-SHA1 over the URL and each parameter's name
// and value, sorted by name.
func twilioSignature(token, target string, form url.Values) string {
	names := make([]string, 0, len(form))
	for name := range form {
		names = append(names, name)
	}
	slices.Sort(names)
	mac := hmac.New(sha1.New, []byte(token))
	mac.Write([]byte(target))
	for _, name := range names {
		mac.Write([]byte(name + form.Get(name)))
	}
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}
