package sandbox

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"time"
)

// Limits and defaults.
const (
	// DefaultCapacity is how many messages are remembered.
	DefaultCapacity = 100_000
	// maxStored bounds the bytes of all remembered messages together.
	maxStored = 256 << 20
	// maxBody bounds an HTTP request; more than any provider takes.
	maxBody = 4 << 20
	// maxMail bounds one mail, as large providers do.
	maxMail = 25 << 20
)

// Config says where the sandbox listens and what it knows of its callers. The
// zero value serves on two free loopback ports and takes any credentials.
type Config struct {
	// HTTPAddr and SMTPAddr are host:port; default 127.0.0.1:0, a free port.
	HTTPAddr string
	SMTPAddr string
	// PublicURL is how others reach HTTPAddr, for the URLs the sandbox hands out;
	// default is the address it listens on.
	PublicURL string
	// TwilioTokens are auth tokens by account SID. A listed account must
	// authenticate with it; it signs that account's callbacks. For others the
	// password of the request, where its user is the account SID, signs.
	TwilioTokens map[string]string
	// TwilioInbound says where messages go that come in at Twilio.
	TwilioInbound TwilioInbound
	// MailReports says where bounces and complaints about mail go; without a URL none
	// are made.
	MailReports MailReports
	// Meta says where Meta's status webhooks go; without a URL none are sent.
	Meta MetaWebhook
	// Receipts is how callbacks behave until changed; default [DefaultReceipts].
	Receipts *Receipts
	// Capacity is how many messages are remembered, the newest; default
	// [DefaultCapacity].
	Capacity int
	// STARTTLS offers TLS on the SMTP port with a certificate made at start, see
	// [Server.SMTPCertificate].
	STARTTLS bool
	// Logger gets what fails inside the sandbox; default is silence.
	Logger *slog.Logger
	// Now is the clock of what is recorded and signed; default [time.Now].
	Now func() time.Time
}

// MetaWebhook is the subscription of a Meta app to status webhooks.
type MetaWebhook struct {
	URL string
	// AppSecret signs X-Hub-Signature-256.
	AppSecret string
}

func (c Config) withDefaults() Config {
	if c.HTTPAddr == "" {
		c.HTTPAddr = "127.0.0.1:0"
	}
	if c.SMTPAddr == "" {
		c.SMTPAddr = "127.0.0.1:0"
	}
	if c.Capacity <= 0 {
		c.Capacity = DefaultCapacity
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Receipts == nil {
		c.Receipts = new(DefaultReceipts())
	}
	return c
}

func (c Config) validate() error {
	if err := c.Receipts.validate(); err != nil {
		return fmt.Errorf("receipts: %w", err)
	}
	for name, raw := range map[string]string{
		"public url": c.PublicURL, "meta webhook url": c.Meta.URL,
		"mail reports url": c.MailReports.URL,
		"twilio sms url":   c.TwilioInbound.SMS, "twilio whatsapp url": c.TwilioInbound.WhatsApp,
	} {
		if raw != "" && !absoluteURL(raw) {
			return fmt.Errorf("%s must be an absolute http or https url", name)
		}
	}
	return nil
}

func absoluteURL(raw string) bool {
	u, err := url.Parse(raw)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// reachable turns the address of a listener into one that can be dialed: a
// wildcard address becomes loopback.
func reachable(addr net.Addr) string {
	host, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String()
	}
	if ip := net.ParseIP(host); host == "" || (ip != nil && ip.IsUnspecified()) {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

func publicURL(configured string, addr net.Addr) string {
	if configured != "" {
		return strings.TrimRight(configured, "/")
	}
	return "http://" + reachable(addr)
}
