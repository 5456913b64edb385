package push

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const (
	// fcmMaxPayload bounds notification and data together, in bytes of JSON
	// (FCM, "Message too big"). FCM counts a little less than that.
	fcmMaxPayload = 4096
	fcmMaxToken   = 4096
	// collapseIDMax is APNs' bound on apns-collapse-id, in bytes, which FCM hands
	// through.
	collapseIDMax = 64
)

type (
	fcmRequest struct {
		Message fcmMessage `json:"message"`
	}
	fcmMessage struct {
		Token        string            `json:"token"`
		Notification fcmNotification   `json:"notification"`
		Data         map[string]string `json:"data,omitempty"`
		Android      fcmAndroid        `json:"android"`
		APNs         fcmAPNs           `json:"apns"`
		WebPush      fcmWebPush        `json:"webpush"`
	}
	fcmNotification struct {
		Title string `json:"title,omitzero"`
		Body  string `json:"body,omitzero"`
		Image string `json:"image,omitzero"`
	}
	fcmAndroid struct {
		CollapseKey  string `json:"collapse_key,omitzero"`
		Priority     string `json:"priority"`
		TTL          string `json:"ttl"`
		Notification fcmTag `json:"notification"`
	}
	fcmAPNs struct {
		Headers fcmAPNsHeaders `json:"headers"`
		Payload fcmAPNsPayload `json:"payload"`
	}
	fcmAPNsHeaders struct {
		CollapseID string `json:"apns-collapse-id"`
		Priority   string `json:"apns-priority"`
		Expiration string `json:"apns-expiration"`
	}
	fcmAPNsPayload struct {
		APS apsExtras `json:"aps"` // the alert itself comes from notification
	}
	fcmWebPush struct {
		Headers      fcmWebPushHeaders `json:"headers"`
		Notification fcmTag            `json:"notification"`
	}
	fcmWebPushHeaders struct {
		TTL     string `json:"TTL"`
		Urgency string `json:"Urgency"`
		Topic   string `json:"Topic"`
	}
	// fcmTag makes a later notification take an earlier one's place on screen.
	fcmTag struct {
		Tag string `json:"tag"`
	}
)

// readFCM resolves m and checks what FCM would refuse.
func readFCM(m *channels.Message) (alert, map[string]string, *channels.CheckError) {
	a, cerr := read(m, ProviderFCM)
	if cerr != nil {
		return a, nil, cerr
	}
	if cerr := checkToken(m.To.Device.Token, fcmMaxToken); cerr != nil {
		return a, nil, cerr
	}
	if len(a.group) > collapseIDMax {
		return a, nil, &channels.CheckError{Field: fieldCollapse, Reason: "must be at most 64 bytes"}
	}
	data, cerr := fcmData(a)
	if cerr != nil {
		return a, nil, cerr
	}
	payload, err := json.Marshal(struct {
		N fcmNotification   `json:"notification"`
		D map[string]string `json:"data,omitempty"`
	}{fcmNotification{a.title, a.body, a.image}, data})
	if err != nil {
		return a, nil, &channels.CheckError{Field: fieldPush, Reason: "must be valid UTF-8"}
	}
	if len(payload) > fcmMaxPayload {
		return a, nil, &channels.CheckError{Field: fieldPush, Reason: "title, body, image and data must be at most 4096 bytes together"}
	}
	return a, data, nil
}

// fcmData writes the data's values as FCM takes them, which is as strings.
func fcmData(a alert) (map[string]string, *channels.CheckError) {
	if len(a.data) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(a.data))
	for k, v := range a.data {
		if fcmReserved(k) {
			return nil, &channels.CheckError{
				Field: a.dataField, Reason: `keys must not be empty, "from" or "message_type", nor begin with "google" or "gcm": FCM reserves them`,
			}
		}
		if v.Kind() != '"' {
			out[k] = compact(v)
			continue
		}
		text, err := jsontext.AppendUnquote(nil, v)
		if err != nil {
			return nil, &channels.CheckError{Field: a.dataField, Reason: "must be a JSON object"}
		}
		out[k] = string(text)
	}
	return out, nil
}

func fcmReserved(key string) bool {
	return key == "" || key == "from" || key == "message_type" || strings.HasPrefix(key, "google") || strings.HasPrefix(key, "gcm")
}

// compact returns v without white space between its tokens.
func compact(v jsontext.Value) string {
	c := v.Clone()
	if err := c.Compact(); err != nil {
		return string(v)
	}
	return string(c)
}

// fcmBody is the request's body.
//
// Android's collapse_key is set only where the caller chose one: FCM keeps
// messages of at most four keys for a device that is offline, so a key for each
// delivery would lose messages. The tag makes a repeat take the first one's place.
func fcmBody(m *channels.Message, a alert, data map[string]string, now time.Time, ttl time.Duration) ([]byte, error) {
	seconds := strconv.FormatInt(int64(ttl/time.Second), 10)
	msg := fcmMessage{
		Token:        m.To.Device.Token,
		Notification: fcmNotification{a.title, a.body, a.image},
		Data:         data,
		Android: fcmAndroid{
			Priority: androidPriority(m.Priority), TTL: seconds + "s", Notification: fcmTag{a.group},
		},
		APNs: fcmAPNs{
			Headers: fcmAPNsHeaders{CollapseID: a.group, Priority: apnsPriority(m.Priority), Expiration: apnsExpiration(now, ttl)},
			Payload: fcmAPNsPayload{APS: newAPSExtras(m.Priority, a)},
		},
		WebPush: fcmWebPush{
			Headers:      fcmWebPushHeaders{TTL: seconds, Urgency: string(urgency(m.Priority)), Topic: topic(a.group)},
			Notification: fcmTag{a.group},
		},
	}
	if a.named {
		msg.Android.CollapseKey = a.group
	}
	return json.Marshal(fcmRequest{msg})
}

// androidPriority is HIGH, which wakes a dozing device, for what cannot wait.
func androidPriority(p notify.Priority) string {
	if p == notify.Critical || p == notify.High {
		return "HIGH"
	}
	return "NORMAL"
}

// topic makes a Web Push Topic of any text: at most 32 characters of the URL-safe
// alphabet (RFC 8030, 5.4). It is a hash, because the push service can read it.
func topic(group string) string {
	sum := sha256.Sum256([]byte(group))
	return base64.RawURLEncoding.EncodeToString(sum[:24])
}
