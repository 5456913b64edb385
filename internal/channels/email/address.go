package email

import (
	"errors"
	"net/mail"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

const (
	maxLocal = 64  // octets, RFC 5321 4.5.3.1.1
	maxPath  = 254 // octets, RFC 5321 4.5.3.1.3 without its brackets
	maxName  = 256 // octets; ours, so that no header line comes near 998
)

// domains maps names as a resolver would see them (IDNA 2008, UTS #46), and
// refuses what no host can be called.
var domains = idna.New(
	idna.MapForLookup(), idna.BidiRule(), idna.Transitional(false),
	idna.StrictDomainName(true), idna.VerifyDNSLength(true),
)

// mailbox is an address that is fit for an envelope and a header. Its domain is
// in ASCII; its local part may not be, which takes SMTPUTF8 (RFC 6531).
type mailbox struct {
	name, local, domain string
}

// parseMailbox reads a bare address. The error says what is allowed and does not
// echo the address.
func parseMailbox(address, name string) (mailbox, error) {
	if strings.ContainsFunc(address, func(r rune) bool { return unicode.IsControl(r) || r == '<' || r == '>' }) ||
		!utf8.ValidString(address) {
		return mailbox{}, errors.New("must be an address such as ana@example.com")
	}
	parsed, err := mail.ParseAddress("<" + address + ">")
	at := strings.LastIndexByte(address, '@')
	if err != nil || at < 0 {
		return mailbox{}, errors.New("must be an address such as ana@example.com")
	}
	at = strings.LastIndexByte(parsed.Address, '@')
	m := mailbox{name: displayName(name), local: parsed.Address[:at]}
	if m.domain, err = asciiDomain(parsed.Address[at+1:]); err != nil {
		return mailbox{}, errors.New("must have a domain that is a valid host name")
	}
	if len(m.local) > maxLocal || len(m.local)+1+len(m.domain) > maxPath {
		return mailbox{}, errors.New("must be at most 64 bytes before the @ and 254 in all")
	}
	if len(m.name) > maxName {
		return mailbox{}, errors.New("must have a name of at most 256 bytes")
	}
	return m, nil
}

// displayName makes a name fit for a header. The backslash of a name outside ASCII
// becomes a slash: net/mail would leave it bare in an encoded word, where no
// parser of addresses lets it stand (RFC 2047, 5).
func displayName(s string) string {
	s = headerText(s)
	if !ascii(s) {
		s = strings.ReplaceAll(s, `\`, "/")
	}
	return s
}

func ascii(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r >= utf8.RuneSelf })
}

// asciiDomain returns a domain as DNS and SMTP know it: lower case, with
// punycode where it is not ASCII.
func asciiDomain(domain string) (string, error) {
	name, err := domains.ToASCII(domain)
	if err != nil {
		return "", errors.New("not a valid domain name")
	}
	return name, nil
}

// header returns the mailbox for a header, name and all.
func (m mailbox) header() *mail.Address {
	return &mail.Address{Name: m.name, Address: m.local + "@" + m.domain}
}

// path returns the mailbox for an envelope, in angle brackets and with its local
// part quoted where it has to be.
func (m mailbox) path() string {
	return (&mail.Address{Address: m.local + "@" + m.domain}).String()
}

// utf8 reports whether the address needs SMTPUTF8. A name never does: a header
// can encode it.
func (m mailbox) utf8() bool { return !ascii(m.local) }

func (m mailbox) empty() bool { return m.domain == "" }
