package email

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/channeltest"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const bounceSecret = "bounce-secret-hunter3"

var myRef = channels.Ref{Notification: uuid.MustParse("0193e7a2-0000-7000-8000-0000000000aa"), Step: 1, Target: 2}

// myID is the Message-ID of that delivery.
func myID() string {
	m := testMessage()
	m.Ref = myRef
	return "<" + messageID(m, mailbox{domain: "example.com"}) + ">"
}

func listening(tb testing.TB) *Provider {
	return newProvider(tb, Config{
		Host: "127.0.0.1", TLS: tlsNone, From: Address{Address: "alerts@example.com"}, BounceSecret: secret.New(bounceSecret),
	})
}

// piped is a message as a mailbox's pipe posts it.
func piped(text string) *channels.Callback {
	return &channels.Callback{
		Method: http.MethodPost, URL: "https://notify.example.com/v1/receipts/smtp-main/dsn", Path: "dsn",
		Header: http.Header{"Authorization": {"Bearer " + bounceSecret}}, Body: []byte(strings.ReplaceAll(text, "\n", "\r\n")),
	}
}

// report writes a message of multipart/report with these parts, the text first.
func report(kind string, parts ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `Return-Path: <>
Date: Mon, 30 Nov 2026 10:31:02 +0100
From: Mail Delivery System <mailer-daemon@mx.example.net>
To: alerts@example.com
Subject: Undelivered mail
Auto-Submitted: auto-replied
MIME-Version: 1.0
Content-Type: multipart/report; report-type=%s;
	boundary="=_bounds"

A report.

--=_bounds
Content-Type: text/plain; charset=us-ascii

Your message could not go where it was to.
`, kind)
	for _, p := range parts {
		b.WriteString("\n--=_bounds\n" + p)
	}
	b.WriteString("\n--=_bounds--\n")
	return b.String()
}

// status is a part with the fields of the message and of recipients.
func status(groups ...string) string {
	return "Content-Type: message/delivery-status\n\nReporting-MTA: dns; mx.example.net\n" + "\n" + strings.Join(groups, "\n\n") + "\n"
}

// returned is the part with the message that comes back.
func returned(kind, id string, more ...string) string {
	return "Content-Type: " + kind + "\n\nReceived: by mx.example.net\nFrom: alerts@example.com\nTo: ana@example.org\n" +
		strings.Join(append(more, "Message-ID: "+id, "Subject: Deploy failed"), "\n") + "\n\n3 of 5 pods are down\n"
}

func fieldsOf(action, status, diagnostic string) string {
	return "Final-Recipient: rfc822; ana@example.org\nAction: " + action + "\nStatus: " + status + "\nDiagnostic-Code: " + diagnostic
}

var reported = time.Date(2026, 11, 30, 9, 31, 2, 0, time.UTC)

