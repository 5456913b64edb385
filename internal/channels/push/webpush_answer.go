package push

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// fcmWrongKey is how Google's push service says, in plain text beside 403, that a
// subscription was made with another VAPID key.
const fcmWrongKey = "do not correspond to the credentials used to create the subscription"

// webPushResult says what an answer means (RFC 8030, 5 and 7; RFC 8292, 4.2).
// What is not the recipient's or the message's alone concerns one push service,
// so it bears its scope: an endpoint of a user's making must not be able to shut
// down the account.
func webPushResult(ctx context.Context, x channels.Exchange, to notify.Target) channels.Result {
	if x.Status == http.StatusCreated || x.Status == http.StatusOK || x.Status == http.StatusAccepted {
		r := channels.Ok(receiptID(x.Header.Get("Location"), to.Device.Endpoint))
		r.HTTPStatus = x.Status
		return r
	}
	r := x.Default(ctx, false)
	if x.Status == 0 {
		byDial(&r, x.Err)
	} else {
		byWebPush(&r, x, to)
	}
	switch r.Outcome {
	case notify.Throttled, notify.ProviderUnavailable, notify.Unknown, notify.AccountRejected:
		r.Scope = originScope(to)
	case notify.Accepted, notify.RecipientUnavailable, notify.RecipientRejected, notify.MessageRejected,
		notify.Suppressed, notify.NotAttempted, notify.Expired:
	}
	return r
}

// byDial refines r where no connection came to be because of the endpoint's host.
func byDial(r *channels.Result, err error) {
	if guardRefused(err) {
		r.Outcome, r.Detail = notify.RecipientRejected, "endpoint's address is not public"
	}
	if dns, ok := errors.AsType[*net.DNSError](err); ok && dns.IsNotFound {
		r.Outcome = notify.RecipientUnavailable
	}
}

// byWebPush refines r by the status, and by the reason that some services give:
// Mozilla's errno, Apple's reason, Google's text.
func byWebPush(r *channels.Result, x channels.Exchange, to notify.Target) {
	var ans struct {
		Errno  int    `json:"errno"`
		Reason string `json:"reason"`
	}
	if json.Unmarshal(x.Body, &ans) == nil {
		if ans.Errno > 0 {
			r.Code = "errno " + strconv.Itoa(ans.Errno)
		} else {
			r.Code = code(ans.Reason, appleCode, to.Device.Endpoint)
		}
	}
	otherKey := ans.Reason == "VapidPkHashMismatch" || x.Status == http.StatusForbidden && strings.Contains(string(x.Body), fcmWrongKey)
	switch {
	case otherKey: // alive, but not for this account
		r.Outcome, r.Detail = notify.RecipientRejected, "subscription was made with another vapid key"
	case x.Status == http.StatusMovedPermanently, x.Status == http.StatusPermanentRedirect:
		r.Outcome, r.Detail = notify.RecipientRejected, "endpoint moved; the browser must subscribe again"
	case x.Status == http.StatusNotFound, x.Status == http.StatusGone:
		r.Outcome, r.Suppress = notify.RecipientRejected, true
	case x.Status == http.StatusNotAcceptable: // how Microsoft's service throttles
		r.Outcome = notify.Throttled
	}
}

// receiptID is the message's own URL at the push service, empty where that would
// disclose the subscription's.
func receiptID(location, endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || location == "" || strings.Contains(location, path.Base(u.Path)) {
		return ""
	}
	return location
}
