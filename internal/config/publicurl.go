package config

import (
	"errors"
	"net/url"
	"strings"
)

// PublicURL is an absolute http or https URL without a slash at its end, or
// empty. It has no user, query or fragment.
type PublicURL string

// UnmarshalText implements [encoding.TextUnmarshaler].
func (p *PublicURL) UnmarshalText(text []byte) error {
	s := string(text)
	if s == "" {
		*p = ""
		return nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Opaque != "" ||
		strings.ContainsAny(s, "?#") || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		// Without what was given: it may be a URL with a password.
		return errors.New("must be an http or https URL such as https://notify.example.com, without user, query and fragment")
	}
	*p = PublicURL(strings.TrimRight(s, "/"))
	return nil
}
