package twilio

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // what Twilio signs with
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"
	"testing"

	sdk "github.com/twilio/twilio-go/client"
	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	messageSID = "SM0123456789abcdef0123456789abcdef"
	reference  = "AZPnogAAcACAAAAAAAAAAQEAAgGT56IAAHAAgAAAAAAAAAI"
	statusURL  = "https://dispatcher.example.com/v1/receipts/twilio-main/status/" + reference
)

// signed is a request with a signature.
func signed(rawURL, body, signature string) *channels.Callback {
	return &channels.Callback{
		Method: http.MethodPost, URL: rawURL, Body: []byte(body),
		Header: http.Header{
			"Content-Type": {"application/x-www-form-urlencoded; charset=UTF-8"}, "X-Twilio-Signature": {signature},
		},
	}
}

func isSigned(c *channels.Callback, tokens ...string) bool {
	values := make([]secret.Value, 0, len(tokens))
	for _, token := range tokens {
		values = append(values, secret.New(token))
	}
	form, err := url.ParseQuery(string(c.Body))
	return err == nil && signedBy(values, c, form)
}

// The first is the example of Twilio's documentation. The others were computed
// outside of Go, by the algorithm as that documentation describes it.
func TestSignaturesThatWereMadeElsewhereHold(t *testing.T) {
	const (
		documented = "CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309&To=%2B18005551212"
		delivered  = "ApiVersion=2010-04-01&SmsStatus=delivered&SmsSid=" + messageSID + "&MessageStatus=delivered&To=%2B14155550100" +
			"&From=%2B15005550006&MessageSid=" + messageSID + "&AccountSid=" + testSID + "&RawDlrDoneDate=2611301608"
		stop     = "AccountSid=" + testSID + "&Body=Stop+&From=%2B14155550100&MessageSid=" + messageSID + "&To=%2B15005550006"
		withPort = "https://dispatcher.example.com:443/v1/receipts/twilio-main/status/" + reference
		ipv6     = "http://[2001:db8::1]/v1/receipts/twilio-main/inbound"
		ipv6Port = "http://[2001:db8::1]:80/v1/receipts/twilio-main/inbound"
		odd      = "http://[2001:db8::1]:8080/v1/receipts/twilio-main/inbound"
		object   = `{"AccountSid":"` + testSID + `","MessageSid":"` + messageSID + `","MessageStatus":"read"}`
		digest   = "?bodySHA256=ae6fbb81e316f3cfe281c76b6cfda9299d28adb370ddbd5f96374a780241c20d"
	)
	for _, c := range []struct {
		name, token, url, body, signature string
		want                              bool
	}{
		{"documented", "12345", "https://mycompany.com/myapp.php?foo=1&bar=2", documented, "RSOYDt4T1cUTdK1PDd93/VVr8B8=", true},
		{"another token", "12346", "https://mycompany.com/myapp.php?foo=1&bar=2", documented, "RSOYDt4T1cUTdK1PDd93/VVr8B8=", false},
		{"another query", "12345", "https://mycompany.com/myapp.php?foo=1&bar=3", documented, "RSOYDt4T1cUTdK1PDd93/VVr8B8=", false},
		{"a status", "t0k3n", statusURL, delivered, "ZJhc43o/fQh8h7AteLYcRBNLWrU=", true},
		{"signed with the port", "t0k3n", statusURL, delivered, "Q6+aLP1+BlrIb3DXkE+NTdTXJbo=", true},
		{"called with the port", "t0k3n", withPort, delivered, "Q6+aLP1+BlrIb3DXkE+NTdTXJbo=", true},
		{"called with the port, signed without", "t0k3n", withPort, delivered, "ZJhc43o/fQh8h7AteLYcRBNLWrU=", true},
		{"another scheme", "t0k3n", strings.Replace(statusURL, "https", "http", 1), delivered, "ZJhc43o/fQh8h7AteLYcRBNLWrU=", false},
		{"ipv6", "t0k3n", ipv6, stop, "jLh3vzUIG+FbM042GsoANFA7A6Y=", true},
		{"ipv6 with its port", "t0k3n", ipv6Port, stop, "jLh3vzUIG+FbM042GsoANFA7A6Y=", true},
		{"ipv6 with a port of its own", "t0k3n", odd, stop, "jLh3vzUIG+FbM042GsoANFA7A6Y=", true},
		{"json", "t0k3n", statusURL + digest, object, "t42heC/XoL0zMw0EO8LO7K9mCas=", true},
		{"json that was changed", "t0k3n", statusURL + digest, strings.Replace(object, "read", "sent", 1), "t42heC/XoL0zMw0EO8LO7K9mCas=", false},
		{"json with its digest left out", "t0k3n", statusURL, object, "t42heC/XoL0zMw0EO8LO7K9mCas=", false},
		{"json with an empty digest", "t0k3n", statusURL + "?bodySHA256=", object, "t42heC/XoL0zMw0EO8LO7K9mCas=", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := isSigned(signed(c.url, c.body, c.signature), c.token); got != c.want {
				t.Errorf("it holds: %t", got)
			}
		})
	}
}

