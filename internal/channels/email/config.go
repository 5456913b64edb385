// Package email sends notifications by SMTP (RFC 5321), to a relay or a
// submission server.
package email

import (
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// The values of the setting tls.
const (
	tlsStartTLS      = "starttls"
	tlsImplicit      = "implicit"
	tlsOpportunistic = "opportunistic"
	tlsNone          = "none"
)

const (
	defaultConnections    = 16
	defaultIdle           = 30 * time.Second
	defaultAttachmentSize = 7 << 20
)

// Config configures an account that sends through one SMTP server.
type Config struct {
	// Host is the server's name or address. Required.
	Host string `yaml:"host"`
	// Port defaults to 465 for implicit TLS, 25 for none, else 587.
	Port int `yaml:"port"`
	// TLS is starttls (the default: mail is sent only after STARTTLS), implicit
	// (TLS from the first byte), opportunistic (STARTTLS where it is offered) or
	// none. The server's certificate is verified in every case. None is for a
	// host on the loopback, or with allow_plaintext.
	TLS string `yaml:"tls"`
	// AllowPlaintext permits tls: none to a host beyond the loopback, and
	// passwords in clear where there is no TLS. Default false.
	AllowPlaintext bool `yaml:"allow_plaintext"`
	// CAFile is a PEM file of the authorities to trust; default the system's.
	CAFile string `yaml:"ca_file"`
	// ServerName is the name that the certificate must hold; default host.
	ServerName string `yaml:"server_name"`
	// Insecure accepts any certificate. Only for a host on the loopback.
	Insecure bool `yaml:"insecure"`

	// Username and Password authenticate; without them mail is sent without AUTH.
	Username string       `yaml:"username"`
	Password secret.Value `yaml:"password"`
	// Auth is the SASL mechanism: auto (the default: the best that the server
	// offers, of the following but the last), scram-sha-256, scram-sha-1, plain,
	// login, cram-md5 or xoauth2 (the password is the access token).
	Auth string `yaml:"auth"`
	// Helo is the name given in EHLO; default the machine's name.
	Helo string `yaml:"helo"`

	// From is the sender. Required.
	From Address `yaml:"from"`
	// AllowFromOverride lets content.email.from replace From. Default false.
	AllowFromOverride bool `yaml:"allow_from_override"`
	// ReplyTo is where answers go unless the content says otherwise; default From.
	ReplyTo Address `yaml:"reply_to"`
	// ReturnPath is the envelope's sender, where bounces go; default From.
	ReturnPath string `yaml:"return_path"`
	// BounceSecret lets bounces and complaints in at /v1/receipts/<account>/dsn: the
	// mailbox of ReturnPath is piped there, with this as a Bearer token or as the
	// password of Basic authentication. 16 to 256 characters.
	BounceSecret secret.Value `yaml:"bounce_secret"`
	// SNSTopic is the ARN of the Amazon SNS topic that Amazon SES tells of bounces,
	// complaints and deliveries, with /v1/receipts/<account>/ses subscribed to it.
	SNSTopic string `yaml:"sns_topic"`
	// DKIM signs every message (RFC 6376). Optional: many servers sign themselves.
	DKIM DKIM `yaml:"dkim"`

	// MaxAttachmentBytes bounds all attachments of one message together, before
	// their encoding adds a third; default 7 MiB.
	MaxAttachmentBytes int64 `yaml:"max_attachment_bytes"`
	// MaxConnections bounds the connections to the server from this process, and so
	// the calls under way at once. Default 16.
	MaxConnections int `yaml:"max_connections"`
	// IdleTimeout is how long a connection is kept for the next message; default
	// 30 s. A negative one means a connection for each message.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
}

// Address is a mailbox in the configuration.
type Address struct {
	Address string `yaml:"address"`
	Name    string `yaml:"name"`
}

// DKIM configures the signature. All three settings are needed, or none.
type DKIM struct {
	// Domain is the signing domain (d=).
	Domain string `yaml:"domain"`
	// Selector names the key in DNS (s=).
	Selector string `yaml:"selector"`
	// PrivateKey is an RSA key of at least 1024 bits or an Ed25519 key, in PEM
	// (PKCS #1 or PKCS #8).
	PrivateKey secret.Value `yaml:"private_key"`
}

// New returns the provider of one account. The error names every setting that is
// wrong.
func New(account string, cfg Config) (*Provider, error) {
	cfg = cfg.withDefaults()
	p := &Provider{
		info: channels.Info{
			Account: account, Channel: notify.Email, Provider: "smtp", MaxObservable: notify.Sent,
		},
		cfg: cfg,
		now: time.Now, bounceSecret: cfg.BounceSecret.Reveal,
	}
	errs := cfg.check()
	if cfg.SNSTopic != "" {
		if p.sns = newSNS(cfg.SNSTopic, nil); p.sns == nil {
			errs = append(errs, errors.New("sns_topic: must be the ARN of a topic, such as arn:aws:sns:eu-west-1:123456789012:bounces"))
		}
		p.info.MaxObservable = notify.Delivered
	}
	p.info.Receipts = cfg.SNSTopic != "" || !cfg.BounceSecret.Empty()
	var err error
	if p.tls, err = cfg.tlsConfig(); err != nil {
		errs = append(errs, err)
	}
	if p.from, err = parseMailbox(cfg.From.Address, cfg.From.Name); err != nil {
		errs = append(errs, fmt.Errorf("from: %w", err))
	}
	if cfg.ReturnPath != "" {
		if p.returnPath, err = parseMailbox(cfg.ReturnPath, ""); err != nil {
			errs = append(errs, fmt.Errorf("return_path: %w", err))
		}
	}
	if cfg.ReplyTo != (Address{}) {
		if p.replyTo, err = parseMailbox(cfg.ReplyTo.Address, cfg.ReplyTo.Name); err != nil {
			errs = append(errs, fmt.Errorf("reply_to: %w", err))
		}
	}
	if p.signer, err = newSigner(cfg.DKIM); err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("smtp account %s: %w", account, errors.Join(errs...))
	}
	p.pool = newPool(cfg.MaxConnections, cfg.IdleTimeout)
	return p, nil
}

