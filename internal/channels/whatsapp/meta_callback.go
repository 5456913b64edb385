package whatsapp

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// metaCallbackPath is where the app's webhook points, below the account's path.
const metaCallbackPath = "webhook"

// challenge is what Meta may want to have repeated: it sends digits.
var challenge = regexp.MustCompile(`^[0-9A-Za-z_.-]{1,256}$`)

// metaTaken is the answer to a callback. Meta sends again what is not answered
// with 200 itself, for up to seven days.
var metaTaken = channels.CallbackAnswer{Status: http.StatusOK, ContentType: "text/plain; charset=utf-8"}

func refuseCallback(status int, reason string) error {
	return &channels.CallbackError{Status: status, Reason: reason}
}

// ReadCallback implements [channels.CallbackReader]: the handshake by which Meta
// verifies the address, and webhooks signed with the app's secret.
//
// Source: developers.facebook.com, WhatsApp > Webhooks: create an endpoint, and
// the references of the fields messages and user_preferences.
func (p *Meta) ReadCallback(_ context.Context, c *channels.Callback) (channels.Report, error) {
	if c.Path != metaCallbackPath {
		return channels.Report{}, refuseCallback(http.StatusNotFound, "no such path of a meta account")
	}
	switch c.Method {
	case http.MethodGet:
		return p.handshake(c)
	case http.MethodPost:
		if err := p.signed(c); err != nil {
			return channels.Report{}, err
		}
		return p.webhook(c.Body)
	}
	return channels.Report{}, refuseCallback(http.StatusNotFound, "no such method of a meta account")
}

func (p *Meta) handshake(c *channels.Callback) (channels.Report, error) {
	token := p.verifyToken()
	switch {
	case token == "":
		return channels.Report{}, refuseCallback(http.StatusNotFound, "verify_token is not configured")
	case c.Query.Get("hub.mode") != "subscribe":
		return channels.Report{}, refuseCallback(http.StatusBadRequest, "hub.mode is not subscribe")
	case subtle.ConstantTimeCompare([]byte(c.Query.Get("hub.verify_token")), []byte(token)) != 1:
		return channels.Report{}, refuseCallback(http.StatusForbidden, "hub.verify_token differs from verify_token")
	case !challenge.MatchString(c.Query.Get("hub.challenge")):
		return channels.Report{}, refuseCallback(http.StatusBadRequest, "hub.challenge is none")
	}
	answer := metaTaken
	answer.Body = []byte(c.Query.Get("hub.challenge"))
	return channels.Report{Answer: answer}, nil
}

