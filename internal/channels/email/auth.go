package email

import (
	"slices"
	"strings"

	"github.com/wneessen/go-mail/smtp"
)

const authAuto = "auto"

// mechanism is one way to authenticate.
type mechanism struct {
	sasl string // its name in EHLO
	// clear says that the server is given the password itself.
	clear bool
	make  func(user, password, host string) smtp.Auth
}

// mechanisms are those that the setting auth can name.
var mechanisms = map[string]mechanism{
	"scram-sha-256": {"SCRAM-SHA-256", false, func(u, p, _ string) smtp.Auth { return smtp.ScramSHA256Auth(u, p) }},
	"scram-sha-1":   {"SCRAM-SHA-1", false, func(u, p, _ string) smtp.Auth { return smtp.ScramSHA1Auth(u, p) }},
	"plain":         {"PLAIN", true, func(u, p, host string) smtp.Auth { return smtp.PlainAuth("", u, p, host, true) }},
	"login":         {"LOGIN", true, func(u, p, host string) smtp.Auth { return smtp.LoginAuth(u, p, host, true) }},
	"cram-md5":      {"CRAM-MD5", false, func(u, p, _ string) smtp.Auth { return smtp.CRAMMD5Auth(u, p) }},
	"xoauth2":       {"XOAUTH2", true, func(u, p, _ string) smtp.Auth { return smtp.XOAuth2Auth(u, p) }},
}

// preferred is what auto tries, best first. PLAIN under TLS stands before CRAM-MD5,
// for which the server must keep the password in clear.
var preferred = []string{"scram-sha-256", "scram-sha-1", "plain", "login", "cram-md5"}

// pickAuth chooses the mechanism. offered is the server's list; private says that
// nobody else can read the connection. ok is false where nothing fits.
func (c Config) pickAuth(offered string, private bool) (smtp.Auth, bool) {
	names := preferred
	if c.Auth != authAuto {
		names = []string{c.Auth}
	}
	list := strings.Fields(strings.ToUpper(offered))
	for _, name := range names {
		m := mechanisms[name]
		if slices.Contains(list, m.sasl) && (private || !m.clear) {
			return m.make(c.Username, c.Password.Reveal(), c.Host), true
		}
	}
	return nil, false
}