func TestASignatureOfEitherTokenHolds(t *testing.T) {
	c := signed("https://mycompany.com/myapp.php?foo=1&bar=2",
		"CallSid=CA1234567890ABCDE&Caller=%2B14158675309&Digits=1234&From=%2B14158675309&To=%2B18005551212", "RSOYDt4T1cUTdK1PDd93/VVr8B8=")
	for _, tokens := range [][]string{{"12345"}, {"old", "12345"}, {"12345", "new"}, {"old", "12345", "new"}} {
		if !isSigned(c, tokens...) {
			t.Errorf("it does not hold with %q", tokens)
		}
	}
	for _, tokens := range [][]string{nil, {""}, {"old", "new"}} {
		if isSigned(c, tokens...) {
			t.Errorf("it holds with %q", tokens)
		}
	}
}

func TestSpellingsDifferInThePortOnly(t *testing.T) {
	for raw, want := range map[string]string{
		"https://x.test/a":          "https://x.test:443/a",
		"http://x.test":             "http://x.test:80",
		"https://x.test:443/a?b=c":  "https://x.test/a?b=c",
		"https://x.test:8443/a":     "https://x.test/a",
		"http://[::1]/a":            "http://[::1]:80/a",
		"http://[::1]:8080/a":       "http://[::1]/a",
		"https://x.test/a%2Fb//c?=": "https://x.test:443/a%2Fb//c?=",
		"https://x.test//x.test/":   "https://x.test:443//x.test/",
	} {
		if got := spellings(raw); len(got) != 2 || got[0] != raw || got[1] != want {
			t.Errorf("spellings of %s: %q, want also %s", raw, got, want)
		}
	}
	for _, raw := range []string{"", "x", "http://[::1/", "/v1/receipts"} {
		if got := spellings(raw); len(got) != 1 || got[0] != raw {
			t.Errorf("spellings of %q: %q", raw, got)
		}
	}
}

// A value that stands twice is signed once, and values are signed in their order:
// so do the vendor's libraries for Node and Python. The one for Go is not asked,
// since it takes the first value only.
func TestRepeatedParametersAreSignedOnceEachInOrder(t *testing.T) {
	if got, want := parameters(url.Values{"b": {"2", "1", "2"}, "a": {""}}), "ab1b2"; got != want {
		t.Errorf("signed text %q, want %q", got, want)
	}
}

// Where the vendor's validator can be relied on, both say the same.
func TestSignaturesAgreeWithTheVendorsLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		token := rapid.StringMatching(`[0-9a-f]{1,32}`).Draw(t, "token")
		form := url.Values{}
		for name, value := range rapid.MapOf(rapid.StringMatching(`[A-Z][A-Za-z]{0,8}`), rapid.String()).Draw(t, "form") {
			form.Set(name, value)
		}
		rawURL := rapid.StringMatching(`https?://[a-z]{1,8}\.test(:[1-9][0-9]{1,3})?/[a-z0-9]{0,8}(\?[a-z]=[a-z0-9]{0,4})?`).Draw(t, "url")
		mac := hmac.New(sha1.New, []byte(token))
		mac.Write([]byte(rapid.SampledFrom(spellings(rawURL)).Draw(t, "spelling") + parameters(form)))
		signature := base64.StdEncoding.EncodeToString(mac.Sum(nil))
		if rapid.Bool().Draw(t, "forged") {
			signature = rapid.StringMatching(`[A-Za-z0-9+/]{27}=`).Draw(t, "signature")
		}
		c := signed(rawURL, form.Encode(), signature)
		validator := sdk.NewRequestValidator(token)
		if got, want := isSigned(c, token), validator.ValidateBody(rawURL, c.Body, signature); got != want {
			t.Fatalf("it holds: %t; the vendor's library says %t", got, want)
		}
	})
}
