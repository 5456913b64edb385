package twilio

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	testToken  = "t0k3n"
	inboundURL = "https://dispatcher.example.com/v1/receipts/twilio-main/inbound"
	secretText = "my pin is 4711"
)

func client(t testing.TB, change ...func(*Account)) *Client {
	t.Helper()
	a := Account{AccountSID: testSID, AuthToken: secret.New(testToken)}
	for _, f := range change {
		f(&a)
	}
	c, err := NewClient(a)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// reader is a client as the reader of one channel's callbacks.
type reader struct {
	*Client
	channel notify.Channel
}

func (r reader) ReadCallback(_ context.Context, c *channels.Callback) (channels.Report, error) {
	return r.Client.ReadCallback(r.channel, c)
}

// callback is one of Twilio's: signed, with the parameters that all have and
// the given ones, "Name=" for none of that name.
func callback(rawURL string, fields ...string) *channels.Callback {
	form := url.Values{"AccountSid": {testSID}, "MessageSid": {messageSID}, "ApiVersion": {"2010-04-01"}, "From": {"+15005550006"}, "To": {ana}}
	for _, f := range fields {
		name, value, _ := strings.Cut(f, "=")
		if form.Set(name, value); value == "" {
			form.Del(name)
		}
	}
	return sealed(rawURL, form)
}

func sealed(rawURL string, form url.Values) *channels.Callback {
	_, path, _ := strings.Cut(rawURL, "/v1/receipts/twilio-main/")
	path, _, _ = strings.Cut(path, "?")
	c := signed(rawURL, form.Encode(), sign(secret.New(testToken), rawURL+parameters(form)))
	c.Path = path
	return c
}

func status(word string, fields ...string) *channels.Callback {
	return callback(statusURL, append([]string{"MessageStatus=" + word, "SmsStatus=" + word}, fields...)...)
}

func inbound(fields ...string) *channels.Callback {
	return callback(inboundURL, append([]string{"From=" + ana, "To=+15005550006", "SmsStatus=received"}, fields...)...)
}

func testRef(t testing.TB) channels.Ref {
	t.Helper()
	ref, err := channels.ParseRef(reference)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

func wantRefusal(t *testing.T, err error, status int) {
	t.Helper()
	var refused *channels.CallbackError
	if !errors.As(err, &refused) || refused.Status != status {
		t.Errorf("error %v (%+v), want status %d", err, refused, status)
	}
}

func TestCallbacksPassTheSuite(t *testing.T) {
	ref := testRef(t)
	answer := channels.CallbackAnswer{Status: 200, ContentType: "text/xml; charset=utf-8", Body: []byte(noReply)}
	for channel, prefix := range map[notify.Channel]string{notify.SMS: "", notify.WhatsApp: WhatsAppPrefix} {
		t.Run(string(channel), func(t *testing.T) {
			channeltest.RunCallbacks(t, channeltest.Callbacks{
				New:     func(t *testing.T) channels.CallbackReader { return reader{client(t), channel} },
				Proof:   []string{"X-Twilio-Signature"},
				Secrets: []string{testToken, secretText, "+15005550006"},
				Genuine: []channeltest.GenuineCallback{
					{
						Name: "delivered", Make: func() *channels.Callback { return status("delivered", "To="+prefix+ana) },
						Want: channels.Report{Receipts: []channels.Receipt{{Ref: ref, MessageID: messageSID, Status: notify.Delivered}}},
					},
					{
						Name: "undelivered", Make: func() *channels.Callback { return status("undelivered", "ErrorCode=30006", "ErrorMessage="+secretText) },
						Want: channels.Report{Receipts: []channels.Receipt{{
							Ref: ref, MessageID: messageSID, Status: notify.Failed, Outcome: notify.RecipientRejected, Code: "30006",
							Detail: "landline or unreachable carrier",
						}}},
					},
					{Name: "a status that is to come", Make: func() *channels.Callback { return status("teleported") }},
					{
						Name: "stop", Make: func() *channels.Callback { return inbound("From="+prefix+ana, "Body=Stop", "OptOutType=STOP") },
						Want: channels.Report{
							Consents: []channels.Consent{{Target: notify.Target{Phone: ana}, Stop: true, Reason: "stop", Code: "STOP", ID: messageSID}}, Answer: answer,
						},
					},
					{
						Name: "a message", Make: func() *channels.Callback { return inbound("From="+prefix+ana, "Body="+secretText) },
						Want: channels.Report{Answer: answer},
					},
				},
			})
		})
	}
}

func TestEachStatusIsAReceiptOfWhatItProves(t *testing.T) {
	for word, want := range map[string]notify.Status{
		"accepted": notify.Sent, "scheduled": notify.Sent, "queued": notify.Sent, "sending": notify.Sent, "sent": notify.Sent,
		"partially_delivered": notify.Sent, "delivered": notify.Delivered, "read": notify.Read,
		"failed": notify.Failed, "undelivered": notify.Failed, "canceled": notify.Failed,
		// Of messages that come in, or that nobody has heard of.
		"receiving": "", "received": "", "Delivered": "", "teleported": "",
	} {
		report, err := client(t).ReadCallback(notify.SMS, status(word))
		if err != nil {
			t.Errorf("%s: %v", word, err)
			continue
		}
		if want == "" {
			if len(report.Receipts) != 0 {
				t.Errorf("%s: %+v", word, report)
			}
			continue
		}
		if len(report.Receipts) != 1 || report.Receipts[0].Status != want || report.Receipts[0].Ref != testRef(t) ||
			report.Receipts[0].MessageID != messageSID {
			t.Errorf("%s: %+v, want %s", word, report, want)
			continue
		}
		channeltest.CheckReceipt(t, report.Receipts[0], []string{ana})
	}
}

func TestAFailedReceiptSaysWhatItsCodeMeans(t *testing.T) {
	for code, want := range map[string]channels.Receipt{
		"30001": {Outcome: notify.Throttled},
		"30002": {Outcome: notify.AccountRejected},
		"30003": {Outcome: notify.RecipientUnavailable},
		"30004": {Outcome: notify.RecipientRejected},
		"30005": {Outcome: notify.RecipientUnavailable},
		"30006": {Outcome: notify.RecipientRejected},
		"30007": {Outcome: notify.MessageRejected},
		"30008": {Outcome: notify.RecipientUnavailable},
		"30010": {Outcome: notify.MessageRejected},
		"30017": {Outcome: notify.ProviderUnavailable},
		"30022": {Outcome: notify.Throttled},
		"30034": {Outcome: notify.AccountRejected},
		"30036": {Outcome: notify.Expired},
		"30410": {Outcome: notify.Unknown},
		"30450": {Outcome: notify.Suppressed, Suppress: true, SuppressFor: pumpingBlock},
		"21610": {Outcome: notify.Suppressed, Suppress: true},
		"21211": {Outcome: notify.RecipientRejected, Suppress: true},
		"63003": {Outcome: notify.RecipientRejected},
		"63016": {Outcome: notify.MessageRejected},
		"63018": {Outcome: notify.Throttled},
		"63024": {Outcome: notify.RecipientRejected},
		"63033": {Outcome: notify.Suppressed, Suppress: true, SuppressFor: userBlock},
		"39999": {Outcome: notify.MessageRejected, Detail: "see https://www.twilio.com/docs/api/errors/39999"},
	} {
		for _, word := range []string{"failed", "undelivered"} {
			report, err := client(t).ReadCallback(notify.SMS, status(word, "ErrorCode="+code))
			if err != nil || len(report.Receipts) != 1 {
				t.Fatalf("%s: %+v, %v", code, report, err)
			}
			got := report.Receipts[0]
			channeltest.CheckReceipt(t, got, []string{ana})
			want.Ref, want.MessageID, want.Status, want.Code = testRef(t), messageSID, notify.Failed, code
			if want.Detail == "" {
				got.Detail = ""
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s %s (-want +got):\n%s", word, code, diff)
			}
		}
	}
}

// Whatever stands where the code should, it is not taken into the database.
func TestACodeThatIsNoneIsLeftOut(t *testing.T) {
	for _, code := range []string{"", "0", "-30003", "none", "14155550100", "30003x", "3e4", " 30003"} {
		report, err := client(t).ReadCallback(notify.SMS, status("failed", "ErrorCode="+code))
		if err != nil || len(report.Receipts) != 1 {
			t.Fatalf("%q: %+v, %v", code, report, err)
		}
		if r := report.Receipts[0]; r.Code != "" || r.Outcome != notify.MessageRejected {
			t.Errorf("%q: %+v", code, r)
		}
	}
}

func TestEveryCodeOfTheTablesMakesAReceipt(t *testing.T) {
	for code := range maps.Keys(messagingCodes) {
		r, ok := receipt(messageSID, "failed", code)
		if !ok || r.Code != strconv.Itoa(code) {
			t.Errorf("%d: %+v", code, r)
		}
		channeltest.CheckReceipt(t, r, nil)
	}
	for code := range maps.Keys(whatsappCodes) {
		r, _ := receipt(messageSID, "undelivered", code)
		channeltest.CheckReceipt(t, r, nil)
	}
}

func TestCallbacksThatAreRefused(t *testing.T) {
	other := strings.Replace(testSID, "0", "f", 1)
	moved := "https://dispatcher.example.com/v1/receipts/twilio-main/status/AZPnogAAcACAAAAAAAAAAQEAAgGT56IAAHAAgAAAAAAAAAM"
	for _, c := range []struct {
		name   string
		call   *channels.Callback
		change func(*channels.Callback)
		want   int
	}{
		{"unsigned", status("delivered"), func(c *channels.Callback) { c.Header.Del("X-Twilio-Signature") }, 403},
		{"signed twice", status("delivered"), func(c *channels.Callback) {
			c.Header["X-Twilio-Signature"] = append(c.Header["X-Twilio-Signature"], "x")
		}, 403},
		{"replayed for another message", status("delivered"), func(c *channels.Callback) {
			c.URL, c.Path = moved, strings.TrimPrefix(moved, "https://dispatcher.example.com/v1/receipts/twilio-main/")
		}, 403},
		{"replayed by path alone", status("delivered"), func(c *channels.Callback) { c.Path = "status/AZPnogAAcACAAAAAAAAAAQEAAgGT56IAAHAAgAAAAAAAAAM" }, 400},
		{"replayed for another account of ours", status("delivered"), func(c *channels.Callback) { c.URL = strings.Replace(c.URL, "twilio-main", "twilio-2", 1) }, 403},
		{"replayed as a message that came in", status("delivered"), func(c *channels.Callback) { c.URL, c.Path = inboundURL, "inbound" }, 403},
		{"with a parameter more", status("delivered"), func(c *channels.Callback) { c.Body = append(c.Body, "&ErrorCode=21610"...) }, 403},
		{"another account's", status("delivered", "AccountSid="+other), nil, 403},
		{"no account's", status("delivered", "AccountSid="), nil, 403},
		{"without a message", status("delivered", "MessageSid="), nil, 400},
		{"with a message that is none", status("delivered", "MessageSid=+14155550100"), nil, 400},
		{"without a status", status("", "SmsStatus=delivered"), nil, 400},
		{"for a reference that is none", callback("https://dispatcher.example.com/v1/receipts/twilio-main/status/x", "MessageStatus=sent"), nil, 400},
		{"for no reference", callback("https://dispatcher.example.com/v1/receipts/twilio-main/status/", "MessageStatus=sent"), nil, 400},
		{"by GET", status("delivered"), func(c *channels.Callback) { c.Method = http.MethodGet }, 400},
		{"without a content type", status("delivered"), func(c *channels.Callback) { c.Header.Del("Content-Type") }, 400},
		{"as json without a digest", status("delivered"), func(c *channels.Callback) { c.Header.Set("Content-Type", "application/json") }, 400},
		{"at no path of ours", callback("https://dispatcher.example.com/v1/receipts/twilio-main/voice", "MessageStatus=sent"), nil, 404},
		{"from nobody", inbound("From=", "Body=STOP"), nil, 400},
		{"from another channel", inbound("From=whatsapp:"+ana, "Body=STOP"), nil, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.change != nil {
				c.change(c.call)
			}
			report, err := client(t).ReadCallback(notify.SMS, c.call)
			wantRefusal(t, err, c.want)
			if report.Receipts != nil || report.Consents != nil {
				t.Errorf("report %+v", report)
			}
		})
	}
}

func TestKeysNeedATokenForCallbacks(t *testing.T) {
	key := func(a *Account) {
		a.AuthToken, a.APIKeySID, a.APIKeySecret = secret.Value{}, testKey, secret.New("k3y")
	}
	m := &channels.Message{Callback: statusURL}
	without := client(t, key)
	if got := without.StatusCallback(m); got != "" {
		t.Errorf("callbacks that cannot be checked are asked for at %s", got)
	}
	_, err := without.ReadCallback(notify.SMS, status("delivered"))
	wantRefusal(t, err, http.StatusForbidden)
	if !strings.Contains(err.Error(), "callback_auth_tokens") {
		t.Errorf("%v does not name the setting", err)
	}
	for _, tokens := range [][]secret.Value{
		{secret.New(testToken)}, {secret.New("old"), secret.New(testToken)}, {secret.New(testToken), secret.New("new")},
	} {
		with := client(t, key, func(a *Account) { a.CallbackAuthTokens = tokens })
		if got := with.StatusCallback(m); got != statusURL+"#rc=3&rp=ct,rt,5xx" {
			t.Errorf("callback %q", got)
		}
		if _, err := with.ReadCallback(notify.SMS, status("delivered")); err != nil {
			t.Error(err)
		}
	}
	// The secret of a key signs nothing.
	c := status("delivered")
	c.Header.Set("X-Twilio-Signature", sign(secret.New("k3y"), statusURL+parameters(mustForm(t, c))))
	_, err = client(t, key, func(a *Account) { a.CallbackAuthTokens = []secret.Value{secret.New(testToken)} }).ReadCallback(notify.SMS, c)
	wantRefusal(t, err, http.StatusForbidden)
}

func TestBothTokensHoldWhileTheyAreChanged(t *testing.T) {
	changing := client(t, func(a *Account) {
		a.AuthToken, a.CallbackAuthTokens = secret.New("next"), []secret.Value{secret.New(testToken)}
	})
	if _, err := changing.ReadCallback(notify.SMS, status("delivered")); err != nil {
		t.Error(err)
	}
	c := status("delivered")
	c.Header.Set("X-Twilio-Signature", sign(secret.New("next"), statusURL+parameters(mustForm(t, c))))
	if _, err := changing.ReadCallback(notify.SMS, c); err != nil {
		t.Error(err)
	}
}

func TestNoCallbackIsAskedForWithoutAPublicAddress(t *testing.T) {
	if got := client(t).StatusCallback(&channels.Message{}); got != "" {
		t.Errorf("callback %q", got)
	}
}
