package twilio

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // HMAC-SHA1 is what Twilio signs with
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	signatureHeader = "X-Twilio-Signature"
	// bodyDigest is the query parameter that binds a body which is no form to the
	// URL, and so to the signature.
	bodyDigest = "bodySHA256"
)

// signedBy reports whether c carries a signature of one of the tokens: HMAC-SHA1,
// in base64, over the URL and then the name and values of each parameter of the
// form, ordered by name. Where the URL has a digest of the body, the URL alone is
// signed and the body must have that digest.
//
// The vendor's SDK has a validator. It is not used because it takes the first of
// repeated values only, cuts IPv6 addresses apart and writes the URL anew, with
// escapes of its own.
//
// Source: twilio.com/docs/usage/security, "Validating requests".
func signedBy(tokens []secret.Value, c *channels.Callback, form url.Values) bool {
	given := c.Header.Values(signatureHeader)
	if len(given) != 1 {
		return false
	}
	signed := parameters(form)
	if digest, ok := bodyDigestOf(c.URL); ok {
		signed = ""
		sum := sha256.Sum256(c.Body)
		if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum[:])), []byte(digest)) != 1 {
			return false
		}
	}
	genuine := 0
	for _, token := range tokens {
		for _, u := range spellings(c.URL) {
			genuine |= subtle.ConstantTimeCompare([]byte(sign(token, u+signed)), []byte(given[0]))
		}
	}
	return genuine == 1
}

func sign(token secret.Value, text string) string {
	mac := hmac.New(sha1.New, []byte(token.Reveal()))
	mac.Write([]byte(text))
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// parameters writes a form as it is signed. A value that is repeated under one
// name counts once, as in the vendor's libraries.
func parameters(form url.Values) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(form)) {
		values := slices.Sorted(slices.Values(form[name]))
		for _, value := range slices.Compact(values) {
			b.WriteString(name)
			b.WriteString(value)
		}
	}
	return b.String()
}

func bodyDigestOf(rawURL string) (string, bool) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return "", false
	}
	query := u.Query()
	return query.Get(bodyDigest), query.Has(bodyDigest)
}

// spellings are the ways in which Twilio may have written the URL that it signed.
// It is not consistent about the port, its documentation says, so that its
// libraries try both: with the port of the scheme where the URL names none, and
// without the one that it names. Nothing else of the URL is touched.
func spellings(rawURL string) []string {
	out := []string{rawURL}
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" {
		return out
	}
	host := u.Host + ":80"
	switch port := u.Port(); {
	case port != "":
		host = strings.TrimSuffix(u.Host, ":"+port)
	case u.Scheme == "https":
		host = u.Host + ":443"
	}
	return append(out, strings.Replace(rawURL, "//"+u.Host, "//"+host, 1))
}
