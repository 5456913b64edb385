package whatsapp

import (
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// What a limit of Meta's applies to below the account: the business number, or
// the pair of it and the recipient, which becomes a [channels.RecipientScope].
// Limits of the app and of the WhatsApp Business Account are the account's.
const (
	metaSender = "sender"
	metaPair   = "pair"
)

// Codes whose meaning depends on more than the code.
const (
	invalidParameter = 100
	noSuchObject     = 33 // also a subcode of 100
	invalidValue     = 131009
)

// Delays, where Meta names none in its answers.
const (
	pairPace     = 6 * time.Second // a pair may exchange about one message each
	callPace     = time.Minute     // calls are counted over an hour
	restriction  = time.Hour       // of a number; asked again each hour
	marketingCap = 24 * time.Hour  // a recipient's; repeating sooner is answered alike
)

// metaCodes is what the Cloud API's codes mean.
//
// Source: developers.facebook.com, WhatsApp > Support > Error codes.
var metaCodes = map[int]channels.Result{
	// Authorization and integrity.
	0:            {Outcome: notify.AccountRejected, Detail: "access token is not valid"},
	3:            {Outcome: notify.AccountRejected, Detail: "capability or permission missing"},
	10:           {Outcome: notify.AccountRejected, Detail: "permission missing"},
	190:          {Outcome: notify.AccountRejected, Detail: "access token expired"},
	368:          {Outcome: notify.AccountRejected, Detail: "account blocked for violations of policy"},
	noSuchObject: {Outcome: notify.AccountRejected, Scope: metaSender, Detail: "number was deleted"},
	130497:       {Outcome: notify.AccountRejected, Scope: metaPair, Detail: "account may not write to this country"},
	131005:       {Outcome: notify.AccountRejected, Detail: "access denied"},
	131030:       {Outcome: notify.AccountRejected, Scope: metaPair, Detail: "recipient is not on the test number's list"},
	131031:       {Outcome: notify.AccountRejected, Detail: "account locked"},
	131037:       {Outcome: notify.AccountRejected, Scope: metaSender, Detail: "display name is not approved"},
	131042:       {Outcome: notify.AccountRejected, Detail: "payment method is missing or failed"},
	131045:       {Outcome: notify.AccountRejected, Scope: metaSender, Detail: "number is not registered"},
	133010:       {Outcome: notify.AccountRejected, Scope: metaSender, Detail: "number is not registered"},

	// Throttling.
	4:      {Outcome: notify.Throttled, RetryAfter: callPace, Detail: "app reached its call limit"},
	17:     {Outcome: notify.Throttled, RetryAfter: callPace, Detail: "token reached its call limit"},
	613:    {Outcome: notify.Throttled, RetryAfter: callPace, Detail: "call limit reached"},
	80007:  {Outcome: notify.Throttled, RetryAfter: callPace, Detail: "business account reached its call limit"},
	130429: {Outcome: notify.Throttled, Scope: metaSender, Detail: "number reached its throughput"},
	131048: {Outcome: notify.Throttled, Scope: metaSender, RetryAfter: restriction, Detail: "number restricted for spam"},
	131056: {Outcome: notify.Throttled, Scope: metaPair, RetryAfter: pairPace, Detail: "too many messages to this recipient"},
	133016: {Outcome: notify.Throttled, RetryAfter: restriction, Detail: "number was registered too often"},

	// Meta's own failures, told by Meta itself and not by a proxy before it.
	1:      {Outcome: notify.ProviderUnavailable, Detail: "unknown error at meta"},
	2:      {Outcome: notify.ProviderUnavailable, Detail: "service down or overloaded"},
	131000: {Outcome: notify.ProviderUnavailable, Detail: "something went wrong at meta"},
	131016: {Outcome: notify.ProviderUnavailable, Detail: "service unavailable"},
	131057: {Outcome: notify.ProviderUnavailable, Detail: "business account in maintenance"},
	133004: {Outcome: notify.ProviderUnavailable, Detail: "server unavailable"},

	// The recipient.
	130472: {Outcome: notify.RecipientRejected, Detail: "recipient is in an experiment of whatsapp"},
	131026: {Outcome: notify.RecipientRejected, Detail: "recipient cannot get whatsapp messages"},
	131049: {
		Outcome: notify.RecipientUnavailable, Scope: metaPair, RetryAfter: marketingCap,
		Detail: "recipient got enough marketing messages",
	},
	// Of marketing only, so that the address stays good for other messages.
	131050: {Outcome: notify.Suppressed, Detail: "recipient stopped marketing messages"},

	// The message.
	invalidParameter: {Outcome: notify.MessageRejected, Detail: "a parameter is not valid"},
	131008:           {Outcome: notify.MessageRejected, Detail: "a parameter is missing"},
	invalidValue:     {Outcome: notify.MessageRejected, Detail: "a parameter's value is not valid"},
	131021:           {Outcome: notify.MessageRejected, Detail: "recipient is the sender"},
	131047:           {Outcome: notify.MessageRejected, Detail: "outside the 24 hour window; a template is needed"},
	131051:           {Outcome: notify.MessageRejected, Detail: "message type is not supported"},
	131052:           {Outcome: notify.MessageRejected, Detail: "media could not be downloaded"},
	131053:           {Outcome: notify.MessageRejected, Detail: "media could not be uploaded"},
	132000:           {Outcome: notify.MessageRejected, Detail: "number of template variables differs"},
	132001:           {Outcome: notify.MessageRejected, Detail: "template does not exist in this language"},
	132005:           {Outcome: notify.MessageRejected, Detail: "template is too long with its variables"},
	132007:           {Outcome: notify.MessageRejected, Detail: "template violates a policy"},
	132012:           {Outcome: notify.MessageRejected, Detail: "a template variable has another format"},
	132015:           {Outcome: notify.MessageRejected, Detail: "template paused for low quality"},
	132016:           {Outcome: notify.MessageRejected, Detail: "template disabled for low quality"},
}
