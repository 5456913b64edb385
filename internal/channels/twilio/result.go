package twilio

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Result reads the answer to a message created for t on channel c, from the
// status, the code and the SID alone. The vendor's messages are never read: they
// quote the number and the text.
//
// Success must show a SID. A 500, 502 or 504 may come after Twilio took the
// message, and no request parameter makes a repeat harmless, so that it is
// Unknown; a 503 says that the request was not handled (RFC 9110, 15.6.4). A code
// that the tables do not have is classified by the HTTP status.
func Result(ctx context.Context, x channels.Exchange, c notify.Channel, t notify.Target) channels.Result {
	if x.Status >= 200 && x.Status < 300 {
		return created(ctx, x, c, t)
	}
	code := errorCode(x.Body)
	r, ok := FromErrorCode(code, c, t)
	if !ok {
		r = unlisted(ctx, x, code)
	}
	r.HTTPStatus = x.Status
	if d := x.RetryAfter(); d > 0 {
		r.RetryAfter = d
	}
	return r
}

// created reads a 2xx.
func created(ctx context.Context, x channels.Exchange, c notify.Channel, t notify.Target) channels.Result {
	var message struct {
		SID       string `json:"sid"`
		Status    string `json:"status"`
		ErrorCode int    `json:"error_code"`
	}
	if err := json.Unmarshal(x.Body, &message); err != nil || channels.Code(message.SID) == "" {
		return x.Default(ctx, true)
	}
	r := channels.Ok(message.SID)
	if progress(message.Status) == notify.Failed {
		r = failed(message.Status, message.ErrorCode)
		r.MessageID, r.Scope = message.SID, resolve(r.Scope, c, t)
	}
	r.HTTPStatus = x.Status
	return r
}

// unlisted classifies a refusal by its HTTP status.
func unlisted(ctx context.Context, x channels.Exchange, code int) channels.Result {
	r := x.Default(ctx, true)
	switch x.Status {
	case http.StatusNotFound:
		// The URL names nothing but the account.
		r.Outcome = notify.AccountRejected
	case http.StatusServiceUnavailable:
		r.Outcome = notify.ProviderUnavailable
	}
	return withCode(r, code)
}

// withCode names a code that the tables do not have, with the page that
// explains it.
func withCode(r channels.Result, code int) channels.Result {
	if code == 0 {
		return r
	}
	r.Code = strconv.Itoa(code)
	r.Detail = fmt.Sprintf("see https://www.twilio.com/docs/api/errors/%d", code)
	return r
}

// maxErrorCode is above all of Twilio's.
const maxErrorCode = 999_999

// errorCode returns the code of an error body, in either of the shapes that
// Twilio has, or 0. What has more digits than any code is none: it could be the
// recipient's number.
func errorCode(body []byte) int {
	var e struct {
		Code int `json:"code"`
	}
	if err := json.Unmarshal(body, &e); err != nil || e.Code < 0 || e.Code > maxErrorCode {
		return 0
	}
	return e.Code
}
