//go:build unix

package e2e_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// listening tells the accounts of Meta and SMTP to listen to the sandbox.
func (c *cluster) listening(t *testing.T) *node {
	t.Helper()
	c.edit(t, func(file object) {
		channels := file["channels"].(object)
		first := func(channel string) object { return channels[channel].(object)["accounts"].([]any)[0].(object) }
		first("whatsapp")["app_secret"] = config.SandboxAppSecret
		first("email")["bounce_secret"] = config.SandboxBounceSecret
	})
	n, public := c.behindProxy(t)
	c.sandbox.SetMetaWebhook(sandbox.MetaWebhook{URL: public + "/v1/receipts/meta-main/webhook", AppSecret: config.SandboxAppSecret})
	c.sandbox.SetMailReports(sandbox.MailReports{URL: public + "/v1/receipts/smtp-main/dsn", Secret: config.SandboxBounceSecret})
	return n
}

func TestAWhatsAppMessageThatIsReadShowsAsRead(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick)
	n := c.listening(t)
	c.receipts(t, sandbox.Receipts{Final: sandbox.FinalRead, Repeat: 2, Shuffle: true})
	id := n.post(t, object{
		"to":      object{"whatsapp": "+14155550100", "email": "ana@example.com"},
		"chain":   []object{{"channel": "whatsapp", "account": "meta-main", "success": "read", "within": "1m"}, {"channel": "email"}},
		"content": object{"title": "Deploy failed", "body": "api is down"},
	})
	if v := n.finished(t, id); v.Status != "read" || v.Steps[0].Status != "read" || len(v.Steps[1].Attempts) != 0 {
		t.Errorf("it ended as %+v", v)
	}
	for _, call := range c.sandbox.Callbacks() {
		if call.HTTPStatus != http.StatusOK {
			t.Errorf("a callback was answered with %+v", call)
		}
	}
}

func TestMailThatBouncesLaterGoesOnAndIsNotSentThereAgain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick, func(a account) {
		if a["provider"] == "smtp" {
			a["receipt_window"] = "1m" // in which the bounce comes
		}
	})
	n := c.listening(t)
	c.receipts(t, sandbox.Receipts{Final: sandbox.FinalDelivered, Repeat: 1})
	message := object{
		"to":      object{"email": "bounce-later@sandbox.test", "webhook": object{"url": c.sandbox.HTTPURL() + "/webhook/x"}},
		"chain":   []object{{"channel": "email"}, {"channel": "webhook"}},
		"content": object{"title": "Deploy failed", "body": "api is down"},
	}
	id := n.post(t, message)
	eventually(t, 20*time.Second, "the bounce continues the chain", func() bool {
		v := n.show(t, id)
		return v.Steps[0].Status == "failed" && len(v.Steps[1].Attempts) == 1
	})
	v := n.finished(t, id)
	if mail := v.Steps[0]; !strings.Contains(mail.Because, "recipient_rejected") || len(mail.Attempts) != 1 || mail.Attempts[0].Outcome != "accepted" {
		t.Errorf("the mail's step is %+v", mail)
	}
	if v.Status != "delivered" && v.Status != "sent" {
		t.Errorf("it ended as %+v", v)
	}
	again := n.finished(t, n.post(t, message))
	if mail := again.Steps[0]; mail.Status != "suppressed" || len(mail.Attempts) != 0 {
		t.Errorf("the next mail's step is %+v", mail)
	}
	if calls := len(c.received("smtp")); calls != 1 {
		t.Errorf("%d mails were sent", calls)
	}
}

func TestWhoComplainsIsNotWrittenTo(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick)
	n := c.listening(t)
	message := object{"to": object{"email": "complaint@sandbox.test"}, "content": object{"title": "t", "body": "b"}}
	if v := n.finished(t, n.post(t, message)); v.Status != "sent" {
		t.Errorf("it ended as %+v", v)
	}
	eventually(t, 20*time.Second, "the complaint is kept", func() bool {
		return c.count(t, "select count(*) from dispatcher.suppressions where channel = 'email' and reason = 'complaint'") == 1
	})
	if v := n.finished(t, n.post(t, message)); v.Status != "suppressed" {
		t.Errorf("the next one ended as %+v", v)
	}
}

func TestForgedReportsChangeNothing(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick)
	n := c.listening(t)
	n.key = ""
	for _, forged := range []struct {
		path, body string
		want       int
	}{
		{"meta-main/webhook", `{"object":"whatsapp_business_account","entry":[]}`, http.StatusForbidden},
		{"meta-main/status/x", "{}", http.StatusNotFound},
		{"smtp-main/dsn", "Subject: x\r\n\r\nx", http.StatusForbidden},
		{"smtp-main/ses", `{"Type":"Notification"}`, http.StatusNotFound},
		{"slack-main/x", "{}", http.StatusNotFound},
		{"nobody/x", "{}", http.StatusNotFound},
	} {
		got, err := n.call(t, http.MethodPost, "/v1/receipts/"+forged.path, "", []byte(forged.body))
		if err != nil || got.status != forged.want || got.header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s, %v", forged.path, got.status, got.body, err)
		}
	}
	if rows := c.count(t, "select (select count(*) from dispatcher.receipts) + (select count(*) from dispatcher.suppressions)"); rows != 0 {
		t.Errorf("%d rows were written", rows)
	}
	n.wantMetric(t, `dispatcher_provider_callbacks_total{account="meta-main",result="refused"} 2`)
	n.wantMetric(t, `dispatcher_provider_callbacks_total{account="none",result="refused"} 1`)
}

func (n *node) wantMetric(t *testing.T, line string) {
	t.Helper()
	got, err := n.call(t, http.MethodGet, "/metrics", "", nil)
	if err != nil || !strings.Contains(string(got.body), "\n"+line+"\n") {
		t.Errorf("no metric %s, %v", line, err)
	}
}
