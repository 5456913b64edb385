package sandbox_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// sendTo sends a message to a scripted recipient through its provider.
func sendTo(t *testing.T, s *sandbox.Server, bearers map[string]string, sc sandbox.Scripted, to string) {
	t.Helper()
	switch sc.Provider {
	case "twilio":
		sms(t, s, to, "hi")
	case "meta":
		send(t, http.MethodPost, s.HTTPURL()+"/v23.0/1/messages",
			`{"messaging_product":"whatsapp","to":"`+to+`","type":"text","text":{"body":"hi"}}`, "Authorization", "Bearer x")
	case "fcm":
		send(t, http.MethodPost, s.HTTPURL()+"/v1/projects/sandbox/messages:send",
			`{"message":{"token":"`+to+`","notification":{"title":"hi"}}}`, "Authorization", bearers["fcm"])
	case "apns":
		send(t, http.MethodPost, s.HTTPURL()+"/3/device/"+to, `{"aps":{"alert":"hi"}}`, "Authorization", bearers["apns"], "apns-topic", "a.b")
	case "webpush":
		pushTo(t, s, to, "hi", "")
	case "slack":
		send(t, http.MethodPost, s.HTTPURL()+"/api/chat.postMessage", `{"channel":"`+to+`","text":"hi"}`,
			"Authorization", "Bearer xoxb-1", "Content-Type", "application/json")
	case "slack-webhook":
		send(t, http.MethodPost, s.HTTPURL()+"/services/T1/B1/"+to, `{"text":"hi"}`)
	case "smtp":
		_ = mailTo(t, s, to+"@sandbox.test", "id-1") // what it was answered is what is recorded
	default:
		t.Fatalf("no way to send through %s", sc.Provider)
	}
}

// variant is another recipient with the same script.
func variant(sc sandbox.Scripted) string {
	switch sc.Provider {
	case "twilio", "meta":
		return sc.To
	case "smtp":
		return sc.To + "+7"
	}
	return sc.To + "-7"
}

func TestEveryScriptedRecipientDoesWhatTheTableSays(t *testing.T) {
	s := start(t, sandbox.Config{})
	bearers := map[string]string{"fcm": fcmBearer(t, s), "apns": apnsBearer(t, s, time.Now(), nil)}
	for _, sc := range sandbox.ScriptedRecipients() {
		t.Run(sc.Provider+" "+sc.To, func(t *testing.T) {
			to := variant(sc)
			if sc.Once {
				sendTo(t, s, bearers, sc, to)
				wantScripted(t, s, sc, to)
				sc.Status, sc.Code = 0, ""
			}
			sendTo(t, s, bearers, sc, to)
			wantScripted(t, s, sc, to)
		})
	}
}

func wantScripted(t *testing.T, s *sandbox.Server, sc sandbox.Scripted, to string) {
	t.Helper()
	var got sandbox.Message
	for _, m := range s.Messages(sandbox.Filter{Provider: sc.Provider}) {
		if strings.Contains(m.To, to) {
			got = m
		}
	}
	if sc.Status == 0 {
		if !got.Answer.Accepted || got.Answer.Status/100 != 2 {
			t.Errorf("answered %+v, want it accepted", got.Answer)
		}
		return
	}
	if got.Answer.Status != sc.Status || got.Answer.Code != sc.Code || got.Answer.Accepted {
		t.Errorf("answered %+v, want %d %s", got.Answer, sc.Status, sc.Code)
	}
}

func TestThrottlingRecipientsNameRetryAfter(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	a := sms(t, s, "+15005550011", "hi")
	if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || seconds != 2 {
		t.Errorf("Retry-After is %q", a.header.Get("Retry-After"))
	}
	if a := sms(t, s, "+15005550011", "another message"); a.status != http.StatusTooManyRequests {
		t.Errorf("another message's first call: %d", a.status)
	}
	if a := sms(t, s, "+15005550011", "hi"); a.status != http.StatusCreated {
		t.Errorf("the message's second call: %d", a.status)
	}
}

var update = flag.Bool("update", false, "write recipients.md anew")

func TestThePrintedTableIsTheTable(t *testing.T) {
	t.Parallel()
	const file = "recipients.md"
	want := recipientsMarkdown()
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is out of date: go test ./internal/sandbox -run PrintedTable -update", file)
	}
}

func recipientsMarkdown() string {
	var b strings.Builder
	b.WriteString("# Recipients that script themselves\n\n" +
		"Any other recipient is fine. A token, a Slack channel, the last part of a Slack webhook's URL and a web push\n" +
		"subscription's name may carry a suffix (`unregistered-42`), a mail address a tag (`bounce+42@sandbox.test`).\n" +
		"Twilio's numbers work for SMS and WhatsApp alike. Rules of `/sandbox/faults` come before these.\n\n" +
		"| provider | to | answer | what happens |\n|---|---|---|---|\n")
	for _, sc := range sandbox.ScriptedRecipients() {
		to, answer := sc.To, "accepted"
		if sc.Provider == "smtp" {
			to += "@sandbox.test"
		}
		if sc.Status != 0 {
			answer = strings.TrimSpace(strconv.Itoa(sc.Status) + " " + sc.Code)
		}
		if sc.RetryAfter > 0 {
			answer += fmt.Sprintf(", Retry-After: %d", sc.RetryAfter)
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", sc.Provider, to, answer, sc.Note)
	}
	return b.String()
}
