package twilio

import (
	"strconv"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// FromErrorCode returns what Twilio's error code says about a message to t on
// channel c, and false for a code that is not known. Codes of refused requests
// and of messages that failed later are one set: the vendor moves them from one
// to the other, and splits codes into finer ones, over time.
//
// Where Twilio names no delay of its own, RetryAfter is how long such a limit is
// known to last.
//
// Sources: twilio.com/docs/api/errors and the pages below it.
func FromErrorCode(code int, c notify.Channel, t notify.Target) (channels.Result, bool) {
	r, ok := known(code)
	r.Scope = resolve(r.Scope, c, t)
	return r, ok
}

// known is [FromErrorCode] with the scope as the tables have it.
func known(code int) (channels.Result, bool) {
	r, ok := messagingCodes[code]
	if !ok {
		r, ok = whatsappCodes[code]
	}
	if !ok {
		return channels.Result{}, false
	}
	r.Code = strconv.Itoa(code)
	return r, true
}

// Delays that Twilio's pages give in words.
const (
	queueDelay   = 5 * time.Minute  // a sender's queue of ten hours is full
	minuteLimit  = time.Minute      // a limit on messages a minute
	dailyLimit   = time.Hour        // a cap of a day, asked again each hour
	unreachable  = 15 * time.Minute // a handset that is off or out of coverage
	pumpingBlock = 30 * time.Minute // a number blocked for SMS pumping
	userBlock    = 30 * 24 * time.Hour
)

// messagingCodes are those of the REST API and of SMS.
var messagingCodes = map[int]channels.Result{
	20003: {Outcome: notify.AccountRejected, Detail: "authentication failed, or account suspended or closed"},
	20404: {Outcome: notify.AccountRejected, Detail: "account or resource not found"},
	// The request was not processed, Twilio says, and is safe to repeat.
	20429: {Outcome: notify.Throttled, Detail: "too many concurrent requests"},
	20500: {Outcome: notify.Unknown, Detail: "internal error at twilio"},
	20503: {Outcome: notify.ProviderUnavailable, Detail: "twilio unavailable"},

	21211: {Outcome: notify.RecipientRejected, Suppress: true, Detail: "recipient is not a valid number"},
	21212: {Outcome: notify.AccountRejected, Scope: sender, Detail: "sender is not valid"},
	21214: {Outcome: notify.RecipientRejected, Detail: "recipient cannot be reached"},
	21408: {Outcome: notify.AccountRejected, Scope: region, Detail: "messaging to this region is not enabled"},
	21601: {Outcome: notify.AccountRejected, Scope: region, Detail: "sender cannot send messages"},
	21602: {Outcome: notify.MessageRejected, Detail: "body is missing"},
	21603: {Outcome: notify.MessageRejected, Detail: "sender is missing"},
	21604: {Outcome: notify.MessageRejected, Detail: "recipient is missing"},
	21606: {Outcome: notify.AccountRejected, Scope: region, Detail: "sender cannot send to this destination"},
	21608: {Outcome: notify.AccountRejected, Scope: recipient, Detail: "account may write to verified numbers only"},
	21609: {Outcome: notify.AccountRejected, Detail: "status callback is not valid"},
	21610: {Outcome: notify.Suppressed, Suppress: true, Detail: "recipient opted out"},
	21611: {Outcome: notify.Throttled, Scope: sender, RetryAfter: queueDelay, Detail: "queue of the sender is full"},
	21612: {Outcome: notify.RecipientRejected, Detail: "sender cannot reach this recipient"},
	21614: {Outcome: notify.RecipientRejected, Suppress: true, Detail: "recipient is not a mobile number"},
	21617: {Outcome: notify.MessageRejected, Detail: "body is longer than 1600 characters"},
	21618: {Outcome: notify.MessageRejected, Detail: "body cannot be sent"},
	21620: {Outcome: notify.MessageRejected, Detail: "media url is not valid"},
	21635: {Outcome: notify.RecipientRejected, Suppress: true, Detail: "recipient is a landline"},
	21654: {Outcome: notify.MessageRejected, Detail: "content sid is missing"},
	21655: {Outcome: notify.MessageRejected, Detail: "content sid is not valid"},
	21656: {Outcome: notify.MessageRejected, Detail: "content variables are not valid"},
	21658: {Outcome: notify.MessageRejected, Detail: "a parameter is too long"},
	21703: {Outcome: notify.AccountRejected, Scope: sender, Detail: "messaging service has no capable sender"},
	21704: {Outcome: notify.AccountRejected, Scope: sender, Detail: "messaging service has no sender"},
	21705: {Outcome: notify.AccountRejected, Scope: sender, Detail: "messaging service is not valid"},

	30001: {Outcome: notify.Throttled, Scope: sender, RetryAfter: queueDelay, Detail: "queue of the sender is full"},
	30002: {Outcome: notify.AccountRejected, Detail: "account suspended"},
	30003: {Outcome: notify.RecipientUnavailable, Scope: recipient, RetryAfter: unreachable, Detail: "handset unreachable"},
	// Registers of do-not-disturb and toll-free opt-outs, but also no signal, so
	// that the number is not given up for good.
	30004: {Outcome: notify.RecipientRejected, Detail: "message blocked for this recipient"},
	// Also seen for handsets that are switched off.
	30005: {Outcome: notify.RecipientUnavailable, Scope: recipient, RetryAfter: unreachable, Detail: "unknown handset"},
	30006: {Outcome: notify.RecipientRejected, Detail: "landline or unreachable carrier"},
	30007: {Outcome: notify.MessageRejected, Detail: "filtered as spam or against a carrier's rules"},
	30008: {Outcome: notify.RecipientUnavailable, Scope: recipient, RetryAfter: unreachable, Detail: "unknown error at the carrier"},
	30010: {Outcome: notify.MessageRejected, Detail: "price is above the cap"},
	30011: {Outcome: notify.MessageRejected, Detail: "mms not supported by the carrier"},
	30012: {Outcome: notify.MessageRejected, Detail: "time to live is too short"},
	30017: {Outcome: notify.ProviderUnavailable, Detail: "carrier congested"},
	30018: {Outcome: notify.AccountRejected, Scope: region, Detail: "destination asks for a registered sender"},
	30019: {Outcome: notify.MessageRejected, Detail: "message is too large for the carrier"},
	30022: {Outcome: notify.Throttled, Scope: sender, RetryAfter: minuteLimit, Detail: "campaign exceeds its rate"},
	30023: {Outcome: notify.Throttled, Scope: sender, RetryAfter: dailyLimit, Detail: "campaign reached its daily cap"},
	30024: {Outcome: notify.AccountRejected, Scope: sender, Detail: "sender is not provisioned at the carrier"},
	30027: {Outcome: notify.Throttled, Scope: sender, RetryAfter: dailyLimit, Detail: "brand reached its daily cap at the carrier"},
	30032: {Outcome: notify.AccountRejected, Scope: sender, Detail: "toll-free number is not verified"},
	30033: {Outcome: notify.AccountRejected, Scope: sender, Detail: "campaign suspended"},
	30034: {Outcome: notify.AccountRejected, Scope: sender, Detail: "number is not registered for 10dlc"},
	30035: {Outcome: notify.AccountRejected, Scope: sender, Detail: "number is still being registered"},
	30036: {Outcome: notify.Expired, Detail: "validity period ended in the queue"},
	30045: {Outcome: notify.MessageRejected, Detail: "validity period is out of range"},
	// Twilio itself does not repeat it, for fear of a duplicate.
	30410: {Outcome: notify.Unknown, Detail: "carrier timed out"},
	30450: {Outcome: notify.Suppressed, Suppress: true, SuppressFor: pumpingBlock, Detail: "number blocked for sms pumping"},
}