// signed checks X-Hub-Signature-256: HMAC-SHA256 over the body as it came.
func (p *Meta) signed(c *channels.Callback) error {
	secret := p.appSecret()
	if secret == "" {
		return refuseCallback(http.StatusNotFound, "app_secret is not configured")
	}
	text, ok := strings.CutPrefix(c.Header.Get("X-Hub-Signature-256"), "sha256=")
	signature, err := hex.DecodeString(text)
	if !ok || err != nil {
		return refuseCallback(http.StatusForbidden, "X-Hub-Signature-256 is missing or malformed")
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(c.Body)
	if !hmac.Equal(signature, mac.Sum(nil)) {
		return refuseCallback(http.StatusForbidden, "the signature differs: app_secret is another app's, or the body was changed")
	}
	return nil
}

// metaWebhook is what is read of a webhook. Its numbers' types differ between
// fields, so they stay raw.
type metaWebhook struct {
	Object string `json:"object"`
	Entry  []struct {
		Changes []struct {
			Field string          `json:"field"`
			Value json.RawMessage `json:"value"`
		} `json:"changes"`
	} `json:"entry"`
}

type metaValue struct {
	Metadata struct {
		PhoneNumberID string `json:"phone_number_id"`
	} `json:"metadata"`
	Statuses    []json.RawMessage `json:"statuses"`
	Messages    []json.RawMessage `json:"messages"`
	Preferences []json.RawMessage `json:"user_preferences"`
}

type metaStatus struct {
	ID           string      `json:"id"`
	Status       string      `json:"status"`
	Timestamp    metaSeconds `json:"timestamp"`
	CallbackData string      `json:"biz_opaque_callback_data"`
	Errors       []metaError `json:"errors"`
}

// metaSeconds are seconds since 1970, as a number or, mostly, as a text of one.
// What is neither is no time, and spoils nothing else.
type metaSeconds string

// UnmarshalJSON implements [json.Unmarshaler].
func (s *metaSeconds) UnmarshalJSON(b []byte) error {
	*s = metaSeconds(strings.Trim(string(b), `"`))
	return nil
}

// time is the instant, zero for none.
func (s metaSeconds) time() time.Time {
	seconds, err := strconv.ParseInt(string(s), 10, 64)
	if err != nil || seconds <= 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}

// webhook reads what concerns this account's number. A part that cannot be
// read is of a kind that is not known here, and ignored: Meta adds to them, and
// would send a callback that is refused again for days.
func (p *Meta) webhook(body []byte) (channels.Report, error) {
	var hook metaWebhook
	if err := json.Unmarshal(body, &hook); err != nil {
		return channels.Report{}, refuseCallback(http.StatusBadRequest, "the body is no webhook of meta's")
	}
	report := channels.Report{Answer: metaTaken}
	if hook.Object != "whatsapp_business_account" {
		return report, nil
	}
	for _, entry := range hook.Entry {
		for _, change := range entry.Changes {
			var v metaValue
			if json.Unmarshal(change.Value, &v) != nil || v.Metadata.PhoneNumberID != p.phoneNumberID {
				continue // another number of the same app has an account of its own
			}
			p.addChange(&report, change.Field, &v)
		}
	}
	return report, nil
}

func (p *Meta) addChange(report *channels.Report, field string, v *metaValue) {
	switch field {
	case "messages":
		for _, s := range readable[metaStatus](v.Statuses) {
			if r, ok := s.receipt(); ok {
				report.Receipts = append(report.Receipts, r)
			}
		}
		for _, m := range readable[metaInbound](v.Messages) {
			report.Consents = append(report.Consents, m.consents()...)
		}
	case "user_preferences":
		if !p.marketingStops {
			return
		}
		for _, m := range readable[metaPreference](v.Preferences) {
			report.Consents = append(report.Consents, m.consents()...)
		}
	}
}

// readable are the items that have the expected form.
func readable[T any](items []json.RawMessage) []*T {
	out := make([]*T, 0, len(items))
	for _, item := range items {
		if v := new(T); json.Unmarshal(item, v) == nil {
			out = append(out, v)
		}
	}
	return out
}

// receipt is false for statuses that say nothing of whether a message arrived,
// such as "deleted".
func (s *metaStatus) receipt() (channels.Receipt, bool) {
	r := channels.Receipt{MessageID: s.ID, At: s.Timestamp.time()}
	if ref, err := channels.ParseRef(s.CallbackData); err == nil {
		r.Ref = ref
	} else if s.ID == "" {
		return channels.Receipt{}, false
	}
	switch s.Status {
	case "sent":
		r.Status = notify.Sent
	case "delivered":
		r.Status = notify.Delivered
	case "read", "played": // a voice message that was listened to has been read
		r.Status = notify.Read
	case "failed":
		r.Status = notify.Failed
		s.why(&r)
	default:
		return channels.Receipt{}, false
	}
	return r.Clean(), true
}

// why says why a message failed. Limits that hold back a whole number are told to
// the calls themselves, and only the message is concerned here.
func (s *metaStatus) why(r *channels.Receipt) {
	r.Outcome, r.Detail = notify.RecipientUnavailable, "failed without a reason"
	if len(s.Errors) == 0 || s.Errors[0].Code == nil {
		return
	}
	e, code := s.Errors[0], *s.Errors[0].Code
	if code < 0 || code > 9_999_999 {
		return // longer than any code: it could be the recipient's number
	}
	r.Code, r.Detail = strconv.Itoa(code), "failed for a reason that is not known here"
	if known, ok := fromMetaCode(code, e.Subcode, e.details()); ok {
		r.Outcome, r.Detail = known.Outcome, known.Detail
		r.Suppress, r.SuppressFor = known.Suppress, known.SuppressFor
	}
}
