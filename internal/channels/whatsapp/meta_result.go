package whatsapp

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// metaError is the "error" of an answer. Meta asks to go by code and details;
// titles are not stable.
type metaError struct {
	Code    *int            `json:"code"` // 0 is a code
	Subcode int             `json:"error_subcode"`
	Data    json.RawMessage `json:"error_data"`
}

// metaResult reads the answer to a message for t. Success must show a message id.
// A 5xx whose code the table does not have may come after Meta took the message,
// and no key makes a repeat harmless, so that it is Unknown.
func metaResult(ctx context.Context, x channels.Exchange, t notify.Target) channels.Result {
	if x.Status >= 200 && x.Status < 300 {
		return metaAccepted(ctx, x)
	}
	r, ok := metaRefused(x.Body, t)
	if !ok {
		code := r.Code
		r = x.Default(ctx, true)
		if r.Code = code; x.Status == http.StatusNotFound {
			// The URL names nothing but the version and the account's number.
			r.Outcome = notify.AccountRejected
		}
	}
	r.HTTPStatus = x.Status
	if d := x.RetryAfter(); d > 0 {
		r.RetryAfter = d
	}
	return r
}

func metaAccepted(ctx context.Context, x channels.Exchange) channels.Result {
	var answer struct {
		Messages []struct {
			ID string `json:"id"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(x.Body, &answer); err != nil || len(answer.Messages) == 0 || answer.Messages[0].ID == "" {
		return x.Default(ctx, true)
	}
	r := channels.Ok(answer.Messages[0].ID)
	r.HTTPStatus = x.Status
	return r
}

// metaRefused reads the body of an error, and reports false for a code that is
// not in the table; the Result then has the code alone.
func metaRefused(body []byte, t notify.Target) (channels.Result, bool) {
	var answer struct {
		Error metaError `json:"error"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Error.Code == nil {
		return channels.Result{}, false
	}
	e, code := answer.Error, *answer.Error.Code
	if code < 0 || code > 9_999_999 {
		// Longer than any code: it could be the recipient's number.
		return channels.Result{}, false
	}
	r, ok := fromMetaCode(code, e.Subcode, e.details())
	r.Code = strconv.Itoa(code)
	if r.Scope == metaPair {
		r.Scope = channels.RecipientScope(notify.WhatsApp, t)
	}
	return r, ok
}

// fromMetaCode looks a code up. Where a code has more than one meaning, the
// subcode or the details tell which.
func fromMetaCode(code, subcode int, details string) (channels.Result, bool) {
	switch {
	case code == invalidParameter && subcode == noSuchObject:
		return channels.Result{Outcome: notify.AccountRejected, Scope: metaSender, Detail: "number not found, or no permission for it"}, true
	case (code == invalidParameter || code == invalidValue) && aboutRecipient(details):
		return channels.Result{Outcome: notify.RecipientRejected, Detail: "recipient is not valid"}, true
	case code >= 200 && code < 300:
		return channels.Result{Outcome: notify.AccountRejected, Detail: "permission missing"}, true
	}
	r, ok := metaCodes[code]
	return r, ok
}

// details returns error_data.details, in lower case.
func (e metaError) details() string {
	var data struct {
		Details string `json:"details"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return ""
	}
	return strings.ToLower(data.Details)
}

// aboutRecipient reports whether the details blame the recipient's number and not
// another parameter.
func aboutRecipient(details string) bool {
	for _, words := range []string{"recipient", "not a valid whatsapp", "not a whatsapp", "parameter to ", "'to'", "\"to\"", "['to']"} {
		if strings.Contains(details, words) {
			return true
		}
	}
	return false
}
