package push

import (
	"maps"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const (
	// apnsMaxPayload bounds the body of an alert, in bytes (Apple, PayloadTooLarge).
	apnsMaxPayload = 4096
	apnsMaxToken   = 512
)

// Keys of the payload that are not the caller's: Apple's dictionary, and where an
// app's notification service extension finds the image.
const (
	apsKey   = "aps"
	imageKey = "image"
)

// aps is Apple's part of the payload.
type aps struct {
	Alert struct {
		Title string `json:"title,omitzero"`
		Body  string `json:"body,omitzero"`
	} `json:"alert"`
	apsExtras
}

// apsExtras are the parts that FCM does not make of its own notification.
type apsExtras struct {
	Sound string `json:"sound,omitzero"`
	// MutableContent lets the app's extension fetch the image before the alert
	// is shown.
	MutableContent int `json:"mutable-content,omitzero"`
}

func newAPSExtras(p notify.Priority, a alert) apsExtras {
	var e apsExtras
	if p != notify.Low {
		e.Sound = "default"
	}
	if a.image != "" {
		e.MutableContent = 1
	}
	return e
}

// apnsPayload is the request's body: Apple's dictionary, and the caller's data
// beside it.
func apnsPayload(m *channels.Message) (alert, []byte, *channels.CheckError) {
	a, cerr := read(m, ProviderAPNs)
	if cerr != nil {
		return a, nil, cerr
	}
	if cerr := checkToken(m.To.Device.Token, apnsMaxToken); cerr != nil {
		return a, nil, cerr
	}
	if len(a.group) > collapseIDMax {
		return a, nil, &channels.CheckError{Field: fieldCollapse, Reason: "must be at most 64 bytes"}
	}
	body, cerr := apnsDictionary(m.Priority, a)
	if cerr != nil {
		return a, nil, cerr
	}
	payload, err := json.Marshal(body)
	if err != nil {
		return a, nil, &channels.CheckError{Field: fieldPush, Reason: "must be valid UTF-8"}
	}
	if len(payload) > apnsMaxPayload {
		return a, nil, &channels.CheckError{Field: fieldPush, Reason: "title, body, image and data must make a payload of at most 4096 bytes"}
	}
	return a, payload, nil
}

func apnsDictionary(p notify.Priority, a alert) (map[string]jsontext.Value, *channels.CheckError) {
	system := aps{apsExtras: newAPSExtras(p, a)}
	system.Alert.Title, system.Alert.Body = a.title, a.body
	own, err := json.Marshal(system)
	if err != nil {
		return nil, &channels.CheckError{Field: fieldPush, Reason: "must be valid UTF-8"}
	}
	if _, taken := a.data[apsKey]; taken {
		return nil, &channels.CheckError{Field: a.dataField, Reason: `key "aps" is Apple's`}
	}
	out := make(map[string]jsontext.Value, len(a.data)+2)
	maps.Copy(out, a.data)
	out[apsKey] = own
	if a.image == "" {
		return out, nil
	}
	if _, taken := a.data[imageKey]; taken {
		return nil, &channels.CheckError{Field: a.dataField, Reason: `key "image" holds the image where there is one`}
	}
	image, err := json.Marshal(a.image)
	if err != nil {
		return nil, &channels.CheckError{Field: fieldImage, Reason: "must be valid UTF-8"}
	}
	out[imageKey] = image
	return out, nil
}

// apnsPriority is 10, shown at once, or 5, when it suits the device's battery.
func apnsPriority(p notify.Priority) string {
	if p == notify.Low {
		return "5"
	}
	return "10"
}

// apnsExpiration is the second since 1970 at which APNs gives up; 0 asks for one
// try and no storage.
func apnsExpiration(now time.Time, ttl time.Duration) string {
	if ttl == 0 {
		return "0"
	}
	return strconv.FormatInt(now.Add(ttl).Unix(), 10)
}
