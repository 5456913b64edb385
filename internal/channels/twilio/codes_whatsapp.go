package twilio

import (
	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// whatsappCodes are those of channels other than SMS.
var whatsappCodes = map[int]channels.Result{
	63001: {Outcome: notify.AccountRejected, Detail: "authentication with whatsapp failed"},
	63002: {Outcome: notify.AccountRejected, Scope: sender, Detail: "sender not found at whatsapp"},
	63003: {Outcome: notify.RecipientRejected, Detail: "recipient is not on whatsapp"},
	63005: {Outcome: notify.MessageRejected, Detail: "whatsapp did not accept the content"},
	63006: {Outcome: notify.MessageRejected, Detail: "message could not be formatted for whatsapp"},
	63007: {Outcome: notify.AccountRejected, Scope: sender, Detail: "no whatsapp channel with this sender"},
	63008: {Outcome: notify.AccountRejected, Scope: sender, Detail: "whatsapp channel is not configured"},
	63009: {Outcome: notify.ProviderUnavailable, Detail: "whatsapp answered with a server error"},
	63010: {Outcome: notify.ProviderUnavailable, Detail: "internal error at twilio"},
	63012: {Outcome: notify.ProviderUnavailable, Detail: "internal error at whatsapp"},
	63013: {Outcome: notify.MessageRejected, Detail: "violates whatsapp's policy"},
	// A recipient may lift a block, and nothing reports it.
	63014: {Outcome: notify.Suppressed, Suppress: true, SuppressFor: userBlock, Detail: "blocked by the recipient"},
	63015: {Outcome: notify.AccountRejected, Scope: recipient, Detail: "recipient has not joined the sandbox"},
	63016: {Outcome: notify.MessageRejected, Detail: "outside the 24 hour window; a template is needed"},
	63017: {Outcome: notify.Throttled, Detail: "account exceeds its rate"},
	63018: {Outcome: notify.Throttled, Scope: sender, RetryAfter: dailyLimit, Detail: "sender reached its limit"},
	63019: {Outcome: notify.MessageRejected, Detail: "media could not be downloaded"},
	63020: {Outcome: notify.AccountRejected, Scope: sender, Detail: "business manager has not accepted twilio"},
	63021: {Outcome: notify.MessageRejected, Detail: "content is not valid"},
	63022: {Outcome: notify.AccountRejected, Scope: sender, Detail: "certificate of the sender is not valid"},
	63023: {
		Outcome: notify.RecipientUnavailable, Scope: recipient, RetryAfter: unreachable,
		Detail: "generic error at whatsapp",
	},
	63024: {Outcome: notify.RecipientRejected, Detail: "recipient is not valid"},
	63026: {Outcome: notify.MessageRejected, Detail: "flagged as spam"},
	63027: {Outcome: notify.MessageRejected, Detail: "template has no such language"},
	63028: {Outcome: notify.MessageRejected, Detail: "number of template variables differs"},
	63029: {Outcome: notify.MessageRejected, Detail: "template could not be downloaded"},
	63030: {Outcome: notify.MessageRejected, Detail: "parameter is not supported by whatsapp"},
	63032: {Outcome: notify.RecipientRejected, Detail: "recipient is in an experiment of whatsapp"},
	63033: {Outcome: notify.Suppressed, Suppress: true, SuppressFor: userBlock, Detail: "blocked by the recipient"},
	63034: {Outcome: notify.MessageRejected, Detail: "media is larger than 5 MB"},
	63038: {Outcome: notify.Throttled, RetryAfter: dailyLimit, Detail: "account reached its daily cap"},
	63040: {Outcome: notify.MessageRejected, Detail: "template rejected"},
	63041: {Outcome: notify.MessageRejected, Detail: "template paused"},
	63042: {Outcome: notify.MessageRejected, Detail: "template disabled"},
	63051: {Outcome: notify.AccountRejected, Detail: "whatsapp business account locked"},
}
