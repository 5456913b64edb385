package email

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const sesMessageID = "0102018a7b3c4d5e-11111111-2222-3333-4444-555555555555-000000"

// mailOf is the message that an event is about.
func mailOf(more string) string {
	return `"mail":{"timestamp":"2026-11-30T09:31:00.000Z","messageId":"` + sesMessageID + `","destination":["ana@example.org"]` + more + `}`
}

func ours() string {
	b, _ := json.Marshal(myID())
	return `,"headersTruncated":false,"headers":[{"name":"From","value":"alerts@example.com"}],"commonHeaders":{"messageId":` + string(b) + `}`
}

func TestWhatSESTellsIsRead(t *testing.T) {
	a := newAmazon(t)
	at := time.Date(2026, 11, 30, 9, 31, 1, 500_000_000, time.UTC)
	event := func(kind, member, body string) string {
		return `{"notificationType":"` + kind + `","` + member + `":{"timestamp":"2026-11-30T09:31:01.500Z"` + body + `},` + mailOf(ours()) + `}`
	}
	bounce := func(kind, subtype, recipient string) string {
		return event("Bounce", "bounce", `,"bounceType":"`+kind+`","bounceSubType":"`+subtype+`","bouncedRecipients":[{"emailAddress":"ana@example.org"`+recipient+`}]`)
	}
	complaint := func(more string) string {
		return event("Complaint", "complaint", `,"complainedRecipients":[{"emailAddress":"ana@example.org"}]`+more)
	}
	of := func(s notify.Status, change ...func(*channels.Receipt)) []channels.Receipt {
		r := channels.Receipt{Ref: myRef, MessageID: sesMessageID, Status: s, At: at}
		for _, f := range change {
			f(&r)
		}
		return []channels.Receipt{r}
	}
	failed := func(o notify.Outcome, code, detail string, suppress bool) []channels.Receipt {
		return of(notify.Failed, func(r *channels.Receipt) { r.Outcome, r.Code, r.Detail, r.Suppress = o, code, detail, suppress })
	}
	ana := notify.Target{Email: &notify.EmailAddress{Address: "ana@example.org"}}
	const exact = `,"action":"failed","status":"5.1.1","diagnosticCode":"smtp; 550 5.1.1 user unknown"`
	var cases []channeltest.GenuineCallback
	for _, tt := range []struct {
		name, text string
		receipts   []channels.Receipt
		consents   []channels.Consent
		said       string
	}{
		{"a bounce for good", bounce("Permanent", "General", exact), failed(notify.RecipientRejected, "5.1.1", "bounced", true), nil, "taken: failed"},
		{"a bounce for policy", bounce("Permanent", "General", `,"status":"5.7.1"`), failed(notify.MessageRejected, "5.7.1", "bounced", false), nil, "taken: failed"},
		{"a bounce without more", bounce("Permanent", "NoEmail", ""), failed(notify.RecipientRejected, "Permanent/NoEmail", "bounced for good", true), nil, "taken: failed"},
		{"on ses's list", bounce("Permanent", "Suppressed", exact), failed(notify.RecipientRejected, "Permanent/Suppressed", "on ses's own list of addresses that bounced", true), nil, "taken: failed"},
		{"on the account's list", bounce("Permanent", "OnAccountSuppressionList", exact), failed(notify.Suppressed, "Permanent/OnAccountSuppressionList", "on the suppression list of the account at ses", false), nil, "taken: failed"},
		{"a full mailbox", bounce("Transient", "MailboxFull", `,"action":"failed","status":"4.2.2"`), failed(notify.RecipientUnavailable, "Transient/MailboxFull", "bounced", false), nil, "taken: failed"},
		{"too large", bounce("Transient", "MessageTooLarge", `,"action":"failed"`), failed(notify.MessageRejected, "Transient/MessageTooLarge", "bounced for what is in it", false), nil, "taken: failed"},
		{"nobody knows why", bounce("Undetermined", "Undetermined", ""), failed(notify.RecipientUnavailable, "Undetermined/Undetermined", "bounced", false), nil, "taken: failed"},
		{"somebody who is away", bounce("Transient", "General", ""), of(notify.Sent, func(r *channels.Receipt) { r.Code, r.Detail = "Transient/General", "an answer that is no bounce" }), nil, "taken: sent"},
		{"a delivery", event("Delivery", "delivery", `,"recipients":["ana@example.org"]`), of(notify.Delivered), nil, "taken: delivered"},
		{"a delivery as a published event", strings.Replace(event("Delivery", "delivery", ""), "notificationType", "eventType", 1), of(notify.Delivered), nil, "taken: delivered"},
		{"a complaint", complaint(`,"complaintFeedbackType":"abuse","feedbackId":"0102-1"`), of(notify.Delivered), []channels.Consent{{Target: ana, Ref: myRef, Stop: true, Reason: "complaint", Code: "abuse", ID: "0102-1", At: at}}, "taken: complaint"},
		{"praise", complaint(`,"complaintFeedbackType":"not-spam"`), of(notify.Delivered), nil, "taken: complaint"},
		{"kept back for a complaint", complaint(`,"complaintSubType":"OnAccountSuppressionList"`), failed(notify.Suppressed, "OnAccountSuppressionList", "on the suppression list of the account at ses", false), nil, "taken: failed"},
		{"malware", event("Reject", "reject", ""), of(notify.Failed, func(r *channels.Receipt) {
			r.Outcome, r.Code, r.Detail, r.At = notify.MessageRejected, "Reject", "ses found malware in it", time.Time{}
		}), nil, "taken: failed"},
		{"somebody opened it, or a machine did", event("Open", "open", ""), nil, nil, "ignored: it tells nothing of arriving"},
		{"without the headers of the message", strings.Replace(event("Delivery", "delivery", ""), ours(), "", 1), of(notify.Delivered, func(r *channels.Receipt) { r.Ref = channels.Ref{} }), nil, "taken: delivered"},
		{"with the header of its own only", strings.Replace(event("Delivery", "delivery", ""), ours(), `,"headers":[{"name":"x-dispatcher-ref","value":"`+myRef.String()+`"}]`, 1), of(notify.Delivered), nil, "taken: delivered"},
		{"of a message that it does not name", `{"notificationType":"Delivery","mail":{"messageId":"x"}}`, nil, nil, "ignored: it names no message"},
		{"a topic being tried", "Successfully validated SNS topic for Amazon SES event publishing.", nil, nil, "ignored: no event of ses"},
	} {
		cases = append(cases, channeltest.GenuineCallback{
			Name: tt.name, Make: func() *channels.Callback { return a.notification(t, tt.text) },
			Want: channels.Report{Receipts: tt.receipts, Consents: tt.consents, Answer: said(tt.said)},
		})
	}
	subject := "Amazon SES Email Event Notification"
	cases = append(cases,
		channeltest.GenuineCallback{
			Name: "signed in the older way, with a subject", Want: channels.Report{Receipts: of(notify.Delivered), Answer: said("taken: delivered")},
			Make: func() *channels.Callback {
				return a.notification(t, event("Delivery", "delivery", ""), func(m *snsMessage) { m.SignatureVersion, m.Subject = "1", &subject })
			},
		},
		channeltest.GenuineCallback{
			Name: "the end of the subscription", Want: channels.Report{Answer: said("taken: nothing more comes from this topic")},
			Make: func() *channels.Callback {
				return a.notification(t, "", subscription, func(m *snsMessage) { m.Type = snsUnsubscribe })
			},
		},
	)
	for i := range cases { // signing is slow, and the suite makes thousands
		made := cases[i].Make()
		cases[i].Make = func() *channels.Callback {
			c := *made
			c.Header, c.Body = made.Header.Clone(), bytes.Clone(made.Body)
			return &c
		}
	}
	channeltest.RunCallbacks(t, channeltest.Callbacks{
		New: func(t *testing.T) channels.CallbackReader { return a.subscribed(t) }, Genuine: cases[len(cases)-3:],
		Unsigned: []string{"Content-Type", "X-Amz-Sns-Message-Type"}, Secrets: []string{"pods are down"},
	})
	p := a.subscribed(t)
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			got, err := p.ReadCallback(t.Context(), c.Make())
			if diff := cmp.Diff(c.Want, got); diff != "" || err != nil {
				t.Errorf("%v, report (-want +got):\n%s", err, diff)
			}
			channeltest.CheckReport(t, got, nil)
		})
	}
}

