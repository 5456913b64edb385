package cli

import (
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/receipts"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// reportTo makes a sandbox report to the accounts of a configuration that
// [config.Example] wrote for it, at a service with this URL. Twilio's status
// callbacks need nothing: their address comes with each message.
func reportTo(providers *sandbox.Server, service string) {
	at := func(account, path string) string {
		return strings.TrimRight(service, "/") + receipts.Path(account) + path
	}
	providers.SetMetaWebhook(sandbox.MetaWebhook{URL: at("meta-main", "webhook"), AppSecret: config.SandboxAppSecret})
	providers.SetMailReports(sandbox.MailReports{URL: at("smtp-main", "dsn"), Secret: config.SandboxBounceSecret})
	providers.SetTwilioInbound(sandbox.TwilioInbound{
		SMS: at("twilio-main", "inbound"), WhatsApp: at("twilio-whatsapp", "inbound"),
		AccountSID: config.SandboxTwilioSID, AuthToken: config.SandboxTwilioToken,
	})
}
