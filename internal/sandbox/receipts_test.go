package sandbox_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/twilio/twilio-go/client"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

func statuses(t *testing.T, r *receiver, n int) []string {
	t.Helper()
	var out []string
	for range n {
		out = append(out, r.next(t).form(t).Get("MessageStatus"))
	}
	return out
}

func TestTwilioCallbacksAreSignedAsTheVendorsLibraryChecks(t *testing.T) {
	t.Parallel()
	s, r := start(t, sandbox.Config{}), newReceiver(t)
	setReceipts(t, s, sandbox.Receipts{Final: sandbox.FinalFailed})
	target := r.URL + "/receipts?token=abc&x=1"
	sid := sms(t, s, "whatsapp:+14155550100", "hi", "StatusCallback", target+"#rc=3").json(t)["sid"]
	c := r.next(t)
	if c.url != target {
		t.Errorf("called %s, want %s", c.url, target)
	}
	validator := client.NewRequestValidator("secret-token")
	if !validator.ValidateBody(target, c.body, c.header.Get("X-Twilio-Signature")) {
		t.Error("the signature does not hold")
	}
	form := c.form(t)
	if form.Get("MessageSid") != sid || form.Get("MessageStatus") != "failed" || form.Get("ErrorCode") != "30008" ||
		form.Get("ChannelToAddress") != "+14155550100" || form.Get("AccountSid") != twilioSID {
		t.Errorf("form %v", form)
	}
}

func TestACallbackIsSignedWithTheConfiguredToken(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{TwilioTokens: map[string]string{twilioSID: "secret-token"}})
	r := newReceiver(t)
	setReceipts(t, s, sandbox.Receipts{Final: sandbox.FinalFailed})
	sms(t, s, "+14155550100", "hi", "StatusCallback", r.URL)
	c := r.next(t)
	validator := client.NewRequestValidator("secret-token")
	if !validator.ValidateBody(r.URL+"/", c.body, c.header.Get("X-Twilio-Signature")) &&
		!validator.ValidateBody(r.URL, c.body, c.header.Get("X-Twilio-Signature")) {
		t.Error("the signature does not hold")
	}
}

