package email

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"strings"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

// Where reports arrive, below the account's path.
const (
	dsnPath = "dsn" // mail: bounces and complaints
	sesPath = "ses" // what Amazon SES tells through SNS
)

func refuseCallback(status int, reason string) error {
	return &channels.CallbackError{Status: status, Reason: reason}
}

// said is the answer to a report that was taken: a word for whoever pipes mail
// here and wonders what became of it.
func said(word string) channels.CallbackAnswer {
	return channels.CallbackAnswer{Status: http.StatusOK, ContentType: "text/plain; charset=utf-8", Body: []byte(word + "\n")}
}

// ReadCallback implements [channels.CallbackReader]: mail from the mailbox that
// bounces go to, with the account's secret, and notifications of Amazon SNS with
// its signature.
func (p *Provider) ReadCallback(ctx context.Context, c *channels.Callback) (channels.Report, error) {
	switch {
	case c.Method != http.MethodPost:
		return channels.Report{}, refuseCallback(http.StatusNotFound, "no such method of an smtp account")
	case c.Path == dsnPath && p.bounceSecret() == "":
		return channels.Report{}, refuseCallback(http.StatusNotFound, "bounce_secret is not configured")
	case c.Path == dsnPath && !authorized(c.Header.Get("Authorization"), p.bounceSecret()):
		return channels.Report{}, refuseCallback(http.StatusForbidden, "the secret is not bounce_secret")
	case c.Path == dsnPath:
		return readMail(c.Body)
	case c.Path == sesPath && p.sns == nil:
		return channels.Report{}, refuseCallback(http.StatusNotFound, "sns_topic is not configured")
	case c.Path == sesPath:
		return p.sns.read(ctx, c.Body)
	}
	return channels.Report{}, refuseCallback(http.StatusNotFound, "no such path of an smtp account")
}

// authorized reports whether an Authorization field has the secret, as a Bearer
// token or as the password of any user, which is what pipes and curl can do.
func authorized(field, secret string) bool {
	scheme, value, _ := strings.Cut(field, " ")
	value = strings.TrimSpace(value)
	switch {
	case strings.EqualFold(scheme, "Bearer"):
	case strings.EqualFold(scheme, "Basic"):
		pair, err := base64.StdEncoding.Strict().DecodeString(value)
		if err != nil {
			return false
		}
		_, value, _ = strings.Cut(string(pair), ":")
	default:
		return false
	}
	// Of digests, so that not even the length can be measured.
	got, want := sha256.Sum256([]byte(value)), sha256.Sum256([]byte(secret))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1
}