func TestBouncesAreRead(t *testing.T) {
	failed := func(o notify.Outcome, code string, suppress bool) *channels.Receipt {
		return &channels.Receipt{Ref: myRef, MessageID: myID(), Status: notify.Failed, Outcome: o, Code: code, Detail: "bounced", At: reported, Suppress: suppress}
	}
	told := func(s notify.Status, code, detail string) *channels.Receipt {
		return &channels.Receipt{Ref: myRef, MessageID: myID(), Status: s, Code: code, Detail: detail, At: reported}
	}
	change := func(r *channels.Receipt, f func(*channels.Receipt)) *channels.Receipt { f(r); return r }
	original := returned("message/rfc822", myID())
	unknown := fieldsOf("failed", "5.1.1", "smtp; 550 5.1.1 <ana@example.org>: Recipient address rejected: User unknown")
	for _, tt := range []struct {
		name, text string
		want       *channels.Receipt // nil: ignored
	}{
		// The shapes of common servers.
		{
			"postfix", report("delivery-status", "Content-Description: Delivery report\n"+status(
				"Original-Recipient: rfc822;ana@example.org\nRemote-MTA: dns; mx.example.org\n"+unknown), "Content-Description: Undelivered Message Headers\n"+returned("text/rfc822-headers", myID())),
			failed(notify.RecipientRejected, "550 5.1.1", true),
		},
		{
			"exchange", report("delivery-status", strings.Replace(status(
				"Final-Recipient: rfc822;ana@example.org\nAction: failed\nStatus: 5.1.10\nDiagnostic-Code: smtp;550 5.1.10 RESOLVER.ADR.RecipientNotFound; Recipient not found by SMTP address lookup\nX-Display-Name: Ana"),
				"Reporting-MTA: dns; mx.example.net", "Reporting-MTA: dns;AB1.eurprd05.prod.outlook.com\nReceived-From-MTA: dns;mx.example.net\nArrival-Date: Mon, 30 Nov 2026 09:31:01 +0000", 1), original),
			failed(notify.RecipientRejected, "550 5.1.10", true),
		},
		{
			"gmail", report(`"delivery-status"`, strings.Replace(status(
				"Final-Recipient: rfc822; ana@example.org\nAction: failed\nStatus: 5.1.1\nDiagnostic-Code: smtp; 550-5.1.1 The email account that you tried to reach does not exist. Please try\n 550-5.1.1 double-checking the recipient's email address for typos\nLast-Attempt-Date: Mon, 30 Nov 2026 01:31:01 -0800 (PST)"),
				"Reporting-MTA: dns; mx.example.net", "Reporting-MTA: dns; googlemail.com\nArrival-Date: Mon, 30 Nov 2026 01:31:00 -0800 (PST)\nX-Original-Message-ID: "+myID(), 1), original),
			failed(notify.RecipientRejected, "550 5.1.1", true),
		},
		{
			"exim", report("delivery-status", status("Action: failed\nFinal-Recipient: rfc822;ana@example.org\nStatus: 5.0.0\nRemote-MTA: dns; mx.example.org\nDiagnostic-Code: smtp; 550 5.1.1 unrouteable"), original),
			failed(notify.RecipientRejected, "550 5.1.1", true),
		},

		// What it failed for.
		{
			"a domain that is gone", report("delivery-status", status(fieldsOf("failed", "5.1.2", "x-unix; host not found")), original),
			change(failed(notify.RecipientRejected, "5.1.2", true), func(r *channels.Receipt) { r.SuppressFor = domainGone }),
		},
		{
			"a full mailbox", report("delivery-status", status(fieldsOf("failed", "5.2.2", "smtp; 552 5.2.2 quota")), original),
			failed(notify.RecipientUnavailable, "552 5.2.2", false),
		},
		{
			"policy", report("delivery-status", status(fieldsOf("failed", "5.7.1", "smtp; 554 5.7.1 spam")), original),
			failed(notify.MessageRejected, "554 5.7.1", false),
		},
		{
			"given up", report("delivery-status", status(fieldsOf("failed", "4.4.7", "smtp; 451 4.4.1 no answer")), original),
			change(failed(notify.RecipientUnavailable, "451 4.4.7", false), func(r *channels.Receipt) { r.Detail = "bounced after the server had tried for as long as it does" }),
		},
		{
			"no enhanced code", report("delivery-status", status(fieldsOf("failed", "", "smtp; 550 no such user")), original),
			failed(notify.RecipientRejected, "550", false),
		},
		{
			"no reason at all", report("delivery-status", status("Action: failed"), original),
			failed(notify.MessageRejected, "", false),
		},

		// What else is told.
		{"delayed", report("delivery-status", status(fieldsOf("delayed", "4.4.1 (no answer)", "x")), original), told(notify.Sent, "4.4.1", "delayed: the server still tries")},
		{"delivered", report("delivery-status", status(fieldsOf("Delivered", "2.0.0", "x")), original), told(notify.Delivered, "2.0.0", "delivered to the mailbox")},
		{"relayed", report("delivery-status", status(fieldsOf("relayed (to non-DSN-aware mailer)", "2.0.0", "x")), original), told(notify.Sent, "2.0.0", "passed on to where nothing more is reported")},
		{
			"a list of which one member is gone", report("delivery-status", status(unknown, fieldsOf("delivered", "2.0.0", "x"), fieldsOf("expanded", "2.0.0", "x")), original),
			told(notify.Delivered, "2.0.0", "delivered to the mailbox"),
		},
		{"a list of which all are gone", report("delivery-status", status(unknown, unknown), original), failed(notify.RecipientRejected, "550 5.1.1", true)},

		// Where the message is named.
		{
			"a relay's own Message-ID", report("delivery-status", status(unknown), returned("message/rfc822", "<x@relay.example>", refHeader+": "+myRef.String())),
			change(failed(notify.RecipientRejected, "550 5.1.1", true), func(r *channels.Receipt) { r.MessageID = "<x@relay.example>" }),
		},
		{
			"the envelope's id", report("delivery-status", strings.Replace(status(unknown), "Reporting-MTA", "Original-Envelope-Id: "+myRef.String()+"\nReporting-MTA", 1)),
			change(failed(notify.RecipientRejected, "550 5.1.1", true), func(r *channels.Receipt) { r.MessageID = "" }),
		},
		{
			"what it answers", strings.Replace(report("delivery-status", status(unknown)), "Subject:", "References: <a@b.example>\n "+myID()+"\nSubject:", 1),
			change(failed(notify.RecipientRejected, "550 5.1.1", true), func(r *channels.Receipt) { r.MessageID = "" }),
		},
		{
			"an older Message-ID of ours", report("delivery-status", status(unknown), returned("message/rfc822", "<0193b0c0-0000-5000-8000-000000000001@example.com>")),
			change(failed(notify.RecipientRejected, "550 5.1.1", true), func(r *channels.Receipt) {
				r.Ref, r.MessageID = channels.Ref{}, "<0193b0c0-0000-5000-8000-000000000001@example.com>"
			}),
		},
		{"nowhere", report("delivery-status", status(unknown)), nil},

		// What is nearly a report, and what is none.
		{"from a mailbox file", "From MAILER-DAEMON Mon Nov 30 10:31:02 2026\n" + report("delivery-status", status(unknown), original), failed(notify.RecipientRejected, "550 5.1.1", true)},
		{"with a line in its header that is no field", strings.Replace(report("delivery-status", status(unknown), original), "Subject:", "be careful with this one\nSubject:", 1), failed(notify.RecipientRejected, "550 5.1.1", true)},
		{"broken off in the message that came back", strings.SplitAfter(report("delivery-status", status(unknown), original), "Deploy")[0], failed(notify.RecipientRejected, "550 5.1.1", true)},
		{"encoded", report("delivery-status", "Content-Type: message/delivery-status\nContent-Transfer-Encoding: base64\n\n"+
			base64.StdEncoding.EncodeToString([]byte("Reporting-MTA: dns; mx\r\n\r\n"+strings.ReplaceAll(unknown, "\n", "\r\n")+"\r\n"))+"\n", original), failed(notify.RecipientRejected, "550 5.1.1", true)},
		{"somebody who is away", "From: ana@example.org\nTo: alerts@example.com\nSubject: Away\nAuto-Submitted: auto-replied\nIn-Reply-To: " + myID() + "\n\nBack on Monday\n", nil},
		{"a reading confirmation", report("disposition-notification", "Content-Type: message/disposition-notification\n\nDisposition: manual-action/MDN-sent-manually; displayed\nOriginal-Message-ID: "+myID()+"\n"), nil},
		{"an action that is none", report("delivery-status", status(fieldsOf("vanished", "5.1.1", "x")), original), nil},
		{"a report without a status", report("delivery-status", original), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := listening(t).ReadCallback(t.Context(), piped(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			channeltest.CheckReport(t, got, []string{bounceSecret, "ana@example.org", "pods are down"})
			var want []channels.Receipt
			if tt.want != nil {
				want = []channels.Receipt{*tt.want}
			}
			if diff := cmp.Diff(want, got.Receipts); diff != "" || got.Consents != nil {
				t.Errorf("receipts (-want +got):\n%s, consents %+v", diff, got.Consents)
			}
			if ignored := strings.HasPrefix(string(got.Answer.Body), "ignored: "); ignored != (tt.want == nil) || got.Answer.Status != 200 {
				t.Errorf("answer %d %s", got.Answer.Status, got.Answer.Body)
			}
		})
	}
}

func TestComplaintsAreRead(t *testing.T) {
	feedback := func(kind string, more ...string) string {
		return "Content-Type: message/feedback-report\n\n" + strings.Join(append([]string{"Feedback-Type: " + kind, "User-Agent: SomeFBL/1.0", "Version: 1"}, more...), "\n") + "\n"
	}
	original := returned("message/rfc822", myID())
	ana := notify.Target{Email: &notify.EmailAddress{Address: "Ana@example.org"}}
	for _, tt := range []struct {
		name, text string
		want       []channels.Consent
	}{
		{"abuse", report("feedback-report", feedback("abuse", "Original-Rcpt-To: <Ana@example.org>"), original), []channels.Consent{{Target: ana, Ref: myRef, Stop: true, Reason: "complaint", Code: "abuse"}}},
		{"with the address taken out", report("feedback-report", feedback("abuse", "Original-Rcpt-To: redacted"), original), []channels.Consent{{Ref: myRef, Stop: true, Reason: "complaint", Code: "abuse"}}},
		{"with the message taken out", report("feedback-report", feedback("fraud", "Original-Rcpt-To: Ana@example.org")), []channels.Consent{{Target: ana, Stop: true, Reason: "complaint", Code: "fraud"}}},
		{"an opt-out", report("feedback-report", feedback("opt-out"), original), []channels.Consent{{Ref: myRef, Stop: true, Reason: "unsubscribe", Code: "opt-out"}}},
		{"whose report has an id", "Message-ID: <7@fbl.example.net>\n" + report("feedback-report", feedback("abuse"), original), []channels.Consent{{Ref: myRef, Stop: true, Reason: "complaint", Code: "abuse", ID: "7@fbl.example.net"}}},
		{"praise", report("feedback-report", feedback("not-spam"), original), nil},
		{"a machine's", report("feedback-report", feedback("auth-failure"), original), nil},
		{"of nobody", report("feedback-report", feedback("abuse")), nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := listening(t).ReadCallback(t.Context(), piped(tt.text))
			if diff := cmp.Diff(tt.want, got.Consents); diff != "" || err != nil || got.Receipts != nil {
				t.Errorf("%v, consents (-want +got):\n%s, receipts %+v", err, diff, got.Receipts)
			}
			channeltest.CheckReport(t, got, []string{bounceSecret})
		})
	}
}

