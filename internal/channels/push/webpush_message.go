package push

import (
	"crypto/ecdh"
	"net/url"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

const (
	// webPushMaxPayload is what fits one record of 4096 bytes beside its header
	// (86), padding delimiter (1) and tag (16); RFC 8291, 4.
	webPushMaxPayload = 4096 - recordOverhead
	recordOverhead    = 86 + 1 + 16
	// recordStep pads records, so that their length says little of the text.
	recordStep = 512
	// webPushAuth is the length of a subscription's authentication secret.
	webPushAuth = 16
	// endpointMax bounds a subscription's URL, in bytes.
	endpointMax = 2048
)

// webPushPayload is what the page's service worker gets; its fields are named as
// those of showNotification.
type webPushPayload struct {
	Title string                    `json:"title,omitzero"`
	Body  string                    `json:"body,omitzero"`
	Image string                    `json:"image,omitzero"`
	Data  map[string]jsontext.Value `json:"data,omitempty"`
	Tag   string                    `json:"tag"`
}

// read resolves m, checks what a push service would refuse, and returns the
// payload in clear.
func (p *WebPush) read(m *channels.Message) (alert, []byte, *channels.CheckError) {
	a, cerr := read(m, ProviderWebPush)
	if cerr != nil {
		return a, nil, cerr
	}
	if cerr := p.checkSubscription(m); cerr != nil {
		return a, nil, cerr
	}
	payload, err := json.Marshal(webPushPayload{a.title, a.body, a.image, a.data, a.group})
	if err != nil {
		return a, nil, &channels.CheckError{Field: fieldPush, Reason: "must be valid UTF-8"}
	}
	if len(payload) > webPushMaxPayload {
		return a, nil, &channels.CheckError{Field: fieldPush, Reason: "title, body, image and data must make a payload of at most 3993 bytes"}
	}
	return a, payload, nil
}

func (p *WebPush) checkSubscription(m *channels.Message) *channels.CheckError {
	d := m.To.Device
	u, err := url.Parse(d.Endpoint)
	if err != nil || u.Hostname() == "" || u.User != nil || len(d.Endpoint) > endpointMax ||
		u.Scheme != "https" && (u.Scheme != "http" || !p.settings.allow.has(hostPort(u))) {
		return &channels.CheckError{Field: fieldTo + "/endpoint", Reason: "must be an https URL without user, at most 2048 bytes"}
	}
	if d.Keys == nil {
		return &channels.CheckError{Field: fieldTo + "/keys", Reason: "is required"}
	}
	point, err := decodeKey(d.Keys.P256dh)
	if err == nil {
		_, err = ecdh.P256().NewPublicKey(point)
	}
	if err != nil {
		return &channels.CheckError{Field: fieldTo + "/keys/p256dh", Reason: "must be an uncompressed P-256 point in base64url"}
	}
	if auth, err := decodeKey(d.Keys.Auth); err != nil || len(auth) != webPushAuth {
		return &channels.CheckError{Field: fieldTo + "/keys/auth", Reason: "must be 16 bytes in base64url"}
	}
	return nil
}

// recordSize is the size of the encrypted body for a payload of n bytes: the next
// multiple of recordStep. Bodies of the full 4096 bytes are too much for push
// services that hand messages on to another.
func recordSize(n int) uint32 {
	return uint32((n + recordOverhead + recordStep - 1) / recordStep * recordStep)
}
