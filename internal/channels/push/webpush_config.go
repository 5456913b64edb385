package push

import (
	"crypto/ecdh"
	"encoding/base64"
	"net"
	"net/mail"
	"net/url"
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// WebPushConfig configures an account of Web Push (RFC 8030) with VAPID
// (RFC 8292). The push service is the one that the subscription names.
type WebPushConfig struct {
	// VAPIDPublicKey is what browsers subscribe with: an uncompressed P-256 point
	// in base64url. Required.
	VAPIDPublicKey string `yaml:"vapid_public_key"`
	// VAPIDPrivateKey is its other half: 32 bytes in base64url. Required.
	VAPIDPrivateKey secret.Value `yaml:"vapid_private_key"`
	// Subject is whom a push service may complain to: an email address, with or
	// without mailto:, or an https URL. Apple refuses one of no public domain.
	// Required.
	Subject string `yaml:"subject"`
	// BaseURL is an origin, such as http://127.0.0.1:8090, that gets all requests
	// in place of the subscriptions' own; path and query stay. It is for
	// development. Default none.
	BaseURL string `yaml:"base_url"`
	// AllowPrivate lists host:port pairs that may be called although they are
	// private or no https, for development. Default none: endpoints are named by
	// users, so only public addresses on port 443 are called.
	AllowPrivate []string `yaml:"allow_private"`
}

// webPushSettings is a configuration that has been checked.
type webPushSettings struct {
	publicKey, privateKey string // base64url without padding
	subscriber            string // as webpush-go takes it
	base                  *url.URL
	allow                 hostPorts
}

func (c WebPushConfig) resolve() (webPushSettings, error) {
	var p problems
	s := webPushSettings{allow: hostPorts{}}
	for _, hp := range c.AllowPrivate {
		if host, port, err := net.SplitHostPort(hp); err != nil || host == "" || port == "" {
			p.add("allow_private", "must list host:port pairs")
			continue
		}
		s.allow.add(hp)
	}
	if base := p.baseURL(c.BaseURL, ""); base != "" {
		s.base, _ = url.Parse(base) // parsed before
		if s.base.Path != "" {
			p.add("base_url", "must have no path")
		}
		s.allow.add(hostPort(s.base))
	}
	s.subscriber = c.subscriber(&p)
	s.publicKey, s.privateKey = c.keys(&p)
	return s, p.err()
}

// subscriber returns the subject for webpush-go, which puts "mailto:" before
// whatever is no https URL, a second time where it is there already.
func (c WebPushConfig) subscriber(p *problems) string {
	s := strings.TrimPrefix(c.Subject, "mailto:")
	p.required("subject", s)
	if addr, err := mail.ParseAddress(s); s == "" || err == nil && addr.Address == s || isHTTPS(c.Subject) {
		return s
	}
	p.add("subject", "must be an email address or an https URL")
	return ""
}

// keys returns both keys and checks that they belong together; if they do not,
// every push service refuses every message.
func (c WebPushConfig) keys(p *problems) (public, private string) {
	p.required("vapid_public_key", c.VAPIDPublicKey)
	p.required("vapid_private_key", c.VAPIDPrivateKey.Reveal())
	point, err := decodeKey(c.VAPIDPublicKey)
	if _, bad := ecdh.P256().NewPublicKey(point); c.VAPIDPublicKey != "" && (err != nil || bad != nil) {
		p.add("vapid_public_key", "must be an uncompressed P-256 point in base64url")
	}
	scalar, err := decodeKey(c.VAPIDPrivateKey.Reveal())
	key, bad := ecdh.P256().NewPrivateKey(scalar)
	switch {
	case c.VAPIDPrivateKey.Empty():
	case err != nil || bad != nil:
		p.add("vapid_private_key", "must be a P-256 key: 32 bytes in base64url")
	case c.VAPIDPublicKey != "" && string(key.PublicKey().Bytes()) != string(point):
		p.add("vapid_public_key", "is not the public half of vapid_private_key")
	}
	return base64.RawURLEncoding.EncodeToString(point), base64.RawURLEncoding.EncodeToString(scalar)
}

// decodeKey reads base64 in the alphabet of RFC 4648, section 5 or 4, padded or
// not: subscriptions and key generators do not agree.
func decodeKey(s string) ([]byte, error) {
	s = strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(s, "="))
	return base64.RawURLEncoding.DecodeString(s)
}
