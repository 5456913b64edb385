package notify

import (
	"slices"
	"strings"
)

// toRequest is where a recipient can be reached. At least one member must be
// there, and each that is there must be right, also where no step uses it:
//   - push is a device or an array of 1 to [MaxDevices] devices, none twice. fcm
//     and apns take a token of 1 to [MaxToken] bytes of visible ASCII; webpush
//     takes an endpoint, which is a URL, and keys as the browser gives them
//     (RFC 8291: p256dh is an uncompressed P-256 point, auth is 16 bytes, both
//     in base64url without padding);
//   - sms and whatsapp are E.164 numbers: ^\+[1-9][0-9]{6,14}$;
//   - email is an address (see [validEmail]), alone or with a name of at most
//     200 characters without control characters;
//   - slack has either channel (1 to 80 visible characters) or webhook_url;
//   - webhook has a url and at most [MaxHeaders] headers: names are tokens
//     (RFC 9110, section 5.6.2) of at most 100 bytes, values at most 1024 bytes
//     of visible characters, spaces and tabs; no name twice, case aside.
//
// A URL is absolute, http or https, without userinfo, and at most [MaxURL] bytes.
type toRequest struct {
	Push     Devices        `json:"push"`
	SMS      *string        `json:"sms"`
	WhatsApp *string        `json:"whatsapp"`
	Email    *EmailAddress  `json:"email"`
	Slack    *SlackTarget   `json:"slack"`
	Webhook  *WebhookTarget `json:"webhook"`
}

// names reports whether there is something for channel c, right or wrong.
func (t *toRequest) names(c Channel) bool {
	if t == nil {
		return false
	}
	switch c {
	case Push:
		return t.Push != nil
	case SMS:
		return t.SMS != nil
	case WhatsApp:
		return t.WhatsApp != nil
	case Email:
		return t.Email != nil
	case Slack:
		return t.Slack != nil
	case Webhook:
		return t.Webhook != nil
	}
	return false
}

const (
	phoneDetail = "must be a phone number in E.164 form: a plus sign and 7 to 15 digits, the first not 0"
	emailDetail = "must be an email address of at most 254 bytes, such as ana@example.com"
	urlDetail   = "must be an absolute http or https URL of at most 2048 bytes, without user name or password"
)

func (v *validator) to(t *toRequest) To {
	if t == nil {
		v.add("/to", CodeRequired, "must say where the recipient can be reached")
		return To{}
	}
	v.check(slices.ContainsFunc(Channels(), t.names), "/to", CodeRequired,
		"must have at least one of push, sms, whatsapp, email, slack, webhook")
	v.devices(t.Push)
	v.phone(t.SMS, "/to/sms")
	v.phone(t.WhatsApp, "/to/whatsapp")
	v.email(t.Email, "/to/email")
	v.slack(t.Slack)
	v.webhook(t.Webhook)
	to := To{Push: t.Push, Email: t.Email, Slack: t.Slack, Webhook: t.Webhook}
	if t.SMS != nil {
		to.SMS = *t.SMS
	}
	if t.WhatsApp != nil {
		to.WhatsApp = *t.WhatsApp
	}
	return to
}

func (v *validator) phone(number *string, pointer string) {
	if number != nil {
		v.check(validPhone(*number), pointer, CodeFormat, phoneDetail)
	}
}

func (v *validator) email(e *EmailAddress, pointer string) {
	if e == nil {
		return
	}
	// Without a name it may have stood there alone, so the pointer names the whole.
	where := pointer
	if e.Name != "" {
		where = at(pointer, "address")
	}
	v.check(validEmail(e.Address), where, CodeFormat, emailDetail)
	v.check(oneLine(e.Name, 200), at(pointer, "name"), CodeFormat, "must be at most 200 characters, without control characters")
}

func (v *validator) slack(s *SlackTarget) {
	switch {
	case s == nil:
	case (s.Channel == "") == (s.WebhookURL == ""):
		v.add("/to/slack", CodeConflict, "must have either channel or webhook_url")
	case s.Channel != "":
		v.check(visible(s.Channel, 80), "/to/slack/channel", CodeFormat, "must be 1 to 80 visible characters")
	default:
		v.check(validURL(s.WebhookURL), "/to/slack/webhook_url", CodeFormat, urlDetail)
	}
}

func (v *validator) webhook(w *WebhookTarget) {
	if w == nil {
		return
	}
	v.check(validURL(w.URL), "/to/webhook/url", CodeFormat, urlDetail)
	v.check(len(w.Headers) <= MaxHeaders, "/to/webhook/headers", CodeLength, "must be at most 20 headers")
	names := make([]string, 0, len(w.Headers))
	for name := range w.Headers {
		names = append(names, name)
	}
	slices.Sort(names)
	seen := map[string]bool{}
	for _, name := range names {
		pointer := "/to/webhook/headers"
		if plainName(name) {
			pointer = at(pointer, name)
		}
		v.check(validHeaderName(name), pointer, CodeFormat, "a header's name must be a token of RFC 9110, at most 100 bytes")
		v.check(validHeaderValue(w.Headers[name]), pointer, CodeFormat,
			"a header's value must be at most 1024 bytes, without control characters")
		lower := strings.ToLower(name)
		v.check(!seen[lower], pointer, CodeDuplicate, "names of headers must differ in more than case")
		seen[lower] = true
	}
}

func (v *validator) devices(devices Devices) {
	if devices == nil {
		return
	}
	if len(devices) == 0 || len(devices) > MaxDevices {
		v.add("/to/push", CodeLength, "must be 1 to 100 devices")
		return
	}
	seen := make(map[string]bool, len(devices))
	for i := range devices {
		d := &devices[i]
		pointer := at("/to/push", i)
		if !v.device(d, pointer) {
			continue
		}
		address := Target{Device: d}.address()
		v.check(!seen[address], pointer, CodeDuplicate, "must not be the same device as an earlier one")
		seen[address] = true
	}
}

func (v *validator) device(d *Device, pointer string) bool {
	before := len(v.problems)
	switch d.Provider {
	case "fcm", "apns":
		v.check(visibleASCII(d.Token, MaxToken), at(pointer, "token"), CodeFormat, "must be 1 to 4096 visible ASCII characters")
		v.check(d.Endpoint == "", at(pointer, "endpoint"), CodeConflict, "is for webpush only")
		v.check(d.Keys == nil, at(pointer, "keys"), CodeConflict, "is for webpush only")
	case "webpush":
		v.check(d.Token == "", at(pointer, "token"), CodeConflict, "is for fcm and apns only")
		v.check(validURL(d.Endpoint), at(pointer, "endpoint"), CodeFormat, urlDetail)
		if d.Keys == nil {
			v.add(at(pointer, "keys"), CodeRequired, "must have p256dh and auth")
			break
		}
		v.check(validBase64URL(d.Keys.P256dh, 65), at(pointer, "keys", "p256dh"), CodeFormat,
			"must be 65 bytes in base64url without padding")
		v.check(validBase64URL(d.Keys.Auth, 16), at(pointer, "keys", "auth"), CodeFormat,
			"must be 16 bytes in base64url without padding")
	default:
		v.add(at(pointer, "provider"), CodeChoice, "must be one of fcm, apns, webpush")
	}
	return len(v.problems) == before
}