func TestReceiptsEndAsTold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		final, to string
		want      []string
	}{
		{sandbox.FinalDelivered, "+14155550100", []string{"sent", "delivered"}},
		{sandbox.FinalUndelivered, "+14155550100", []string{"sent", "undelivered"}},
		{sandbox.FinalFailed, "+14155550100", []string{"failed"}},
		{sandbox.FinalRead, "whatsapp:+14155550100", []string{"sent", "delivered", "read"}},
		{sandbox.FinalRead, "+14155550100", []string{"sent", "delivered"}},
		{sandbox.FinalNone, "+15005550014", []string{"sent", "delivered"}},
		{sandbox.FinalDelivered, "+15005550010", []string{"sent", "undelivered"}},
	} {
		t.Run(tt.final+" to "+tt.to, func(t *testing.T) {
			t.Parallel()
			s, r := start(t, sandbox.Config{}), newReceiver(t)
			setReceipts(t, s, sandbox.Receipts{Final: tt.final, Delay: ms(2)})
			sms(t, s, tt.to, "hi", "StatusCallback", r.URL)
			if got := statuses(t, r, len(tt.want)); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}

func TestNoReceiptsMeansNone(t *testing.T) {
	t.Parallel()
	s, r := start(t, sandbox.Config{}), newReceiver(t)
	setReceipts(t, s, sandbox.Receipts{Final: sandbox.FinalNone})
	sid := sms(t, s, "+14155550100", "hi", "StatusCallback", r.URL).json(t)["sid"].(string)
	if got := lookUp(t, s, "Messages/"+sid+".json").json(t)["status"]; got != "sent" {
		t.Errorf("looked up, it is %v", got)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(r.calls) + len(s.Callbacks()); n != 0 {
		t.Errorf("%d callbacks", n)
	}
}

func TestReceiptsRepeat(t *testing.T) {
	t.Parallel()
	s, r := start(t, sandbox.Config{}), newReceiver(t)
	setReceipts(t, s, sandbox.Receipts{Final: sandbox.FinalDelivered, Repeat: 2})
	sms(t, s, "+14155550100", "hi", "StatusCallback", r.URL)
	want := []string{"sent", "sent", "delivered", "delivered"}
	if got := statuses(t, r, 4); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestShuffledReceiptsAreAllThereAndOutOfOrder(t *testing.T) {
	t.Parallel()
	s, r := start(t, sandbox.Config{}), newReceiver(t)
	setReceipts(t, s, sandbox.Receipts{Final: sandbox.FinalRead, Repeat: 2, Shuffle: true})
	inOrder := []string{"sent", "sent", "delivered", "delivered", "read", "read"}
	for range 20 {
		sms(t, s, "whatsapp:+14155550100", "hi", "StatusCallback", r.URL)
		got := statuses(t, r, len(inOrder))
		if slices.Equal(got, inOrder) {
			t.Errorf("came in order: %v", got)
		}
		slices.SortStableFunc(got, func(a, b string) int { return slices.Index(inOrder, a) - slices.Index(inOrder, b) })
		if !slices.Equal(got, inOrder) {
			t.Errorf("sorted they are %v", got)
		}
	}
}

func TestReceiptsBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	s, r := start(t, sandbox.Config{}), newReceiver(t)
	setReceipts(t, s, sandbox.Receipts{Final: sandbox.FinalDelivered, Delay: ms(60_000), BeforeAnswer: true})
	sms(t, s, "+14155550100", "hi", "StatusCallback", r.URL)
	if n := len(r.calls); n != 2 {
		t.Errorf("%d callbacks had come when the answer did", n)
	}
}

func TestReceiptsComeAlsoWhereTheAnswerWasDropped(t *testing.T) {
	t.Parallel()
	s, r := start(t, sandbox.Config{}), newReceiver(t)
	setReceipts(t, s, sandbox.Receipts{Final: sandbox.FinalFailed})
	setFaults(t, s, sandbox.Rule{Provider: "twilio", Answer: sandbox.RuleAnswer{Drop: sandbox.DropAfter}})
	if a, err := trySMS(t, s, "+14155550100", "hi", "StatusCallback", r.URL); err == nil {
		t.Fatalf("answered %d", a.status)
	}
	if got := r.next(t).form(t).Get("MessageSid"); got != last(t, s).Answer.ID {
		t.Errorf("a receipt of %s", got)
	}
}

func TestMetaWebhooksAreSignedAndCarryTheCallersData(t *testing.T) {
	t.Parallel()
	r := newReceiver(t)
	s := start(t, sandbox.Config{Meta: sandbox.MetaWebhook{URL: r.URL + "/meta", AppSecret: "app secret"}})
	setReceipts(t, s, sandbox.Receipts{Final: sandbox.FinalUndelivered})
	a := send(t, http.MethodPost, s.HTTPURL()+"/v23.0/1234/messages",
		`{"messaging_product":"whatsapp","to":"14155550100","type":"text","text":{"body":"hi"},"biz_opaque_callback_data":"token-1"}`,
		"Authorization", "Bearer x", "Content-Type", "application/json")
	id := a.json(t)["messages"].([]any)[0].(map[string]any)["id"]
	for _, want := range []string{"sent", "failed"} {
		c := r.next(t)
		mac := hmac.New(sha256.New, []byte("app secret"))
		mac.Write(c.body)
		if got := c.header.Get("X-Hub-Signature-256"); got != "sha256="+hex.EncodeToString(mac.Sum(nil)) {
			t.Errorf("signature %q", got)
		}
		var hook struct {
			Entry []struct {
				Changes []struct {
					Value struct {
						Metadata struct {
							ID string `json:"phone_number_id"`
						} `json:"metadata"`
						Statuses []struct {
							ID, Status string
							Recipient  string                 `json:"recipient_id"`
							Opaque     string                 `json:"biz_opaque_callback_data"`
							Errors     []struct{ Code int64 } `json:"errors"`
						} `json:"statuses"`
					} `json:"value"`
				} `json:"changes"`
			} `json:"entry"`
		}
		if err := json.Unmarshal(c.body, &hook); err != nil {
			t.Fatal(err)
		}
		value := hook.Entry[0].Changes[0].Value
		st := value.Statuses[0]
		if st.ID != id || st.Status != want || st.Recipient != "14155550100" || st.Opaque != "token-1" || value.Metadata.ID != "1234" {
			t.Errorf("status %+v of %v", st, id)
		}
		if failed := want == "failed"; failed != (len(st.Errors) == 1 && st.Errors[0].Code == 131026) {
			t.Errorf("errors %v with %s", st.Errors, want)
		}
	}
}

func TestCallbacksAreRememberedWithWhatTheyWereAnswered(t *testing.T) {
	t.Parallel()
	s, r := start(t, sandbox.Config{}), newReceiver(t)
	setReceipts(t, s, sandbox.Receipts{Final: sandbox.FinalFailed, BeforeAnswer: true})
	sms(t, s, "+14155550100", "hi", "StatusCallback", r.URL)
	r.Server.Close()
	sms(t, s, "+14155550100", "hi", "StatusCallback", r.URL)
	got := s.Callbacks()
	if len(got) != 2 || got[0].HTTPStatus != http.StatusNoContent || got[0].Error != "" ||
		got[1].HTTPStatus != 0 || got[1].Error == "" {
		t.Errorf("remembered %+v", got)
	}
}