func (c Config) withDefaults() Config {
	if c.TLS == "" {
		c.TLS = tlsStartTLS
	}
	if c.Port == 0 {
		switch c.TLS {
		case tlsImplicit:
			c.Port = 465
		case tlsNone:
			c.Port = 25
		default:
			c.Port = 587
		}
	}
	if c.ServerName == "" {
		c.ServerName = c.Host
	}
	if c.Auth == "" {
		c.Auth = authAuto
	}
	if c.Helo == "" {
		c.Helo = machineName()
	}
	if c.MaxAttachmentBytes == 0 {
		c.MaxAttachmentBytes = defaultAttachmentSize
	}
	if c.MaxConnections == 0 {
		c.MaxConnections = defaultConnections
	}
	if c.IdleTimeout == 0 {
		c.IdleTimeout = defaultIdle
	}
	return c
}

// machineName is the name for EHLO, which must be a domain name.
func machineName() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	name, err = asciiDomain(name)
	if err != nil {
		return "localhost"
	}
	return name
}

// check reports what is wrong with the plain settings. No value is echoed that
// could be a secret in the wrong place.
func (c Config) check() []error {
	var errs []error
	bad := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New(text))
		}
	}
	bad(validHost(c.Host), "host: must be a name or an address, without a port")
	bad(c.Port > 0 && c.Port < 1<<16, "port: must be between 1 and 65535")
	switch c.TLS {
	case tlsStartTLS, tlsImplicit, tlsOpportunistic:
	case tlsNone:
		bad(c.AllowPlaintext || loopback(c.Host), "tls: none needs a host on the loopback, or allow_plaintext")
	default:
		bad(false, "tls: must be starttls, implicit, opportunistic or none")
	}
	bad(!c.Insecure || loopback(c.Host), "insecure: is for a host on the loopback only; use ca_file")
	_, known := mechanisms[c.Auth]
	bad(known || c.Auth == authAuto, "auth: must be auto, scram-sha-256, scram-sha-1, plain, login, cram-md5 or xoauth2")
	bad((c.Username == "") == c.Password.Empty(), "username: must be given with password, or neither")
	bad(c.Auth == authAuto || c.Username != "", "auth: needs username and password")
	n := len(c.BounceSecret.Reveal())
	bad(c.BounceSecret.Empty() || n >= 16 && n <= 256, "bounce_secret: must be 16 to 256 characters that nobody guesses")
	bad(validHost(strings.TrimPrefix(strings.Trim(c.Helo, "[]"), "IPv6:")), "helo: must be a domain name, or an address in brackets")
	bad(c.MaxAttachmentBytes > 0, "max_attachment_bytes: must be positive")
	bad(c.MaxConnections > 0, "max_connections: must be positive")
	return errs
}

// hostPattern is wider than DNS: names inside a container network have underscores.
var hostPattern = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?\.?$`)

// validHost reports whether host is a host's name or address.
func validHost(host string) bool { return hostPattern.MatchString(host) || net.ParseIP(host) != nil }

// loopback reports whether host can only be this machine.
func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
