package slack

import (
	"regexp"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// verdict is what one of Slack's error strings means.
type verdict struct {
	outcome notify.Outcome
	// detail tells an operator what to do; empty where the string says it.
	detail string
	// channel says that a throttle is the conversation's, not the method's.
	channel bool
	// workspace says that a throttle is the whole account's.
	workspace bool
	// quiet is how long to wait where the answer names no time.
	quiet time.Duration
	// dead says that the address will never work again.
	dead bool
}

const (
	hintInvite  = "invite the bot to the conversation, or lift its posting restriction"
	hintScope   = "the app needs the scope chat:write"
	hintPartial = "slack failed and may have posted the message"
)

// apiErrors are the error strings of chat.postMessage. Slack adds to them without
// notice; a string that is not here is taken to be about the message.
// https://docs.slack.dev/reference/methods/chat.postMessage
var apiErrors = map[string]verdict{
	"ratelimited":            {outcome: notify.Throttled},
	"rate_limited":           {outcome: notify.Throttled, channel: true},
	"message_limit_exceeded": {outcome: notify.Throttled, workspace: true, quiet: time.Hour},

	"service_unavailable": {outcome: notify.ProviderUnavailable},
	"request_timeout":     {outcome: notify.ProviderUnavailable},
	"team_added_to_org":   {outcome: notify.ProviderUnavailable, detail: "the workspace is being moved to an organization"},
	"org_login_required":  {outcome: notify.ProviderUnavailable, detail: "the workspace is being moved to an organization"},
	"fatal_error":         {outcome: notify.Unknown, detail: hintPartial},
	"internal_error":      {outcome: notify.Unknown, detail: hintPartial},

	"channel_not_found":           {outcome: notify.RecipientRejected},
	"is_archived":                 {outcome: notify.RecipientRejected},
	"user_not_found":              {outcome: notify.RecipientRejected},
	"messages_tab_disabled":       {outcome: notify.RecipientRejected},
	"duplicate_channel_not_found": {outcome: notify.RecipientRejected},
	"channel_type_not_supported":  {outcome: notify.RecipientRejected},
	"not_in_channel":              {outcome: notify.RecipientRejected, detail: hintInvite},
	"ekm_access_denied":           {outcome: notify.RecipientRejected, detail: "an administrator suspended posting there"},
	"cannot_reply_to_message":     {outcome: notify.RecipientRejected},
	"no_permission":               {outcome: notify.RecipientRejected, detail: hintInvite},
	"app_access_restricted":       {outcome: notify.RecipientRejected, detail: hintInvite},

	"invalid_auth":              {outcome: notify.AccountRejected},
	"not_authed":                {outcome: notify.AccountRejected},
	"account_inactive":          {outcome: notify.AccountRejected},
	"token_revoked":             {outcome: notify.AccountRejected},
	"token_expired":             {outcome: notify.AccountRejected},
	"missing_scope":             {outcome: notify.AccountRejected, detail: hintScope},
	"not_allowed_token_type":    {outcome: notify.AccountRejected, detail: "a bot token (xoxb) is needed"},
	"two_factor_setup_required": {outcome: notify.AccountRejected},
	"access_denied":             {outcome: notify.AccountRejected},
	"accesslimited":             {outcome: notify.AccountRejected},
	"enterprise_is_restricted":  {outcome: notify.AccountRejected},
	"team_not_found":            {outcome: notify.AccountRejected},
	"method_deprecated":         {outcome: notify.AccountRejected},
	"deprecated_endpoint":       {outcome: notify.AccountRejected},
	"unknown_method":            {outcome: notify.AccountRejected, detail: "base_url is not the Web API"},

	"no_text":                           {outcome: notify.MessageRejected},
	"msg_too_long":                      {outcome: notify.MessageRejected},
	"msg_blocks_too_long":               {outcome: notify.MessageRejected, detail: "all blocks together are too long; about 13,000 characters are the limit"},
	"too_many_attachments":              {outcome: notify.MessageRejected},
	"attachment_payload_limit_exceeded": {outcome: notify.MessageRejected},
	"metadata_too_large":                {outcome: notify.MessageRejected},
	"markdown_text_conflict":            {outcome: notify.MessageRejected},
}

// hookErrors are the texts of incoming webhooks, which answer in plain text. The
// address is the URL itself: where it is the account's own, what is wrong with it
// is the account's to repair.
// https://docs.slack.dev/messaging/sending-messages-using-incoming-webhooks
var hookErrors = map[string]verdict{
	"invalid_payload":      {outcome: notify.MessageRejected},
	"no_text":              {outcome: notify.MessageRejected},
	"too_many_attachments": {outcome: notify.MessageRejected},
	"missing_text_or_fallback_or_attachments": {outcome: notify.MessageRejected},
	"user_not_found":                    {outcome: notify.RecipientRejected},
	"action_prohibited":                 {outcome: notify.RecipientRejected, detail: "an administrator restricted the webhook"},
	"invalid_token":                     {outcome: notify.RecipientRejected, dead: true},
	"posting_to_general_channel_denied": {outcome: notify.RecipientRejected},
	"channel_not_found":                 {outcome: notify.RecipientRejected},
	"channel_is_archived":               {outcome: notify.RecipientRejected},
	"no_service":                        {outcome: notify.RecipientRejected, dead: true},
	"no_active_hooks":                   {outcome: notify.RecipientRejected, dead: true},
	"service_unavailable":               {outcome: notify.ProviderUnavailable},
	"rollup_error":                      {outcome: notify.Unknown, detail: hintPartial},
	"ratelimited":                       {outcome: notify.Throttled, channel: true},
	"rate_limited":                      {outcome: notify.Throttled, channel: true},
}

// families are the beginnings of error strings that come in many variants.
var families = []struct {
	prefix string
	verdict
}{
	{"restricted_action", verdict{outcome: notify.RecipientRejected, detail: hintInvite}},
	{"invalid_", verdict{outcome: notify.MessageRejected}},
}

// lookup returns what the error string s means by table.
func lookup(table map[string]verdict, s string) (verdict, bool) {
	if v, ok := table[s]; ok {
		return v, true
	}
	for _, f := range families {
		if strings.HasPrefix(s, f.prefix) {
			return f.verdict, true
		}
	}
	return verdict{}, false
}

// codePattern is what Slack's error strings look like. Anything else that stands
// in their place may be a page, an address or a token, and is not kept.
var codePattern = regexp.MustCompile(`^[a-z]+(_[a-z]+)*$`)

func code(s string) string {
	if len(s) > 64 || !codePattern.MatchString(s) {
		return ""
	}
	return s
}
