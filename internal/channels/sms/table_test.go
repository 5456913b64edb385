package sms

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// refusal is an answer of Twilio's with a code, whose message quotes the number
// and the text as the vendor's do.
func refusal(status, code int, want channels.Result) channeltest.Case {
	want.HTTPStatus, want.Code = status, strconv.Itoa(code)
	return channeltest.Case{
		Name: fmt.Sprintf("%d %d", status, code), Status: status, Want: want,
		Body: fmt.Sprintf(`{"code":%d,"message":"'%s' cannot get 'api: 3 of 5 pods are down'","more_info":"https://www.twilio.com/docs/errors/%d","status":%d}`,
			code, ana, code, status),
	}
}

// failure is a message that Twilio made and that failed at once, for a code that
// otherwise comes with a status callback.
func failure(code int, want channels.Result) channeltest.Case {
	want.HTTPStatus, want.Code, want.MessageID = http.StatusCreated, strconv.Itoa(code), messageSID
	return channeltest.Case{
		Name: fmt.Sprintf("failed at once with %d", code), Status: http.StatusCreated, Want: want,
		Body: fmt.Sprintf(`{"sid":%q,"status":"failed","error_code":%d,"error_message":"no route to %s","to":%q}`,
			messageSID, code, ana, ana),
	}
}

func table() []channeltest.Case {
	const toRegion = "region:1415"
	to := channels.RecipientScope(notify.SMS, notify.Target{Phone: ana})
	only := func(o notify.Outcome) channels.Result { return channels.Result{Outcome: o} }
	scoped := func(o notify.Outcome, scope string, after time.Duration) channels.Result {
		return channels.Result{Outcome: o, Scope: scope, RetryAfter: after}
	}
	dead := channels.Result{Outcome: notify.RecipientRejected, Suppress: true}
	account, rejected, recipient := only(notify.AccountRejected), only(notify.MessageRejected), only(notify.RecipientRejected)
	resting := scoped(notify.RecipientUnavailable, to, 15*time.Minute)
	badSender := scoped(notify.AccountRejected, "sender", 0)

	rows := []channeltest.Case{
		refusal(401, 20003, account),
		refusal(403, 20003, account),
		refusal(404, 20404, account),
		refusal(429, 20429, only(notify.Throttled)),
		refusal(500, 20500, only(notify.Unknown)),
		refusal(503, 20503, only(notify.ProviderUnavailable)),
		refusal(400, 21211, dead),
		refusal(400, 21212, badSender),
		refusal(400, 21214, recipient),
		refusal(403, 21408, scoped(notify.AccountRejected, toRegion, 0)),
		refusal(400, 21601, scoped(notify.AccountRejected, toRegion, 0)),
		refusal(400, 21602, rejected),
		refusal(400, 21603, rejected),
		refusal(400, 21604, rejected),
		refusal(400, 21606, scoped(notify.AccountRejected, toRegion, 0)),
		refusal(400, 21608, scoped(notify.AccountRejected, to, 0)),
		refusal(400, 21609, account),
		refusal(400, 21610, channels.Result{Outcome: notify.Suppressed, Suppress: true}),
		refusal(400, 21611, scoped(notify.Throttled, "sender", 5*time.Minute)),
		refusal(400, 21612, recipient),
		refusal(400, 21614, dead),
		refusal(400, 21617, rejected),
		refusal(400, 21618, rejected),
		refusal(400, 21620, rejected),
		refusal(400, 21635, dead),
		refusal(400, 21654, rejected),
		refusal(400, 21655, rejected),
		refusal(400, 21656, rejected),
		refusal(400, 21658, rejected),
		refusal(400, 21703, badSender),
		refusal(400, 21704, badSender),
		refusal(400, 21705, badSender),

		failure(30001, scoped(notify.Throttled, "sender", 5*time.Minute)),
		failure(30002, account),
		failure(30003, resting),
		failure(30004, recipient),
		failure(30005, resting),
		failure(30006, recipient),
		failure(30007, rejected),
		failure(30008, resting),
		failure(30010, rejected),
		failure(30011, rejected),
		failure(30012, rejected),
		failure(30017, only(notify.ProviderUnavailable)),
		failure(30018, scoped(notify.AccountRejected, toRegion, 0)),
		failure(30019, rejected),
		failure(30022, scoped(notify.Throttled, "sender", time.Minute)),
		failure(30023, scoped(notify.Throttled, "sender", time.Hour)),
		failure(30024, badSender),
		failure(30027, scoped(notify.Throttled, "sender", time.Hour)),
		failure(30032, badSender),
		failure(30033, badSender),
		failure(30034, badSender),
		failure(30035, badSender),
		failure(30036, only(notify.Expired)),
		failure(30045, rejected),
		failure(30410, only(notify.Unknown)),
		failure(30450, channels.Result{Outcome: notify.Suppressed, Suppress: true, SuppressFor: 30 * time.Minute}),
		failure(39999, rejected),

		refusal(400, 30007, rejected), // a code that otherwise comes later
		refusal(400, 29999, rejected),
		refusal(401, 29999, account),
		refusal(429, 29999, only(notify.Throttled)),
		refusal(502, 29999, only(notify.Unknown)),
	}
	return append(rows, shapes()...)
}

