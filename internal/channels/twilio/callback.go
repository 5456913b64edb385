package twilio

import (
	"errors"
	"mime"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// retries are Twilio's connection overrides for status callbacks: three more
// tries where a connection cannot be made, an answer does not come or is a 5xx,
// in place of one after a failed connection. Twilio gives up for good after 15
// seconds in all. They are a fragment, which is neither sent nor signed.
//
// Source: twilio.com/docs/usage/webhooks/webhooks-connection-overrides.
const retries = "#rc=3&rp=ct,rt,5xx"

// StatusCallback returns the URL that Twilio is to report m's statuses to; empty
// where there is none, or where no token could tell such a report from a forged
// one.
func (c *Client) StatusCallback(m *channels.Message) string {
	if m.Callback == "" || len(c.tokens) == 0 {
		return ""
	}
	return m.Callback + retries
}

// ReadCallback reads a callback for an account of a channel, as
// [channels.CallbackReader] has it, at two paths: status/{reference} for the
// statuses of a message, and inbound for messages that people write.
//
// Both name the account, and both are signed, the URL included, so that a report
// cannot be moved to another message. Reports that say nothing which is known are
// none, and no error: Twilio adds statuses and fields over time.
func (c *Client) ReadCallback(ch notify.Channel, cb *channels.Callback) (channels.Report, error) {
	ref, isStatus := strings.CutPrefix(cb.Path, "status/")
	if !isStatus && cb.Path != "inbound" {
		return channels.Report{}, refuse(http.StatusNotFound, "no such callback")
	}
	form, err := c.authentic(cb)
	if err != nil {
		return channels.Report{}, err
	}
	if isStatus {
		return statusReport(ref, form)
	}
	return inboundReport(ch, form)
}

// authentic returns the parameters of a callback that is proven to be Twilio's
// and the account's own.
func (c *Client) authentic(cb *channels.Callback) (url.Values, error) {
	if len(c.tokens) == 0 {
		return nil, refuse(http.StatusForbidden, "the account has no token to check callbacks with: callback_auth_tokens must be set")
	}
	if cb.Method != http.MethodPost {
		return nil, refuse(http.StatusBadRequest, "twilio must be set to call by POST")
	}
	u, err := url.Parse(cb.URL)
	if err != nil || !strings.HasSuffix(u.Path, "/"+cb.Path) {
		return nil, refuse(http.StatusBadRequest, "url and path do not belong together")
	}
	form, err := fields(cb)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, err.Error())
	}
	if !signedBy(c.tokens, cb, form) {
		return nil, refuse(http.StatusForbidden, "the signature does not hold")
	}
	if one(form, "AccountSid") != c.sid {
		return nil, refuse(http.StatusForbidden, "the callback is another account's")
	}
	if one(form, "MessageSid") == "" {
		return nil, refuse(http.StatusBadRequest, "MessageSid is missing")
	}
	return form, nil
}

// statusReport reads a status callback.
func statusReport(reference string, form url.Values) (channels.Report, error) {
	ref, err := channels.ParseRef(reference)
	if err != nil {
		return channels.Report{}, refuse(http.StatusBadRequest, err.Error())
	}
	status := one(form, "MessageStatus")
	if status == "" {
		return channels.Report{}, refuse(http.StatusBadRequest, "MessageStatus is missing")
	}
	sid := channels.Code(one(form, "MessageSid"))
	if sid == "" {
		return channels.Report{}, refuse(http.StatusBadRequest, "MessageSid is none")
	}
	r, ok := receipt(sid, status, codeOf(one(form, "ErrorCode")))
	if !ok {
		return channels.Report{}, nil
	}
	r.Ref = ref
	return channels.Report{Receipts: []channels.Receipt{r}}, nil
}

// codeOf reads an error code as [errorCode] does.
func codeOf(s string) int {
	if n, err := strconv.Atoi(s); err == nil && n > 0 && n <= maxErrorCode {
		return n
	}
	return 0
}

// parameter is what the names of Twilio's parameters are made of. The signature
// is over names and values without anything between them, so that a name which
// could be the end of another's value must not pass.
var parameter = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)

// fields returns the parameters of a callback, from a form, or from a JSON object
// of texts whose digest is in the URL. A form is taken in the one spelling that
// Twilio writes, each name with its "=".
func fields(cb *channels.Callback) (url.Values, error) {
	kind, _, _ := mime.ParseMediaType(cb.Header.Get("Content-Type"))
	switch kind {
	case "application/x-www-form-urlencoded":
		return formFields(string(cb.Body))
	case "application/json":
		return jsonFields(cb)
	}
	return nil, errors.New("the body is neither a form nor json")
}

func formFields(body string) (url.Values, error) {
	form, err := url.ParseQuery(body)
	if err != nil {
		return nil, errors.New("the form cannot be read") // the cause would quote it
	}
	for pair := range strings.SplitSeq(body, "&") {
		name, _, ok := strings.Cut(pair, "=")
		if pair != "" && (!ok || !parameter.MatchString(name)) {
			return nil, errors.New("the form has a parameter that twilio has not")
		}
	}
	return form, nil
}

func jsonFields(cb *channels.Callback) (url.Values, error) {
	if _, ok := bodyDigestOf(cb.URL); !ok {
		return nil, errors.New("the body is json, and its digest is not in the url")
	}
	var object map[string]any
	if err := json.Unmarshal(cb.Body, &object); err != nil {
		return nil, errors.New("the json cannot be read")
	}
	form := url.Values{}
	for name, value := range object {
		if text, ok := value.(string); ok {
			form.Set(name, text)
		}
	}
	return form, nil
}

// one returns the value of a parameter; empty where there is none, or more than
// one that could be meant.
func one(form url.Values, name string) string {
	if len(form[name]) != 1 {
		return ""
	}
	return form[name][0]
}

func refuse(status int, reason string) error {
	return &channels.CallbackError{Status: status, Reason: reason}
}
