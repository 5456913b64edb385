package sandbox

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"
)

// call is one message call as its provider's handler read it.
type call struct {
	provider, channel, to, from string
	account                     string
	raw                         []byte
	headers                     []header
	// decide makes the answer that is given if no rule says otherwise. It is
	// called at most once, so that ids and "once" are not used up by rules.
	decide func() reply
}

// reply is an answer on its way out.
type reply struct {
	status      int
	code        string
	id          string
	contentType string // default application/json
	body        string
	header      []header
	accepted    bool
	course      course
	// callback makes a status callback; nil where nobody asked for any.
	callback  func(context.Context, stage) (*http.Request, error)
	overrides overrides
}

// handle runs a call past the rules, records it and answers it.
func (s *Server) handle(w http.ResponseWriter, r *http.Request, c call) {
	at := s.now()
	rule, fault := s.faults.take(c.provider, c.account, c.to)
	var rep reply
	switch {
	case rule.Drop == DropBefore:
	case rule.Status != 0:
		rep = ruled(c.provider, rule)
	default:
		rep = c.decide()
	}
	for name, value := range rule.Headers {
		rep.header = append(rep.header, header{name, value})
	}
	answer := Answer{Status: rep.status, Code: rep.code, ID: rep.id, Accepted: rep.accepted, Drop: rule.Drop, Fault: fault}
	if rule.Drop != "" {
		answer.Status = 0
	}
	s.messages.add(&entry{
		at: at, provider: c.provider, channel: c.channel, to: c.to, from: c.from, account: c.account,
		raw: c.raw, headers: c.headers, answer: answer, course: rep.course,
	})
	t := tell(c, rep)
	if t != nil && rep.course.beforeAnswer {
		for _, st := range t.rest {
			s.callbacks.send(r.Context(), t, st)
		}
		t = nil
	}
	s.finish(w, r, rule, rep, t)
}

// finish answers, or drops the connection, and then lets the callbacks go.
func (s *Server) finish(w http.ResponseWriter, r *http.Request, rule RuleAnswer, rep reply, t *tale) {
	if t != nil {
		defer func() {
			t.due = time.Now().Add(t.delay)
			s.callbacks.push(t)
		}()
	}
	if !s.pause(r.Context(), rule.Delay.Std()) || rule.Drop != "" {
		panic(http.ErrAbortHandler) // closes the connection; in HTTP/2, the stream
	}
	rep.write(w)
	if t != nil {
		_ = http.NewResponseController(w).Flush() // no callback overtakes its answer
	}
}

func tell(c call, rep reply) *tale {
	calls := rep.course.calls()
	if rep.callback == nil || len(calls) == 0 {
		return nil
	}
	return &tale{
		delay: rep.course.delay, provider: c.provider, messageID: rep.id,
		rest: calls, request: rep.callback, overrides: rep.overrides,
	}
}

func (rep reply) write(w http.ResponseWriter) {
	h := w.Header()
	if rep.contentType == "" {
		rep.contentType = "application/json"
	}
	h.Set("Content-Type", rep.contentType)
	h.Set("Content-Length", strconv.Itoa(len(rep.body)))
	for _, x := range rep.header {
		h.Set(x.name, x.value)
	}
	w.WriteHeader(rep.status)
	_, _ = io.WriteString(w, rep.body)
}

// ruled is the answer that a rule with a status makes.
func ruled(provider string, rule RuleAnswer) reply {
	rep := refusal(provider, rule.Status, "")
	rep.accepted = rule.Status < 300
	if len(rule.Body) > 0 {
		rep.body, rep.code = rule.text(), ""
		rep.contentType = "application/json"
		if rule.Body.Kind() == '"' {
			rep.contentType = "text/html; charset=utf-8"
		}
	}
	return rep
}

// refusal is a vendor's answer with that status and code; without a code, the
// one that usually comes with the status.
func refusal(provider string, status int, code string) reply {
	switch provider {
	case twilio, twilioLookup:
		return twilioError(status, code)
	case meta:
		return metaError(status, code)
	case fcm:
		return fcmError(status, code)
	case fcmToken:
		return tokenError(status, code)
	case apns:
		return apnsError(status, code)
	case webPush:
		return webPushError(status, code)
	case slack, slackLookup:
		return slackError(status, code)
	case slackWebhook:
		return slackWebhookError(status, code)
	default:
		return reply{status: status, code: code, contentType: "text/plain; charset=utf-8", body: http.StatusText(status) + "\n"}
	}
}

// side serves a call beside messages: rules can break it, nothing is recorded.
func (s *Server) side(w http.ResponseWriter, r *http.Request, provider, to string, decide func() reply) {
	rule, _ := s.faults.take(provider, r.PathValue("sid"), to)
	var rep reply
	if rule.Status != 0 {
		rep = ruled(provider, rule)
	} else if rule.Drop != DropBefore {
		rep = decide()
	}
	for name, value := range rule.Headers {
		rep.header = append(rep.header, header{name, value})
	}
	s.finish(w, r, rule, rep, nil)
}

// readBody reads a request's body; what is too large is cut off, which every
// provider then finds too large.
func readBody(r *http.Request) []byte {
	if r.ContentLength > 0 && r.ContentLength <= maxBody {
		b := make([]byte, r.ContentLength)
		n, _ := io.ReadFull(r.Body, b)
		return b[:n]
	}
	b, _ := io.ReadAll(io.LimitReader(r.Body, maxBody))
	return b
}

// pick keeps the named headers that are there.
func pick(h http.Header, names ...string) []header {
	out := make([]header, 0, len(names))
	for _, name := range names {
		if v := h.Get(name); v != "" {
			out = append(out, header{name, v})
		}
	}
	return out
}
