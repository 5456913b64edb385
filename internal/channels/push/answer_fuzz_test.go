package push

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// FuzzAnswer: whatever is answered, nothing is accepted without proof, nothing
// accepted elsewhere than in a success, and no secret comes back.
func FuzzAnswer(f *testing.F) {
	for _, table := range [][]channeltest.Case{fcmTable(), apnsTable(), webPushTable()} {
		for _, c := range table {
			f.Add(c.Status, c.Header.Get("Location"), c.Header.Get("Apns-Id"), c.Body)
		}
	}
	f.Add(200, "", testKey.String(), `{"name":"projects/p/messages/1"}`)
	f.Add(400, testEndpoint, testToken, `{"reason":"`+testToken+`","errno":1,"error":{"status":"`+testToken+`"}}`)

	device := deviceMessage(ProviderAPNs)
	browser := newBrowser(f).message(testEndpoint)
	apns := newAPNs(f, "http://127.0.0.1:1")
	f.Fuzz(func(t *testing.T, status int, location, id, body string) {
		x := channels.Exchange{
			Status: status, Header: http.Header{"Location": {location}, "Apns-Id": {id}}, Body: []byte(body),
			Wrote: true, ReceivedAt: time.Unix(1_800_000_000, 0),
		}
		check := func(r channels.Result, m *channels.Message, proven bool) {
			t.Helper()
			channeltest.CheckResult(t, r, append(channeltest.MessageSecrets(m), "gAAAAABn-secret-subscription", "some bearer"))
			if r.Outcome == notify.Accepted && !proven {
				t.Errorf("accepted without proof: %+v", r)
			}
			if r.Suppress && r.Outcome != notify.RecipientRejected {
				t.Errorf("suppressed although not rejected: %+v", r)
			}
		}
		r := fcmResult(t.Context(), x, device.To)
		check(r, device, status == http.StatusOK && strings.HasPrefix(r.MessageID, "projects/"))
		r = apns.result(t.Context(), x, device.To, "some bearer")
		check(r, device, status == http.StatusOK && uuid.Validate(r.MessageID) == nil)
		check(webPushResult(t.Context(), x, browser.To), browser, status >= 200 && status <= 202)
	})
}
