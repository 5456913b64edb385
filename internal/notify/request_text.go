package notify

import (
	"mime"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// every reports whether ok holds for all bytes of s.
func every(s string, ok func(byte) bool) bool {
	for i := range len(s) {
		if !ok(s[i]) {
			return false
		}
	}
	return true
}

// validPhone reports whether s is an E.164 number with its plus sign:
// ^\+[1-9][0-9]{6,14}$.
func validPhone(s string) bool {
	return len(s) >= 8 && len(s) <= 16 && s[0] == '+' && s[1] != '0' && every(s[1:], isDigit)
}

// validEmail reports whether s has the shape of a mailbox that SMTP can be given
// (RFC 5321, section 4.1.2, with the internationalized letters of RFC 6531):
// a dot-atom of at most 64 bytes, one @, a domain of labels, 254 bytes in all.
// Quoted local parts and address literals are refused.
func validEmail(s string) bool {
	local, domain, ok := strings.Cut(s, "@")
	return ok && len(s) <= 254 && len(local) <= 64 && utf8.ValidString(s) &&
		validLabels(local, "!#$%&'*+-/=?^_`{|}~") && validLabels(domain, "-_") &&
		!strings.HasPrefix(domain, "-") && !strings.HasSuffix(domain, "-")
}

const alphanumeric = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"

// validLabels reports whether s is one or more labels with dots between them,
// each at least one letter, digit or other character of extra, and letters of
// any script.
func validLabels(s, extra string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" {
			return false
		}
		for _, r := range label {
			switch {
			case r < utf8.RuneSelf && strings.ContainsRune(alphanumeric, r), r < utf8.RuneSelf && strings.ContainsRune(extra, r):
			case r >= utf8.RuneSelf && unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.S):
			default:
				return false
			}
		}
	}
	return true
}

// validURL reports whether s is an absolute http or https URL without userinfo,
// at most MaxURL bytes, with no white space or control character.
func validURL(s string) bool {
	if len(s) > MaxURL || !noSpace(s) {
		return false
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Hostname() == "" || u.Opaque != "" {
		return false
	}
	if port := u.Port(); port != "" {
		n, err := strconv.Atoi(port)
		return err == nil && n > 0 && n < 1<<16
	}
	return true
}

func noSpace(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) })
}

// visible reports whether s is 1 to most characters without space or control.
func visible(s string, most int) bool {
	return s != "" && utf8.RuneCountInString(s) <= most && noSpace(s)
}

// visibleASCII reports whether s is 1 to most bytes from ! to ~.
func visibleASCII(s string, most int) bool {
	return s != "" && len(s) <= most && every(s, func(c byte) bool { return c > ' ' && c < 0x7f })
}

// oneLine reports whether s is at most so many characters without control
// characters and line separators.
func oneLine(s string, most int) bool {
	return utf8.RuneCountInString(s) <= most && !strings.ContainsFunc(s, func(r rune) bool {
		return unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
	})
}

// validBase64URL reports whether s has the length and the letters of n bytes in
// base64url without padding (RFC 4648, section 5).
func validBase64URL(s string, n int) bool {
	return len(s) == (n*8+5)/6 && every(s, func(c byte) bool { return isLetter(c) || isDigit(c) || c == '-' || c == '_' })
}

// validHeaderName reports whether s is a token of at most 100 bytes.
func validHeaderName(s string) bool {
	return s != "" && len(s) <= 100 && every(s, func(c byte) bool {
		return isLetter(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0
	})
}

func validHeaderValue(s string) bool {
	return len(s) <= 1024 && every(s, func(c byte) bool { return c >= ' ' && c != 0x7f || c == '\t' })
}

func validFilename(s string) bool {
	return s != "" && oneLine(s, 255) && !strings.ContainsAny(s, `/\`)
}

func validMediaType(s string) bool {
	kind, _, err := mime.ParseMediaType(s)
	return err == nil && len(s) <= 127 && strings.Contains(kind, "/") && oneLine(s, 127)
}

// validSlackTS reports whether s is digits, a dot and digits, as Slack names a
// message.
func validSlackTS(s string) bool {
	seconds, rest, ok := strings.Cut(s, ".")
	return ok && len(s) <= 32 && seconds != "" && rest != "" && every(seconds, isDigit) && every(rest, isDigit)
}

// instantShape is an RFC 3339 date-time; time.Parse takes more than that.
var instantShape = regexp.MustCompile(
	`^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$`)

// durationShape is the part of Go's duration grammar that is read.
var durationShape = regexp.MustCompile(`^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h)){1,4}$`)

// parseDuration reads what [Duration.UnmarshalText] documents.
func parseDuration(s string) (Duration, bool) {
	if !durationShape.MatchString(s) {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	return Duration(d), err == nil
}