func TestMailIsLetInBySecretOnly(t *testing.T) {
	basic := func(pair string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)) }
	text := report("delivery-status", status("Action: failed\nStatus: 5.1.1"), returned("message/rfc822", myID()))
	for _, tt := range []struct {
		name, authorization, method, path string
		want                              int
	}{
		{"a token", "Bearer " + bounceSecret, "POST", "dsn", 200},
		{"a password", basic("pipe:" + bounceSecret), "POST", "dsn", 200},
		{"a password without a user", basic(":" + bounceSecret), "POST", "dsn", 200},
		{"no secret", "", "POST", "dsn", 403},
		{"another secret", "Bearer " + bounceSecret + "x", "POST", "dsn", 403},
		{"an empty one", "Bearer ", "POST", "dsn", 403},
		{"the secret as a user", basic(bounceSecret + ":"), "POST", "dsn", 403},
		{"what is not base64", "Basic " + bounceSecret, "POST", "dsn", 403},
		{"another scheme", "Digest " + bounceSecret, "POST", "dsn", 403},
		{"another method", "Bearer " + bounceSecret, "GET", "dsn", 404},
		{"another path", "Bearer " + bounceSecret, "POST", "DSN", 404},
		{"a topic that is not configured", "Bearer " + bounceSecret, "POST", "ses", 404},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := piped(text)
			c.Method, c.Path = tt.method, tt.path
			c.Header.Set("Authorization", tt.authorization)
			got, err := listening(t).ReadCallback(t.Context(), c)
			status := 200
			if refused, ok := errors.AsType[*channels.CallbackError](err); ok {
				status = refused.Status
			}
			if status != tt.want || (status == 200) != (len(got.Receipts) == 1) {
				t.Errorf("status %d, %v, %d receipts", status, err, len(got.Receipts))
			}
		})
	}
	deaf := offline(t, nil)
	if _, err := deaf.ReadCallback(t.Context(), piped(text)); err == nil {
		t.Error("an account without a secret takes mail")
	}
	if _, err := listening(t).ReadCallback(t.Context(), piped("no message at all")); err == nil {
		t.Error("what is no message is taken")
	}
}

