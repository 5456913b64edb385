package push

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const (
	// fcmQuotaWait holds after QUOTA_EXCEEDED without a Retry-After: FCM asks for
	// a first delay of at least a minute.
	fcmQuotaWait = time.Minute
	// fcmGatewayWait holds after a 502, which is a page of Google's front end in
	// trouble.
	fcmGatewayWait = 30 * time.Second

	fcmThirdPartyAuth = "THIRD_PARTY_AUTH_ERROR"
)

// fcmMessageName is the proof that FCM took a message.
var fcmMessageName = regexp.MustCompile(`^projects/[^/\s]+/messages/[^/\s]+$`)

// fcmAnswer is what is needed of an answer, good or bad.
type fcmAnswer struct {
	Name  string `json:"name"` // projects/*/messages/*
	Error struct {
		Message string      `json:"message"`
		Status  string      `json:"status"`
		Details []fcmDetail `json:"details"`
	} `json:"error"`
}

// fcmDetail is the union of google.firebase.fcm.v1.FcmError,
// google.rpc.BadRequest and google.rpc.QuotaFailure, told apart by Type.
type fcmDetail struct {
	Type            string `json:"@type"`
	ErrorCode       string `json:"errorCode"`
	FieldViolations []struct {
		Field string `json:"field"`
	} `json:"fieldViolations"`
	Violations []struct {
		Subject     string `json:"subject"`
		Description string `json:"description"`
	} `json:"violations"`
}

// fcmResult says what an answer means. FCM's own errorCode decides; without it an
// answer is one of Google's front ends, and a 404 is a wrong project or address
// instead of a dead token.
func fcmResult(ctx context.Context, x channels.Exchange, to notify.Target) channels.Result {
	var ans fcmAnswer
	understood := x.Status != 0 && json.Unmarshal(x.Body, &ans) == nil
	if x.Status == http.StatusOK && understood && fcmMessageName.MatchString(ans.Name) && !strings.Contains(ans.Name, to.Device.Token) {
		r := channels.Ok(ans.Name)
		r.HTTPStatus = x.Status
		return r
	}
	r := x.Default(ctx, false)
	if x.Status == 0 || x.Status < 400 {
		return r
	}
	if !understood {
		ans = fcmAnswer{}
	}
	errorCode := ans.errorCode()
	r.Code = code(errorCode, googleCode, to.Device.Token)
	if r.Code == "" {
		r.Code = code(ans.Error.Status, googleCode, to.Device.Token)
	}
	byFCM(&r, errorCode, ans, to)
	return r
}

// byFCM refines r by FCM's errorCode. What a dead token is depends on FCM alone,
// so only its codes suppress one.
func byFCM(r *channels.Result, errorCode string, ans fcmAnswer, to notify.Target) {
	switch errorCode {
	case "UNREGISTERED":
		r.Outcome, r.Suppress = notify.RecipientRejected, true
	case "INVALID_ARGUMENT":
		byFCMArgument(r, ans)
	case "SENDER_ID_MISMATCH": // a token of another project; there it may be alive
		r.Outcome = notify.RecipientRejected
	case "QUOTA_EXCEEDED":
		byFCMQuota(r, ans, to)
	case "UNAVAILABLE":
		r.Outcome = notify.Unknown
	case "INTERNAL", "UNSPECIFIED_ERROR":
		r.Outcome = notify.ProviderUnavailable
	case fcmThirdPartyAuth: // the project's APNs key or VAPID key
		r.Outcome = notify.AccountRejected
	default:
		byFront(r, ans, to)
	}
}

// byFront refines r where FCM's own code is missing.
//
// A 503 is Unknown, and so is a 504: messages have been seen on devices although
// 503 was answered. A repeat does no harm where it is seen, since its tag and its
// collapse id are the first one's.
func byFront(r *channels.Result, ans fcmAnswer, to notify.Target) {
	switch r.HTTPStatus {
	case http.StatusBadRequest:
		byFCMArgument(r, ans)
	case http.StatusNotFound:
		r.Outcome = notify.AccountRejected
	case http.StatusTooManyRequests:
		if ans.Error.Status == "RESOURCE_EXHAUSTED" {
			byFCMQuota(r, ans, to)
		}
	case http.StatusBadGateway:
		if r.RetryAfter == 0 {
			r.RetryAfter = fcmGatewayWait
		}
	case http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		r.Outcome = notify.Unknown
	}
}

// byFCMArgument tells a token that is none from a message that FCM refuses.
func byFCMArgument(r *channels.Result, ans fcmAnswer) {
	r.Outcome = notify.MessageRejected
	if ans.blamesToken() {
		r.Outcome, r.Suppress = notify.RecipientRejected, true
	}
}

// byFCMQuota tells the device's quota from the project's.
func byFCMQuota(r *channels.Result, ans fcmAnswer, to notify.Target) {
	r.Outcome = notify.Throttled
	if ans.blamesDevice() {
		r.Scope = deviceScope(to)
	}
	if r.RetryAfter == 0 {
		r.RetryAfter = fcmQuotaWait
	}
}

// errorCode returns the errorCode of the FcmError among the details, if any.
func (a fcmAnswer) errorCode() string {
	for _, d := range a.Error.Details {
		if strings.HasSuffix(d.Type, "/google.firebase.fcm.v1.FcmError") {
			return d.ErrorCode
		}
	}
	return ""
}

// blamesToken reports whether it is the token that is invalid. FCM says so in a
// BadRequest; of a token that it cannot parse, in the message alone.
func (a fcmAnswer) blamesToken() bool {
	for _, d := range a.Error.Details {
		for _, v := range d.FieldViolations {
			if v.Field == "message.token" {
				return true
			}
		}
	}
	return strings.TrimSuffix(a.Error.Message, ".") == "The registration token is not a valid FCM registration token"
}

// blamesDevice reports whether a QuotaFailure names the device's message rate.
func (a fcmAnswer) blamesDevice() bool {
	for _, d := range a.Error.Details {
		for _, v := range d.Violations {
			if strings.Contains(strings.ToLower(v.Subject+" "+v.Description), "device") {
				return true
			}
		}
	}
	return false
}
