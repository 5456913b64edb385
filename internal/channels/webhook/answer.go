package webhook

import (
	"context"
	"errors"
	"net"
	"net/http"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// classify says what an endpoint's answer means. The body is of no account: what
// strangers write in it is neither proof nor to be shown.
func classify(ctx context.Context, x channels.Exchange, scope string) channels.Result {
	if x.Status == 0 {
		return transport(ctx, x)
	}
	r := channels.Result{HTTPStatus: x.Status, RetryAfter: x.RetryAfter()}
	switch {
	case x.Status >= 200 && x.Status < 300:
		r.Outcome, r.Status = notify.Accepted, notify.Delivered
		return r
	case x.Status >= 300 && x.Status < 400:
		r.Outcome, r.Detail = notify.MessageRejected, "the endpoint redirects, which is not followed"
	case x.Status == http.StatusGone:
		r.Outcome, r.Suppress, r.Detail = notify.RecipientRejected, true, "the endpoint is gone and wants no more"
	case ownersFault(x.Status):
		r.Outcome, r.Detail = notify.RecipientUnavailable, "the endpoint refuses, until its owner mends it"
	default:
		// Sending again is harmless, for the webhook-id is the same.
		r = x.Default(ctx, false)
	}
	if r.Outcome == notify.Throttled || r.RetryAfter > 0 {
		r.Scope = scope
	}
	return r
}

// ownersFault reports whether the status is one that an endpoint gives while its
// owner has it configured wrongly, and may mend it.
func ownersFault(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return true
	}
	return false
}

func transport(ctx context.Context, x channels.Exchange) channels.Result {
	if refused(x.Err) {
		return channels.Result{Outcome: notify.RecipientRejected, Detail: "the endpoint's address or port is not one that may be called"}
	}
	if dns, ok := errors.AsType[*net.DNSError](x.Err); ok && dns.IsNotFound {
		return channels.Result{Outcome: notify.RecipientUnavailable, Detail: "the endpoint's name does not exist"}
	}
	return channels.Transport(ctx, x.Err, x.Wrote)
}
