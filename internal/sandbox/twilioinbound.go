package sandbox

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// TwilioInbound is what senders at Twilio call when a message comes in. Where a
// URL is empty, messages of that channel go nowhere.
type TwilioInbound struct {
	SMS, WhatsApp string
	// AccountSID is whose senders they are, and AuthToken signs the calls.
	AccountSID, AuthToken string
}

// SetTwilioInbound changes where messages that come in go, for receivers that
// start after the sandbox.
func (s *Server) SetTwilioInbound(in TwilioInbound) { s.inbound.Store(&in) }

// Inbound is a message that a person writes.
type Inbound struct {
	// Provider is "twilio", which is also the default.
	Provider string `json:"provider"`
	// From is who writes, a number in E.164, and To the sender that is written to.
	// For WhatsApp, "whatsapp:" stands before them. To may be left out.
	From string `json:"from"`
	To   string `json:"to"`
	Body string `json:"body"`
	// OptOutType is STOP, START or HELP where the Messaging Service has Advanced
	// Opt-Out, and took the body for one of its keywords; empty elsewhere.
	OptOutType string `json:"opt_out_type"`
}

// Received is what became of an [Inbound] message.
type Received struct {
	MessageID string `json:"message_id"`
	// URL is what was called, HTTPStatus and Answer what it answered; 0 and empty
	// where it could not be reached, for the reason in Error.
	URL        string `json:"url"`
	HTTPStatus int    `json:"http_status,omitzero"`
	Answer     string `json:"answer,omitzero"`
	Error      string `json:"error,omitzero"`
}

// errNoInbound says that messages of a channel have nowhere to go.
var errNoInbound = errors.New("no url is set that messages of this channel go to")

func (m *Inbound) validate() error {
	number, isWhatsApp := strings.CutPrefix(m.From, whatsAppPrefix)
	if m.To == "" {
		m.To = "+15005550006"
		if isWhatsApp {
			m.To = whatsAppPrefix + "+14155238886"
		}
	}
	switch {
	case m.Provider != "" && m.Provider != twilio:
		return &FieldError{"/provider", "must be twilio"}
	case !e164.MatchString(number) && !shortCode.MatchString(number):
		return &FieldError{"/from", "must be a number in E.164, with whatsapp: before it for WhatsApp"}
	case strings.HasPrefix(m.To, whatsAppPrefix) != isWhatsApp:
		return &FieldError{"/to", "must be of the same channel as from"}
	case m.OptOutType != "" && m.OptOutType != "STOP" && m.OptOutType != "START" && m.OptOutType != "HELP":
		return &FieldError{"/opt_out_type", "must be STOP, START or HELP"}
	}
	return nil
}

// Receive lets a message come in: it calls the configured URL, signed as Twilio
// signs, and waits for the answer. The error is a [*FieldError], or says that no
// URL is set.
func (s *Server) Receive(ctx context.Context, m Inbound) (Received, error) {
	if err := m.validate(); err != nil {
		return Received{}, err
	}
	in := s.inbound.Load()
	target := in.SMS
	if strings.HasPrefix(m.From, whatsAppPrefix) {
		target = in.WhatsApp
	}
	if target == "" {
		return Received{}, errNoInbound
	}
	target, _, _ = strings.Cut(target, "#")
	out := Received{MessageID: "SM" + randomHex(), URL: target}
	form := url.Values{
		"MessageSid": {out.MessageID}, "SmsSid": {out.MessageID}, "SmsMessageSid": {out.MessageID}, "AccountSid": {in.AccountSID},
		"From": {m.From}, "To": {m.To}, "Body": {m.Body}, "NumMedia": {"0"}, "NumSegments": {"1"}, "SmsStatus": {"received"},
		"ApiVersion": {"2010-04-01"},
	}
	if m.OptOutType != "" {
		form.Set("OptOutType", m.OptOutType)
	}
	req, err := twilioRequest(ctx, target, in.AuthToken, form)
	if err != nil {
		return Received{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, callbackTimeout)
	defer cancel()
	resp, err := s.callbacks.client.Do(req.WithContext(ctx))
	if err != nil {
		out.Error = withoutURL(err)
		return out, nil
	}
	defer resp.Body.Close() //nolint:errcheck // read as far as it is wanted
	answer, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	out.HTTPStatus, out.Answer = resp.StatusCode, string(answer)
	return out, nil
}

// twilioRequest is a signed request of Twilio's.
func twilioRequest(ctx context.Context, target, token string, form url.Values) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=UTF-8")
	req.Header.Set("User-Agent", "TwilioProxy/1.1")
	req.Header.Set("X-Twilio-Signature", twilioSignature(token, target, form))
	return req, nil
}

func (s *Server) postInbound(w http.ResponseWriter, r *http.Request) {
	var m Inbound
	if err := readStrict(r, &m); err != nil {
		badJSON(w, err)
		return
	}
	got, err := s.Receive(r.Context(), m)
	switch field := (*FieldError)(nil); {
	case errors.As(err, &field):
		badJSON(w, err)
	case errors.Is(err, errNoInbound):
		problem(w, http.StatusConflict, "no_inbound_url", "", err.Error())
	case err != nil:
		problem(w, http.StatusInternalServerError, "internal", "", "the message could not be written")
	default:
		writeJSON(w, got)
	}
}

// overrides are Twilio's connection overrides: the fragment of a callback's URL,
// such as "rc=3&rp=ct,rt,5xx", says how often and after what it is called again.
//
// Source: twilio.com/docs/usage/webhooks/webhooks-connection-overrides.
type overrides struct {
	retries int
	after   string // with a comma before and after each
}

func readOverrides(fragment string) overrides {
	values, _ := url.ParseQuery(fragment)
	o := overrides{retries: 1, after: ",ct,"}
	if n, err := strconv.Atoi(values.Get("rc")); err == nil && n >= 0 && n <= 5 {
		o.retries = n
	}
	if rp := values.Get("rp"); rp != "" {
		o.after = "," + rp + ","
	}
	return o
}

// again reports whether a call is made again that was answered with a status, or
// failed, for the nth time, counted from 1.
func (o overrides) again(n, status int, err error) bool {
	kind := ""
	switch {
	case status >= 500:
		kind = "5xx"
	case status >= 400:
		kind = "4xx"
	case err != nil && isConnect(err):
		kind = "ct"
	case err != nil:
		kind = "rt"
	}
	return n <= o.retries && kind != "" && (strings.Contains(o.after, ","+kind+",") || strings.Contains(o.after, ",all,"))
}

// retryPause is what passes before the first repeat of a callback; it doubles.
const retryPause = 100 * time.Millisecond
