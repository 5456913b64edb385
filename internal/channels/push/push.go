// Package push tells devices: Firebase Cloud Messaging (fcm.go), Apple Push
// Notification service (apns.go) and Web Push (webpush.go). A push service only
// ever says that it took a message, so the best that can be observed is sent.
package push

import (
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// The providers of this package, as a device names them.
const (
	ProviderFCM     = "fcm"
	ProviderAPNs    = "apns"
	ProviderWebPush = "webpush"
)

// MaxTTL is the longest that FCM and the Web Push services keep a message.
const MaxTTL = 28 * 24 * time.Hour

// perHost is how many calls to one push service may run over HTTP/1.1 without
// giving up their connections; the services themselves speak HTTP/2.
const perHost = 64

// Fields of the request that a check names; the message has one target.
const (
	fieldTo       = "/to/push"
	fieldPush     = "/content/push"
	fieldImage    = "/content/push/image"
	fieldCollapse = "/content/push/collapse_key"
	fieldTTL      = "/content/push/ttl"
)

// alert is what a push service is told, whichever it is.
type alert struct {
	title, body, image string
	data               map[string]jsontext.Value
	dataField          string // where data stands in the request
	// group names what a later alert replaces on the device: the caller's
	// collapse key, else the delivery's, so that a repeat collapses.
	group string
	named bool // the caller chose group
}

// read resolves m for a device of provider and checks what no push service takes.
func read(m *channels.Message, provider string) (alert, *channels.CheckError) {
	if m.To.Device == nil || m.To.Device.Provider != provider {
		return alert{}, &channels.CheckError{Field: fieldTo + "/provider", Reason: "must be " + provider}
	}
	a := alert{group: m.Key.String(), dataField: "/content/data"}
	a.title, a.body = m.Content.PushText()
	if a.title == "" && a.body == "" {
		return a, &channels.CheckError{Field: fieldPush, Reason: "needs a title or a body"}
	}
	if p := m.Content.Push; p != nil {
		if len(p.Data) > 0 {
			a.dataField = "/content/push/data"
		}
		if p.CollapseKey != "" {
			a.group, a.named = p.CollapseKey, true
		}
		if ttl := p.TTL.Std(); ttl < 0 || ttl > MaxTTL {
			return a, &channels.CheckError{Field: fieldTTL, Reason: "must be from 0 to 672h (28 days)"}
		}
		if p.Image != "" && !isHTTPS(p.Image) {
			return a, &channels.CheckError{Field: fieldImage, Reason: "must be an https URL"}
		}
		a.image = p.Image
	}
	if raw := m.Content.PushData(); len(raw) > 0 {
		if err := json.Unmarshal(raw, &a.data); err != nil {
			return a, &channels.CheckError{Field: a.dataField, Reason: "must be a JSON object"}
		}
	}
	return a, nil
}

func isHTTPS(s string) bool {
	u, err := url.Parse(s)
	return err == nil && u.Scheme == "https" && u.Host != ""
}

// checkToken refuses what cannot be a device token of FCM or APNs, and what would
// mean something else in a URL's path.
func checkToken(token string, limit int) *channels.CheckError {
	if token == "" || len(token) > limit || strings.Trim(token, ".") == "" || strings.ContainsFunc(token, notOfToken) {
		return &channels.CheckError{Field: fieldTo + "/token", Reason: "must be a device token as the device's system gave it"}
	}
	return nil
}

func notOfToken(r rune) bool {
	switch {
	case r >= '0' && r <= '9', r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z':
		return false
	}
	return !strings.ContainsRune("-_:.", r)
}

// lifetime is how long from now the push service may keep m, at most [MaxTTL],
// and whether m's time is over already.
func lifetime(m *channels.Message, now time.Time) (ttl time.Duration, over bool) {
	ttl = MaxTTL
	if !m.ExpiresAt.IsZero() {
		left := m.ExpiresAt.Sub(now)
		if left <= 0 {
			return 0, true
		}
		ttl = min(ttl, left)
	}
	if p := m.Content.Push; p != nil && p.TTL > 0 {
		ttl = min(ttl, p.TTL.Std())
	}
	return ttl.Truncate(time.Second), false
}

// deviceScope names one device for limits that are the device's own.
func deviceScope(t notify.Target) string { return channels.RecipientScope(notify.Push, t) }

// The shapes of the codes that are kept. An answer is not ours to trust: what has
// another shape may be a piece of the request, echoed.
var (
	googleCode = regexp.MustCompile(`^[A-Z][A-Z0-9_]{1,63}$`) // UNREGISTERED
	appleCode  = regexp.MustCompile(`^[A-Z][A-Za-z]{1,63}$`)  // BadDeviceToken
	oauthCode  = regexp.MustCompile(`^[a-z][a-z_]{1,63}$`)    // invalid_grant
)

// code returns s if it has the shape and is no piece of the address.
func code(s string, shape *regexp.Regexp, address string) string {
	if !shape.MatchString(s) || strings.Contains(address, s) {
		return ""
	}
	return s
}

// refused is the result of a message that a check refuses.
func refused(err *channels.CheckError) channels.Result {
	r := channels.Result{Outcome: notify.MessageRejected, Detail: err.Error()}
	if strings.HasPrefix(err.Field, fieldTo) {
		r.Outcome = notify.RecipientRejected
	}
	return r
}

// expired is the result of a message whose time is over before the call.
func expired() channels.Result {
	return channels.Result{Outcome: notify.Expired, Detail: "expired before the call"}
}

// asError keeps a nil *CheckError from becoming an error that is not nil.
func asError(err *channels.CheckError) error {
	if err == nil {
		return nil
	}
	return err
}