func TestOnlySNSItselfIsBelieved(t *testing.T) {
	a := newAmazon(t)
	text := `{"notificationType":"Delivery",` + mailOf(ours()) + `}`
	after := func(change func(*snsMessage)) *channels.Callback { // of what was signed
		c := a.notification(t, text)
		var m snsMessage
		if err := json.Unmarshal(c.Body, &m); err != nil {
			t.Fatal(err)
		}
		change(&m)
		return posted(t, &m)
	}
	at := func(url string) *channels.Callback {
		return a.notification(t, text, func(m *snsMessage) { m.SigningCertURL = url })
	}
	raw := a.notification(t, text)
	raw.Body = []byte(text)
	for name, c := range map[string]*channels.Callback{
		"another message":                  after(func(m *snsMessage) { m.Message = strings.Replace(text, "Delivery", "Complaint", 1) }),
		"a subject that was added":         after(func(m *snsMessage) { m.Subject = new(string) }),
		"another time":                     after(func(m *snsMessage) { m.Timestamp = "2027-11-30T09:31:02.000Z" }),
		"no signature":                     after(func(m *snsMessage) { m.Signature = "" }),
		"a signature of another version":   after(func(m *snsMessage) { m.SignatureVersion = "1" }),
		"a version that is none":           after(func(m *snsMessage) { m.SignatureVersion = "3" }),
		"another type":                     after(func(m *snsMessage) { m.Type = snsUnsubscribe }),
		"another topic, genuinely":         a.notification(t, text, func(m *snsMessage) { m.TopicARN += "2" }),
		"the certificate of a stranger":    at("https://sns.eu-west-1.amazonaws.com.evil.example.com/x.pem"),
		"one of another region":            at("https://sns.us-east-1.amazonaws.com/x.pem"),
		"one that is not fetched securely": at("http://" + snsHost + "/x.pem"),
		"one at another port":              at("https://" + snsHost + ":444/x.pem"),
		"one with a user":                  at("https://x@" + snsHost + "/x.pem"),
		"one that is no certificate":       at("https://" + snsHost + "/?Action=ConfirmSubscription&x=.pem"),
		"one that is not there":            at("https://" + snsHost + "/other.pem"),
		"delivered raw":                    raw,
		"a subscription to elsewhere":      a.notification(t, "", subscription, func(m *snsMessage) { m.SubscribeURL = "https://evil.example.com/" }),
	} {
		t.Run(name, func(t *testing.T) {
			got, err := a.subscribed(t).ReadCallback(t.Context(), c)
			refused, ok := errors.AsType[*channels.CallbackError](err)
			if !ok || refused.Status != http.StatusForbidden || got.Receipts != nil {
				t.Errorf("%v, report %+v", err, got)
			}
		})
	}
	if a.confirmed.Load() != nil {
		t.Error("a subscription was confirmed")
	}
}

