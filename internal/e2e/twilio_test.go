//go:build unix

package e2e_test

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// behindProxy starts a node that is reached at the address of a proxy, as
// http.public_url says, and calls it for callbacks only.
func (c *cluster) behindProxy(t *testing.T) (*node, string) {
	t.Helper()
	var target atomic.Pointer[url.URL]
	proxy := httptest.NewServer(&httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target.Load()) }})
	t.Cleanup(proxy.Close)
	c.edit(t, func(file object) { file["http"].(object)["public_url"] = proxy.URL })
	n := c.begin(t)
	u, err := url.Parse(n.url)
	if err != nil {
		t.Fatal(err)
	}
	target.Store(u)
	n.await(t, "/readyz", http.StatusOK)
	return n, proxy.URL
}

func (c *cluster) receipts(t *testing.T, r sandbox.Receipts) {
	t.Helper()
	if err := c.sandbox.SetReceipts(r); err != nil {
		t.Fatal(err)
	}
}

func TestAnSMSThatIsUndeliveredFallsBack(t *testing.T) {
	t.Parallel()
	for name, r := range map[string]sandbox.Receipts{
		"by callback":                   {Final: sandbox.FinalUndelivered, Repeat: 1},
		"by callbacks that come twice":  {Final: sandbox.FinalUndelivered, Repeat: 2, Shuffle: true},
		"by one that precedes its call": {Final: sandbox.FinalUndelivered, Repeat: 1, BeforeAnswer: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, quick)
			n, _ := c.behindProxy(t)
			c.receipts(t, r)
			v := n.finished(t, n.post(t, object{
				"to":      object{"sms": "+14155550100", "email": "ana@example.com"},
				"chain":   []object{{"channel": "sms", "success": "delivered", "within": "1m"}, {"channel": "email"}},
				"content": object{"title": "Deploy failed", "body": "api is down"},
			}))
			if sms := v.Steps[0]; sms.Status != "failed" || sms.Because != "undelivered: recipient_unavailable" || len(sms.Attempts) != 1 {
				t.Errorf("the sms step is %+v", sms)
			}
			if email := v.Steps[1]; v.Status != "sent" || email.Status != "sent" {
				t.Errorf("it ended as %+v", v)
			}
			for _, call := range c.sandbox.Callbacks() {
				if call.HTTPStatus/100 != 2 {
					t.Errorf("a callback was answered with %+v", call)
				}
			}
		})
	}
}

func TestAnSMSThatIsDeliveredStaysDelivered(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick)
	n, public := c.behindProxy(t)
	c.receipts(t, sandbox.Receipts{Final: sandbox.FinalDelivered, Repeat: 1})
	id := n.post(t, object{
		"to":      object{"sms": "+14155550100", "email": "ana@example.com"},
		"chain":   []object{{"channel": "sms", "success": "delivered", "within": "1m"}, {"channel": "email"}},
		"content": object{"title": "Deploy failed", "body": "x"},
	})
	if v := n.finished(t, id); v.Status != "delivered" || v.Steps[1].Status != "pending" && v.Steps[1].Status != "canceled" {
		t.Errorf("it ended as %+v", v)
	}
	// What is not Twilio's changes nothing, although it knows everything but the token.
	sent := c.received("twilio")[0]
	callback, _, _ := strings.Cut(sent.Headers["StatusCallback"], "#")
	if !strings.HasPrefix(callback, public+"/v1/receipts/twilio-main/status/") {
		t.Fatalf("the callback is to go to %q", callback)
	}
	form := url.Values{
		"AccountSid": {config.SandboxTwilioSID}, "MessageSid": {sent.Answer.ID}, "MessageStatus": {"failed"}, "ErrorCode": {"21610"},
	}
	for _, signature := range []string{"", "RSOYDt4T1cUTdK1PDd93/VVr8B8="} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, callback, strings.NewReader(form.Encode()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if signature != "" {
			req.Header.Set("X-Twilio-Signature", signature)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("a forged callback was answered with %d", resp.StatusCode)
		}
	}
	if v := n.show(t, id); v.Status != "delivered" {
		t.Errorf("after a forged callback it is %+v", v)
	}
}

func TestWithoutCallbacksTwilioIsAsked(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick, func(a account) { a["receipt_window"] = "5s" })
	n := c.serve(t) // which has no public address
	c.receipts(t, sandbox.Receipts{Final: sandbox.FinalDelivered, Repeat: 1})
	if v := n.finished(t, n.post(t, object{"to": object{"sms": "+14155550100"}, "content": object{"body": "x"}})); v.Status != "delivered" {
		t.Errorf("it ended as %+v", v)
	}
	if calls := c.sandbox.Callbacks(); len(calls) != 0 {
		t.Errorf("callbacks were asked for: %+v", calls)
	}
}

func TestWhoSaysStopIsNotWrittenToUntilTheySayStart(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick, func(a account) { a["receipt_window"] = "30s" }) // on a busy machine, too
	n, public := c.behindProxy(t)
	c.receipts(t, sandbox.Receipts{Final: sandbox.FinalDelivered, Repeat: 1})
	c.sandbox.SetTwilioInbound(sandbox.TwilioInbound{
		SMS: public + "/v1/receipts/twilio-main/inbound", AccountSID: config.SandboxTwilioSID, AuthToken: config.SandboxTwilioToken,
	})
	say := func(body string) {
		t.Helper()
		got, err := c.sandbox.Receive(t.Context(), sandbox.Inbound{From: "+14155550100", Body: body})
		if err != nil || got.HTTPStatus != http.StatusOK || !strings.HasSuffix(got.Answer, "<Response/>") {
			t.Fatalf("%s was answered with %+v, %v", body, got, err)
		}
	}
	message := object{"to": object{"sms": "+14155550100"}, "content": object{"body": "x"}}
	for _, step := range []struct{ say, want string }{
		{"", "delivered"}, {"hello, who is this?", "delivered"}, {" Stop", "suppressed"}, {"START", "delivered"},
	} {
		if step.say != "" {
			say(step.say)
		}
		if v := n.finished(t, n.post(t, message)); v.Status != step.want {
			t.Errorf("after %q it ended as %+v, want %s", step.say, v, step.want)
		}
	}
	if got := c.received("twilio"); len(got) != 3 {
		t.Errorf("%d messages were sent, want 3", len(got))
	}
	// What people write is nobody's business.
	if log := n.stderr.String(); strings.Contains(log, "who is this") || strings.Contains(log, "4155550100") {
		t.Errorf("the log holds what a person wrote, or their number:\n%s", log)
	}
}
