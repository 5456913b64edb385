package push

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// apnsRenewed is how long the account rests after its token was renewed.
const apnsRenewed = time.Second

// apnsOutcomes is Apple's table of reasons. A reason that it lacks is classified
// by its status.
var apnsOutcomes = map[string]notify.Outcome{
	"BadDeviceToken":         notify.RecipientRejected,
	"DeviceTokenNotForTopic": notify.RecipientRejected,
	"MissingDeviceToken":     notify.RecipientRejected,
	"Unregistered":           notify.RecipientRejected,
	"ExpiredToken":           notify.RecipientRejected,

	"BadTopic":                  notify.AccountRejected,
	"MissingTopic":              notify.AccountRejected,
	"TopicDisallowed":           notify.AccountRejected,
	"BadCertificateEnvironment": notify.AccountRejected,
	"BadCertificate":            notify.AccountRejected,
	"InvalidProviderToken":      notify.AccountRejected,
	"MissingProviderToken":      notify.AccountRejected,
	"Forbidden":                 notify.AccountRejected,
	apnsExpiredProviderToken:    notify.Throttled,

	"BadCollapseId":     notify.MessageRejected,
	"BadExpirationDate": notify.MessageRejected,
	"BadMessageId":      notify.MessageRejected,
	"BadPriority":       notify.MessageRejected,
	"InvalidPushType":   notify.MessageRejected,
	"PayloadEmpty":      notify.MessageRejected,
	"DuplicateHeaders":  notify.MessageRejected,
	"BadPath":           notify.MessageRejected,
	"MethodNotAllowed":  notify.MessageRejected,
	"PayloadTooLarge":   notify.MessageRejected,

	apnsTooManyRequests:           notify.Throttled,
	"TooManyProviderTokenUpdates": notify.Throttled,

	apnsIdleTimeout:       notify.ProviderUnavailable,
	"InternalServerError": notify.ProviderUnavailable,
	"ServiceUnavailable":  notify.ProviderUnavailable,
	"Shutdown":            notify.ProviderUnavailable,
}

const (
	apnsExpiredProviderToken = "ExpiredProviderToken"
	apnsTooManyRequests      = "TooManyRequests"
	apnsIdleTimeout          = "IdleTimeout"
)

// result says what an answer means. bearer is the provider token of the call.
func (p *APNs) result(ctx context.Context, x channels.Exchange, to notify.Target, bearer string) channels.Result {
	if id := x.Header.Get("Apns-Id"); x.Status == http.StatusOK && uuid.Validate(id) == nil {
		p.proven.Store(true)
		r := channels.Ok(id)
		r.HTTPStatus = x.Status
		return r
	}
	r := x.Default(ctx, false)
	if x.Status == http.StatusGone {
		r.Outcome = notify.RecipientRejected
	}
	var ans struct {
		Reason    string `json:"reason"`
		Timestamp int64  `json:"timestamp"` // milliseconds since 1970; 410 only
	}
	if x.Status < 400 || json.Unmarshal(x.Body, &ans) != nil {
		return r
	}
	r.Code = code(ans.Reason, appleCode, to.Device.Token)
	if o, ok := apnsOutcomes[ans.Reason]; ok {
		r.Outcome = o
	}
	switch ans.Reason {
	case "BadDeviceToken", "DeviceTokenNotForTopic":
		r.Suppress = p.proven.Load()
		r.Detail = "if it happens to all devices, base_url or topic is not the app's"
	case "Unregistered", "ExpiredToken":
		p.proven.Store(true)
		r.Suppress = true
		if ans.Timestamp > 0 {
			r.Detail = "dead since " + time.UnixMilli(ans.Timestamp).UTC().Format(time.RFC3339)
		}
	case apnsTooManyRequests:
		r.Scope = deviceScope(to)
	case apnsIdleTimeout:
		p.client.CloseIdleConnections()
	case apnsExpiredProviderToken:
		p.renew(&r, bearer)
	}
	return r
}

// renew answers an expired provider token.
func (p *APNs) renew(r *channels.Result, bearer string) {
	if !p.token.refresh(bearer, p.now()) {
		r.Outcome, r.Detail = notify.AccountRejected, "a new provider token was called expired: check the clock"
		return
	}
	r.RetryAfter, r.Detail = max(r.RetryAfter, apnsRenewed), "provider token renewed"
}