func TestACertificateMustBeOfSNSAndValidNow(t *testing.T) {
	key := signingKey()
	strange, err := tlsKeyCertificate()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		pem  []byte
		want int // 0: taken
	}{
		{"of a region", inPEM(certified(t, key, func(c *x509.Certificate) { c.DNSNames = []string{"sns-signing.eu-west-1.amazonaws.com"} })), 0},
		{"with a common name only", inPEM(certified(t, key, func(c *x509.Certificate) { c.DNSNames = nil })), 0},
		{"of another service", inPEM(certified(t, key, func(c *x509.Certificate) { c.DNSNames = []string{"s3.amazonaws.com"} })), 403},
		{"of a name that only looks like it", inPEM(certified(t, key, func(c *x509.Certificate) { c.DNSNames = []string{"sns.amazonaws.com.evil.example"} })), 403},
		{"over", inPEM(certified(t, key, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })), 403},
		{"to come", inPEM(certified(t, key, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) })), 403},
		{"of an authority", inPEM(certified(t, key, func(c *x509.Certificate) { c.IsCA, c.BasicConstraintsValid = true, true })), 403},
		{"of another kind of key", strange, 403},
		{"a key", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: x509.MarshalPKCS1PublicKey(&key.PublicKey)}), 403},
		{"garbage", []byte("<html>"), 403},
		{"endless", make([]byte, maxCert+1), 503},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAmazon(t)
			a.pem = tt.pem
			_, err := a.subscribed(t).ReadCallback(t.Context(), a.notification(t, "{}"))
			status := 0
			if refused, ok := errors.AsType[*channels.CallbackError](err); ok {
				status = refused.Status
			}
			if status != tt.want {
				t.Errorf("status %d, want %d: %v", status, tt.want, err)
			}
		})
	}
}

