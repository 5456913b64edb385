package twilio

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// The signature is over names and values without anything between them, so that
// one signature fits many forms.
func TestAFormWhoseBordersWereMovedIsRefused(t *testing.T) {
	for name, change := range map[string][2]string{
		"a name that took its value":     {"MessageStatus=delivered", "MessageStatusdelivered="},
		"a name without its sign":        {"To=%2B14155550100", "To&%2B14155550100"},
		"a value that became a name":     {"To=%2B14155550100", "To=&%2B14155550100="},
		"a value that took the next one": {"SmsStatus=delivered&To=%2B14155550100", "SmsStatus=deliveredTo%2B14155550100"},
	} {
		c := status("delivered")
		body := strings.Replace(string(c.Body), change[0], change[1], 1)
		if body == string(c.Body) {
			t.Fatalf("%s: nothing to change in %s", name, body)
		}
		c.Body = []byte(body)
		report, err := client(t).ReadCallback(notify.SMS, c)
		if name != "a value that took the next one" {
			wantRefusal(t, err, http.StatusBadRequest)
		} else if err != nil || report.Receipts[0].Status != notify.Delivered {
			t.Errorf("%s: %+v, %v: it changes nothing that is read", name, report, err)
		}
	}
}

func mustForm(t *testing.T, c *channels.Callback) url.Values {
	t.Helper()
	form, err := url.ParseQuery(string(c.Body))
	if err != nil {
		t.Fatal(err)
	}
	return form
}

// Any other value of a parameter, any parameter more or less, and any other URL
// is refused, not only what differs by a byte.
func TestNothingOfACallbackCanBeChanged(t *testing.T) {
	word := rapid.StringMatching(`[A-Za-z0-9+. ]{1,12}`)
	rapid.Check(t, func(rt *rapid.T) {
		c := status(rapid.SampledFrom([]string{"sent", "delivered", "failed"}).Draw(rt, "status"), "ErrorCode=30003")
		form := mustForm(t, c)
		names := slices.Sorted(maps.Keys(form))
		name := rapid.SampledFrom(names).Draw(rt, "name")
		switch rapid.IntRange(0, 3).Draw(rt, "change") {
		case 0:
			form.Set(name, form.Get(name)+word.Draw(rt, "value"))
		case 1:
			form.Del(name)
		case 2:
			form.Set(rapid.StringMatching(`[A-Z][a-z]{0,8}X`).Draw(rt, "new name"), word.Draw(rt, "value"))
		case 3:
			c.URL += rapid.SampledFrom([]string{"?", "?a=b", "/", "#x"}).Draw(rt, "end")
		}
		c.Body = []byte(form.Encode())
		if report, err := client(t).ReadCallback(notify.SMS, c); err == nil {
			rt.Fatalf("it was taken: %+v", report)
		}
	})
}

func FuzzReadCallback(f *testing.F) {
	for _, c := range []*channels.Callback{status("delivered"), status("failed", "ErrorCode=30003"), inbound("Body=STOP")} {
		f.Add(c.Method, c.URL, c.Path, c.Header.Get("Content-Type"), c.Header.Get("X-Twilio-Signature"), string(c.Body), true)
		f.Add(c.Method, c.URL, c.Path, "application/json", c.Header.Get("X-Twilio-Signature"), `{"AccountSid":"`+testSID+`"}`, false)
	}
	account := client(f)
	f.Fuzz(func(t *testing.T, method, rawURL, path, kind, signature, body string, sealIt bool) {
		c := &channels.Callback{
			Method: method, URL: rawURL, Path: path, Body: []byte(body),
			Header: http.Header{"Content-Type": {kind}, "X-Twilio-Signature": {signature}},
		}
		genuine := status("delivered")
		if sealIt {
			// As if Twilio itself had sent it: what it says must be fit to keep.
			form, _ := url.ParseQuery(body)
			c.Header.Set("X-Twilio-Signature", sign(secret.New(testToken), rawURL+parameters(form)))
		}
		report, err := account.ReadCallback(notify.SMS, c)
		if err != nil {
			if refused := (*channels.CallbackError)(nil); !errors.As(err, &refused) {
				t.Errorf("error %v", err)
			}
			return
		}
		channeltest.CheckReport(t, report, []string{testToken})
		if !sealIt && !slices.Contains([]string{
			genuine.Header.Get("X-Twilio-Signature"), status("failed", "ErrorCode=30003").Header.Get("X-Twilio-Signature"),
			inbound("Body=STOP").Header.Get("X-Twilio-Signature"),
		}, signature) {
			t.Errorf("taken with signature %q", signature)
		}
	})
}
