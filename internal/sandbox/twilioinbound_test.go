package sandbox_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twilio/twilio-go/client"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// answering starts a server that reads requests, answers with a text and keeps
// what it read.
func answering(t *testing.T, status int, text string) (*httptest.Server, *[]callbackCall) {
	t.Helper()
	var calls []callbackCall
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		calls = append(calls, callbackCall{"http://" + r.Host + r.URL.RequestURI(), r.Header, body})
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}))
	t.Cleanup(srv.Close)
	return srv, &calls
}

func TestAMessageComesInAsTwilioSendsIt(t *testing.T) {
	t.Parallel()
	srv, calls := answering(t, http.StatusOK, "<Response/>")
	s := start(t, sandbox.Config{TwilioInbound: sandbox.TwilioInbound{
		SMS: srv.URL + "/sms?x=1#rc=2", WhatsApp: srv.URL + "/wa", AccountSID: twilioSID, AuthToken: "secret-token",
	}})
	for _, c := range []struct{ body, path, from, to, text, kind string }{
		{`{"from":"+14155550100","body":"STOP"}`, "/sms?x=1", "+14155550100", "+15005550006", "STOP", ""},
		{`{"provider":"twilio","from":"whatsapp:+14155550100","to":"whatsapp:+14155238887","body":"ARRET","opt_out_type":"STOP"}`, "/wa", "whatsapp:+14155550100", "whatsapp:+14155238887", "ARRET", "STOP"},
	} {
		a := send(t, http.MethodPost, s.HTTPURL()+"/sandbox/inbound", c.body)
		got := a.json(t)
		if a.status != http.StatusOK || got["http_status"] != 200.0 || got["answer"] != "<Response/>" || got["url"] != srv.URL+c.path {
			t.Errorf("%s: answer %d %v", c.body, a.status, got)
		}
		if len(*calls) != 1 {
			t.Fatalf("%d calls", len(*calls))
		}
		call := (*calls)[0]
		*calls = nil
		form, err := url.ParseQuery(string(call.body))
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{
			"MessageSid": got["message_id"].(string), "AccountSid": twilioSID, "From": c.from, "To": c.to, "Body": c.text, "OptOutType": c.kind,
		} {
			if form.Get(name) != want {
				t.Errorf("%s is %q, want %q", name, form.Get(name), want)
			}
		}
		validator := client.NewRequestValidator("secret-token")
		if call.url != srv.URL+c.path || !validator.ValidateBody(call.url, call.body, call.header.Get("X-Twilio-Signature")) {
			t.Errorf("the signature of a call to %s does not hold", call.url)
		}
	}
}

func TestMessagesThatCannotComeIn(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	s.SetTwilioInbound(sandbox.TwilioInbound{SMS: "http://127.0.0.1:1/sms", AccountSID: twilioSID, AuthToken: "secret-token"})
	for body, want := range map[string]struct {
		status int
		in     string
	}{
		`{"from":"whatsapp:+14155550100","body":"hi"}`:                                      {http.StatusConflict, "no_inbound_url"},
		`{"from":"ana","body":"hi"}`:                                                        {http.StatusBadRequest, "/from"},
		`{"from":"+14155550100","to":"whatsapp:+14155238886","body":"hi"}`:                  {http.StatusBadRequest, "/to"},
		`{"from":"+14155550100","body":"hi","provider":"meta"}`:                             {http.StatusBadRequest, "/provider"},
		`{"from":"+14155550100","body":"hi","opt_out_type":"stop"}`:                         {http.StatusBadRequest, "/opt_out_type"},
		`{"from":"+14155550100","text":"hi"}`:                                               {http.StatusBadRequest, "unknown_field"},
		`{"from":`:                                                                          {http.StatusBadRequest, "invalid_json"},
		`{"from":"+14155550100","body":"nobody listens at port 1, and the answer says so"}`: {http.StatusOK, "connection refused"},
	} {
		a := send(t, http.MethodPost, s.HTTPURL()+"/sandbox/inbound", body)
		if a.status != want.status || !strings.Contains(a.body, want.in) {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	if _, err := sandbox.New(sandbox.Config{TwilioInbound: sandbox.TwilioInbound{WhatsApp: "/inbound"}}); err == nil {
		t.Error("a url without a host was taken")
	}
}

func TestACallbackThatFailsIsMadeAgainAsItsURLSays(t *testing.T) {
	t.Parallel()
	for fragment, want := range map[string]int64{
		"":                  1, // by default after failed connections only
		"#rc=3&rp=ct,rt":    1,
		"#rc=2&rp=ct,5xx":   3,
		"#rc=1&rp=all":      2,
		"#rc=0&rp=all":      1,
		"#rc=7&rp=4xx,5xx":  2, // not a number that is allowed
		"#rc=2&rp=5xx&ct=9": 3,
	} {
		t.Run(fragment, func(t *testing.T) {
			t.Parallel()
			var calls atomic.Int64
			tokens := make(chan string, 10)
			delivered := make(chan struct{})
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.FormValue("MessageStatus") == "delivered" {
					close(delivered)
					return
				}
				calls.Add(1)
				tokens <- r.Header.Get("I-Twilio-Idempotency-Token")
				w.WriteHeader(http.StatusServiceUnavailable)
			}))
			defer srv.Close()
			s := start(t, sandbox.Config{})
			setReceipts(t, s, sandbox.Receipts{Final: sandbox.FinalDelivered, Repeat: 1})
			sms(t, s, "+14155550100", "hi", "StatusCallback", srv.URL+"/"+fragment)
			<-delivered // which comes after all that is said of "sent"
			if got := calls.Load(); got != want {
				t.Errorf("called %d times, want %d", got, want)
			}
			close(tokens)
			first := <-tokens
			for again := range tokens {
				if again != first || first == "" {
					t.Errorf("idempotency tokens %q and %q", first, again)
				}
			}
		})
	}
}

func TestALookUpShowsWhatCallbacksBeforeTheAnswerSaid(t *testing.T) {
	t.Parallel()
	s, r := start(t, sandbox.Config{}), newReceiver(t)
	setReceipts(t, s, sandbox.Receipts{Final: sandbox.FinalUndelivered, Delay: ms(60_000), BeforeAnswer: true})
	sid := sms(t, s, "+14155550100", "hi", "StatusCallback", r.URL).json(t)["sid"].(string)
	got := lookUp(t, s, "Messages/"+sid+".json").json(t)
	if got["status"] != "undelivered" || got["error_code"] != 30003.0 {
		t.Errorf("looked up, it is %v with %v", got["status"], got["error_code"])
	}
}