// tlsKeyCertificate is a certificate of SNS with a key that SNS does not use.
func tlsKeyCertificate() ([]byte, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"sns.amazonaws.com"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return inPEM(der), err
}

func TestACertificateIsFetchedOnceForManyMessages(t *testing.T) {
	a := newAmazon(t)
	p := a.subscribed(t)
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			if _, err := p.ReadCallback(t.Context(), a.notification(t, "{}")); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := a.asked.Load(); n != 1 {
		t.Errorf("asked for %d certificates", n)
	}
	p.sns.certs.now = func() time.Time { return time.Now().Add(50 * time.Minute) }
	if _, err := p.ReadCallback(t.Context(), a.notification(t, "{}")); err != nil || a.asked.Load() != 1 {
		t.Errorf("%v, asked %d times while it is valid", err, a.asked.Load())
	}
	p.sns.certs.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	if _, err := p.ReadCallback(t.Context(), a.notification(t, "{}")); err == nil {
		t.Error("a certificate that has ended is believed")
	}
}

func TestWhileSNSCannotBeAskedTheMessageIsToComeAgain(t *testing.T) {
	for status, want := range map[int64]int{500: 503, 503: 503, 429: 503, 302: 403, 404: 403} {
		a := newAmazon(t)
		a.status.Store(status)
		p := a.subscribed(t)
		_, err := p.ReadCallback(t.Context(), a.notification(t, "{}"))
		if refused, ok := errors.AsType[*channels.CallbackError](err); !ok || refused.Status != want {
			t.Errorf("%d: %v, want %d", status, err, want)
		}
		a.status.Store(0)
		if _, err := p.ReadCallback(t.Context(), a.notification(t, "{}")); err != nil {
			t.Errorf("after %d: %v", status, err)
		}
	}
	a := newAmazon(t)
	p := a.subscribed(t)
	p.sns = newSNS(topic, &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no route")
	}})
	_, err := p.ReadCallback(t.Context(), a.notification(t, "{}"))
	if refused, ok := errors.AsType[*channels.CallbackError](err); !ok || refused.Status != 503 {
		t.Errorf("no route: %v", err)
	}
}

func TestASubscriptionIsConfirmed(t *testing.T) {
	a := newAmazon(t)
	p := a.subscribed(t)
	c := a.notification(t, "", subscription)
	for range 2 { // it may come again
		got, err := p.ReadCallback(t.Context(), c)
		if err != nil || string(got.Answer.Body) != "taken: subscribed\n" {
			t.Fatalf("%v, %s", err, got.Answer.Body)
		}
	}
	if token := a.confirmed.Load(); token == nil || *token != "2336412f37" {
		t.Error("it was not confirmed")
	}
	a.status.Store(503)
	_, err := p.ReadCallback(t.Context(), c)
	if refused, ok := errors.AsType[*channels.CallbackError](err); !ok || refused.Status != 503 {
		t.Errorf("not confirmed: %v", err)
	}
}

func FuzzSESIsReadWhateverItTells(f *testing.F) {
	f.Add(`{"notificationType":"Bounce","bounce":{"bounceType":"Permanent","bouncedRecipients":[{"status":"5.1.1"}]},` + mailOf(ours()) + `}`)
	f.Add(`{"eventType":"Complaint","complaint":{"complainedRecipients":[{"emailAddress":"a@b"}]},` + mailOf("") + `}`)
	f.Fuzz(func(t *testing.T, text string) { channeltest.CheckReport(t, readSES(text), nil) })
}

func FuzzSNSBelievesOnlyWhatIsSigned(f *testing.F) {
	a := newAmazon(f)
	p := a.subscribed(f)
	genuine := a.notification(f, `{"notificationType":"Delivery",`+mailOf(ours())+`}`)
	f.Add(genuine.Body)
	f.Add([]byte(strings.Replace(string(genuine.Body), "Delivery", "Complaint", 1)))
	f.Fuzz(func(t *testing.T, body []byte) {
		c := *genuine
		c.Body = body
		got, err := p.ReadCallback(t.Context(), &c)
		if err != nil {
			return
		}
		var m, of snsMessage
		if json.Unmarshal(body, &m) != nil || json.Unmarshal(genuine.Body, &of) != nil || m.signed() != of.signed() {
			t.Fatalf("taken: %q, %+v", body, got)
		}
	})
}