// shapes are answers whose form decides, not their code.
func shapes() []channeltest.Case {
	return []channeltest.Case{
		{
			Name: "429 with Retry-After", Status: 429, Header: http.Header{"Retry-After": {"7"}}, Body: `{"code":20429,"status":429}`,
			Want: channels.Result{Outcome: notify.Throttled, RetryAfter: 7 * time.Second, Code: "20429"},
		},
		{
			Name: "Retry-After wins over the delay that is known", Status: 400, Header: http.Header{"Retry-After": {"7"}}, Body: `{"code":21611}`,
			Want: channels.Result{Outcome: notify.Throttled, Scope: "sender", RetryAfter: 7 * time.Second},
		},
		{
			Name: "the newer shape of errors", Status: 404, Body: `{"code":20404,"message":"no","httpStatusCode":404,"userError":true,"params":{}}`,
			Want: channels.Result{Outcome: notify.AccountRejected, Code: "20404"},
		},
		{
			Name: "404 of something else than Twilio", Status: 404, Body: "<html>not here</html>",
			Want: channels.Result{Outcome: notify.AccountRejected, HTTPStatus: 404},
		},
		{
			Name: "400 without a body", Status: 400,
			Want: channels.Result{Outcome: notify.MessageRejected, HTTPStatus: 400},
		},
		{
			Name: "a code as long as a number", Status: 400, Body: `{"code":14155550100}`,
			Want: channels.Result{Outcome: notify.MessageRejected, Detail: "http status 400"},
		},
		{
			Name: "a redirect", Status: 301, Header: http.Header{"Location": {"https://api.twilio.com/"}},
			Want: channels.Result{Outcome: notify.ProviderUnavailable, HTTPStatus: 301},
		},
		{
			Name: "success without a sid", Status: 201, Body: `{"sid":"","status":"queued"}`,
			Want: channels.Result{Outcome: notify.Unknown, HTTPStatus: 201},
		},
		{
			Name: "success with a message service", Status: 201, Body: `{"sid":"` + messageSID + `","status":"accepted","error_code":null}`,
			Want: channels.Result{Outcome: notify.Accepted, Status: notify.Sent, MessageID: messageSID},
		},
		{
			Name: "an error's code in a success", Status: 200, Body: `{"code":20003,"status":200}`,
			Want: channels.Result{Outcome: notify.Unknown, HTTPStatus: 200},
		},
		{
			Name: "failed at once for no reason", Status: 201, Body: `{"sid":"` + messageSID + `","status":"failed","error_code":null}`,
			Want: channels.Result{Outcome: notify.MessageRejected, MessageID: messageSID, Detail: "message failed, and twilio does not say why"},
		},
	}
}