func TestAnAccountThatListensSaysSo(t *testing.T) {
	const topic = "arn:aws:sns:eu-west-1:123456789012:bounces"
	for _, tt := range []struct {
		change func(*Config)
		best   notify.Status
		told   bool
	}{
		{nil, notify.Sent, false},
		{func(c *Config) { c.BounceSecret = secret.New(bounceSecret) }, notify.Sent, true},
		{func(c *Config) { c.SNSTopic = topic }, notify.Delivered, true},
	} {
		if got := offline(t, tt.change).Info(); got.MaxObservable != tt.best || got.Receipts != tt.told {
			t.Errorf("%+v, want %s and %t", got, tt.best, tt.told)
		}
	}
	for _, topic := range []string{"bounces", "arn:aws:sns:eu-west-1:123456789012:bounces.fifo", "arn:aws:sqs:eu-west-1:123456789012:bounces", "arn:aws:sns:evil.example:123456789012:x"} {
		_, err := New("smtp-main", Config{Host: "127.0.0.1", TLS: tlsNone, From: Address{Address: "a@example.com"}, SNSTopic: topic, BounceSecret: secret.New("short")})
		if err == nil || !strings.Contains(err.Error(), "sns_topic: ") || !strings.Contains(err.Error(), "bounce_secret: ") || strings.Contains(err.Error(), "short") {
			t.Errorf("%s: %v", topic, err)
		}
	}
	if text := fmt.Sprintf("%+v", listening(t)); strings.Contains(text, bounceSecret) {
		t.Error("a printed provider shows the secret")
	}
}

func FuzzMailReport(f *testing.F) {
	unknown := fieldsOf("failed", "5.1.1", "smtp; 550 5.1.1 no such user")
	f.Add([]byte(report("delivery-status", status(unknown), returned("message/rfc822", myID()))))
	f.Add([]byte(report("delivery-status", status(unknown), returned("text/rfc822-headers", myID()))))
	f.Add([]byte(report("feedback-report", "Content-Type: message/feedback-report\n\nFeedback-Type: abuse\nOriginal-Rcpt-To: a@example.org\n", returned("message/rfc822", myID()))))
	f.Add([]byte("From x\nContent-Type: multipart/report; boundary=\"\"\n\n--\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := readMail(body)
		if err == nil {
			channeltest.CheckReport(t, got, nil)
		}
	})
}
