package sandbox

import (
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// What a rule's drop says.
const (
	// DropBefore closes the connection before anything was accepted.
	DropBefore = "before"
	// DropAfter accepts the message and closes the connection without an answer.
	DropAfter = "after"
)

// maxDelay bounds a rule's delay.
const maxDelay = 10 * time.Minute

// Rule breaks calls. Of a list, the first rule that matches a call decides and
// counts down; a rule that has counted down is gone.
type Rule struct {
	// Provider is one of twilio, meta, fcm, apns, webpush, slack, slack-webhook,
	// webhook, smtp, or of the calls beside messages: twilio-lookup, slack-lookup,
	// fcm-token. Empty or "*" is every one of them, except that an HTTP status says
	// nothing to smtp.
	Provider string `json:"provider,omitzero"`
	// To is the recipient as the provider is told it: "+14155550100",
	// "whatsapp:+14155550100", a token, a channel, an address, a URL (its path
	// alone will do). Empty or "*" is everybody.
	To string `json:"to,omitzero"`
	// Account is the account that calls, as the provider knows it: at Twilio the SID
	// in the URL. Empty or "*" is every one.
	Account string `json:"account,omitzero"`
	// Times is how many calls it breaks; 0 means every one until it is replaced.
	Times int `json:"times,omitzero"`
	// Answer is what those calls get.
	Answer RuleAnswer `json:"answer"`
}

// RuleAnswer is what a rule does to a call. Without Status and Drop the normal
// answer is given, late by Delay and with Headers added.
type RuleAnswer struct {
	// Status is an HTTP status, 200 to 599, or for smtp a reply code, 400 to 599.
	Status int `json:"status,omitzero"`
	// Headers are added to the answer; not for smtp.
	Headers map[string]string `json:"headers,omitzero"`
	// Body is the answer's body: a JSON string is sent as its text, anything else
	// as JSON. Without it the body is what the vendor sends with that status. For
	// smtp it is the reply's text and may begin with an enhanced code.
	Body jsontext.Value `json:"body,omitzero"`
	// Delay passes between the call's arrival and the answer; at most 10 min.
	Delay notify.Duration `json:"delay,omitzero"`
	// Drop is "before" or "after", see [DropBefore] and [DropAfter].
	Drop string `json:"drop,omitzero"`
}

// FieldError says what is wrong with one member of a control request.
type FieldError struct {
	Pointer string // JSON pointer, such as "/0/answer/drop"
	Reason  string
}

// Error implements error.
func (e *FieldError) Error() string { return e.Pointer + ": " + e.Reason }

func (r Rule) validate() *FieldError {
	a := r.Answer
	smtp := r.Provider == smtpProvider
	switch {
	case r.Provider != "" && r.Provider != "*" && !slices.Contains(providers(), r.Provider):
		return &FieldError{"/provider", "must be * or one of " + strings.Join(providers(), ", ")}
	case r.Times < 0:
		return &FieldError{"/times", "must not be negative"}
	case a.Drop != "" && a.Drop != DropBefore && a.Drop != DropAfter:
		return &FieldError{"/answer/drop", `must be "before" or "after"`}
	case a.Drop != "" && (a.Status != 0 || len(a.Body) > 0 || len(a.Headers) > 0):
		return &FieldError{"/answer/drop", "excludes status, headers and body: nothing is answered"}
	case smtp && a.Status != 0 && (a.Status < 400 || a.Status > 599):
		return &FieldError{"/answer/status", "must be an SMTP reply code from 400 to 599"}
	case a.Status != 0 && (a.Status < 200 || a.Status > 599):
		return &FieldError{"/answer/status", "must be from 200 to 599"}
	case smtp && len(a.Headers) > 0:
		return &FieldError{"/answer/headers", "smtp has none"}
	case smtp && len(a.Body) > 0 && a.Body.Kind() != '"':
		return &FieldError{"/answer/body", "must be a string for smtp"}
	case len(a.Body) > 0 && a.Status == 0:
		return &FieldError{"/answer/body", "needs a status"}
	case a.Delay < 0 || a.Delay.Std() > maxDelay:
		return &FieldError{"/answer/delay", "must be from 0s to 10m"}
	case a.Status == 0 && a.Drop == "" && a.Delay == 0 && len(a.Headers) == 0:
		return &FieldError{"/answer", "must name a status, headers, a delay or a drop"}
	}
	return nil
}

// text is the body as it goes over the wire.
func (a RuleAnswer) text() string {
	if a.Body.Kind() != '"' {
		return string(a.Body)
	}
	b, err := jsontext.AppendUnquote(nil, a.Body)
	if err != nil {
		return string(a.Body)
	}
	return string(b)
}

func (r Rule) matches(provider, account, to string) bool {
	if r.Account != "" && r.Account != "*" && r.Account != account {
		return false
	}
	if r.Provider == "" || r.Provider == "*" {
		if provider == smtpProvider && r.Answer.Status != 0 {
			return false
		}
	} else if r.Provider != provider {
		return false
	}
	return r.To == "" || r.To == "*" || sameRecipient(provider, r.To, to)
}

// sameRecipient compares what a person wrote with what a provider was told.
// URLs are the same where their paths are, whatever host they go by.
func sameRecipient(provider, want, got string) bool {
	if want == got {
		return true
	}
	switch provider {
	case smtpProvider:
		return strings.EqualFold(want, got)
	case slack:
		return strings.TrimPrefix(want, "#") == strings.TrimPrefix(got, "#")
	case meta:
		return strings.TrimPrefix(want, "+") == strings.TrimPrefix(got, "+")
	case webPush:
		return want == path.Base(got) || requestPath(want) == requestPath(got)
	case webhook, slackWebhook:
		return requestPath(want) == requestPath(got)
	}
	return false
}

func requestPath(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	return u.RequestURI()
}

// faultList holds the rules in force.
type faultList struct {
	mu    sync.Mutex
	rules []Rule
	any   atomic.Bool // spares the lock where there is no rule
}

// take returns the first rule that matches and counts it down.
func (f *faultList) take(provider, account, to string) (RuleAnswer, bool) {
	if !f.any.Load() {
		return RuleAnswer{}, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.rules {
		r := &f.rules[i]
		if !r.matches(provider, account, to) {
			continue
		}
		answer := r.Answer
		switch r.Times {
		case 0: // without end
		case 1:
			f.rules = slices.Delete(f.rules, i, i+1)
			f.any.Store(len(f.rules) > 0)
		default:
			r.Times--
		}
		return answer, true
	}
	return RuleAnswer{}, false
}

// SetFaults replaces all rules; none are replaced when one is wrong, which is
// then a [*FieldError].
func (s *Server) SetFaults(rules ...Rule) error {
	for i, r := range rules {
		if err := r.validate(); err != nil {
			return &FieldError{fmt.Sprintf("/%d%s", i, err.Pointer), err.Reason}
		}
	}
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	s.faults.rules = slices.Clone(rules)
	s.faults.any.Store(len(rules) > 0)
	return nil
}

// Faults returns the rules that are left, with the times that are left of each.
func (s *Server) Faults() []Rule {
	s.faults.mu.Lock()
	defer s.faults.mu.Unlock()
	return slices.Clone(s.faults.rules)
}
