package email

import (
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestReplyTable(t *testing.T) {
	const (
		unavailable = notify.ProviderUnavailable
		later       = notify.RecipientUnavailable
		recipient   = notify.RecipientRejected
		message     = notify.MessageRejected
		account     = notify.AccountRejected
	)
	tests := []struct {
		at, reply string
		want      notify.Outcome
		dead      bool
		deadFor   time.Duration
	}{
		// The host.
		{"banner", "421 4.3.2 too busy", unavailable, false, 0},
		{"banner", "554 no SMTP service here", unavailable, false, 0},
		{"banner", "554 5.7.1 your address is listed", account, false, 0},
		{"EHLO", "421 later", unavailable, false, 0},
		{"EHLO", "550 5.7.1 who are you", account, false, 0},
		{"MAIL", "421 4.7.0 later", unavailable, false, 0},
		{"RCPT", "421 4.3.2 later", unavailable, false, 0},
		{"DATA", "421 4.3.2 later", unavailable, false, 0},
		{".", "421 4.3.2 later", unavailable, false, 0},

		// The sender.
		{"MAIL", "450 4.1.8 no such domain for now", unavailable, false, 0},
		{"MAIL", "451 4.3.0 later", unavailable, false, 0},
		{"MAIL", "452 4.3.1 disk full", unavailable, false, 0},
		{"MAIL", "530 5.7.0 authenticate first", account, false, 0},
		{"MAIL", "530 authenticate first", account, false, 0},
		{"MAIL", "550 no", account, false, 0},
		{"MAIL", "553 5.1.8 no such sender", account, false, 0},
		{"MAIL", "550 5.7.1 not yours", account, false, 0},
		{"MAIL", "552 5.3.4 too big", message, false, 0},
		{"MAIL", "552 5.2.3 too big", message, false, 0},
		{"MAIL", "552 too big", message, false, 0},
		{"MAIL", "555 5.5.4 what parameter", message, false, 0},
		{"MAIL", "555 what parameter", message, false, 0},
		{"MAIL", "501 5.5.4 syntax", message, false, 0},

		// The recipient, for now.
		{"RCPT", "450 4.2.0 greylisted", later, false, 0},
		{"RCPT", "450 busy", later, false, 0},
		{"RCPT", "451 4.7.1 greylisted", later, false, 0},
		{"RCPT", "451 local error", later, false, 0},
		{"RCPT", "450 4.7.1 greylisted", later, false, 0},
		{"RCPT", "452 4.2.2 full", later, false, 0},
		{"RCPT", "452 4.5.3 too many recipients", later, false, 0},
		{"RCPT", "452 too many recipients", later, false, 0},
		{"RCPT", "552 5.5.3 too many recipients", later, false, 0},
		{"RCPT", "552 too many recipients", later, false, 0},
		{"RCPT", "552 5.2.2 full", later, false, 0},
		{"RCPT", "450 4.1.1 unverified", later, false, 0},

		// The host, for now.
		{"RCPT", "452 4.3.1 disk full", unavailable, false, 0},
		{"RCPT", "451 4.3.2 going down", unavailable, false, 0},
		{"RCPT", "451 4.3.0 local error", unavailable, false, 0},
		{"RCPT", "451 4.4.1 no route", unavailable, false, 0},
		{"RCPT", "451 4.5.0 confused", unavailable, false, 0},
		{"RCPT", "454 4.7.1 relay access denied for now", unavailable, false, 0},
		{"RCPT", "455 parameter", unavailable, false, 0},
		{"RCPT", "499 unheard of", unavailable, false, 0},

		// The recipient, for good.
		{"RCPT", "550 5.1.1 no such user", recipient, true, 0},
		{"RCPT", "550 5.1.2 no such domain", recipient, true, 7 * 24 * time.Hour},
		{"RCPT", "553 5.1.3 bad syntax", recipient, true, 0},
		{"RCPT", "551 5.1.6 moved", recipient, true, 0},
		{"RCPT", "556 5.1.10 null MX", recipient, true, 0},
		{"RCPT", "550 5.2.1 disabled", recipient, true, 0},
		{"RCPT", "550 5.7.17 another person's", recipient, true, 0},
		{"RCPT", "550 5.1.0 no", recipient, false, 0},
		{"RCPT", "550 5.4.1 access denied", recipient, false, 0},
		{"RCPT", "550 no such user", recipient, false, 0},
		{"RCPT", "551 moved", recipient, false, 0},
		{"RCPT", "553 bad name", recipient, false, 0},
		{".", "550 5.1.1 no such user", recipient, true, 0},

		// The message.
		{"RCPT", "550 5.7.1 policy", message, false, 0},
		{"RCPT", "554 5.7.1 relay access denied", message, false, 0},
		{"RCPT", "550 5.6.7 no SMTPUTF8", message, false, 0},
		{"RCPT", "501 5.5.4 syntax", message, false, 0},
		{"RCPT", "503 bad sequence", message, false, 0},
		{"RCPT", "504 parameter", message, false, 0},
		{"RCPT", "599 unheard of", message, false, 0},
		{".", "552 5.3.4 too big", message, false, 0},
		{".", "554 5.3.4 too big", message, false, 0},
		{".", "552 5.2.3 too big", message, false, 0},
		{".", "552 too big", message, false, 0},
		{".", "550 5.7.1 spam", message, false, 0},
		{".", "550 spam", message, false, 0},
		{".", "554 5.6.0 malformed", message, false, 0},
		{".", "554 no", message, false, 0},
		{"DATA", "554 5.5.1 no valid recipients", message, false, 0},

		// The account.
		{"RCPT", "550 5.7.25 no reverse DNS", account, false, 0},
		{"RCPT", "550 5.7.26 DMARC", account, false, 0},
		{".", "550 5.7.27 null MX of the sender", account, false, 0},
		{".", "550 5.7.23 SPF", account, false, 0},
		{"RCPT", "530 5.7.0 authenticate first", account, false, 0},
		{"RCPT", "530 authenticate first", account, false, 0},
		{"RCPT", "550 5.1.8 no such sender", account, false, 0},

		// After the data. RFC 5321, 4.2.5: what was refused is not delivered later.
		{".", "451 4.3.0 later", unavailable, false, 0},
		{".", "452 4.3.1 disk full", unavailable, false, 0},
		{".", "450 4.2.0 later", later, false, 0},
		{".", "451 4.7.1 greylisted", later, false, 0},

		// The class is the basic code's, the rest the enhanced code's.
		{"RCPT", "550 4.2.2 full", later, false, 0},
		{"RCPT", "450 5.1.1 no such user", later, false, 0},
		{"RCPT", "554 4.1.1 no such user", recipient, true, 0},

		// What the protocol does not have.
		{"RCPT", "354 go ahead", unavailable, false, 0},
		{"MAIL", "hello", unavailable, false, 0},
		{".", "354 go ahead", notify.Unknown, false, 0},
		{".", "hello", notify.Unknown, false, 0},
		{".", "251 forwarded", notify.Accepted, false, 0},
	}
	for _, tt := range tests {
		t.Run(tt.at+" "+tt.reply, func(t *testing.T) {
			s := newServer(t, script{tt.at: tt.reply, "HELO": tt.reply})
			r := send(t, newProvider(t, s.config()), testMessage())
			want := channels.Result{Outcome: tt.want, Suppress: tt.dead, SuppressFor: tt.deadFor}
			got := channels.Result{Outcome: r.Outcome, Suppress: r.Suppress, SuppressFor: r.SuppressFor}
			if got != want {
				t.Errorf("result %+v, want %+v", r, want)
			}
			if r.Outcome == notify.Accepted {
				return
			}
			if wantCode := codeOf(tt.reply); r.Code != wantCode {
				t.Errorf("code %q, want %q", r.Code, wantCode)
			}
			if r.RetryAfter != 0 || r.Scope != "" || r.HTTPStatus != 0 {
				t.Errorf("result %+v says what no server said", r)
			}
		})
	}
}

// codeOf is the code that a reply leads to: its own digit, then the rest of the
// enhanced code.
func codeOf(reply string) string {
	basic, rest, _ := strings.Cut(reply, " ")
	enhanced, _, _ := strings.Cut(rest, " ")
	switch {
	case len(basic) != 3:
		return ""
	case strings.Count(enhanced, ".") == 2:
		return basic + " " + basic[:1] + enhanced[1:]
	}
	return basic
}

func TestReplyInSeveralLines(t *testing.T) {
	s := newServer(t, script{"RCPT": "550-5.1.1 The account ana@example.org\r\n550-5.1.1 does not exist: see\r\n550 5.1.1 https://example.org/?p=NoSuchUser"})
	r := send(t, newProvider(t, s.config()), testMessage())
	if r.Outcome != notify.RecipientRejected || r.Code != "550 5.1.1" || !r.Suppress {
		t.Errorf("result %+v", r)
	}
}

func TestServerThatRefusesInTheMiddleIsHeard(t *testing.T) {
	s := newServer(t, script{"body": "552 5.3.4 too big"})
	m := testMessage()
	r := send(t, newProvider(t, s.config()), m)
	if r.Outcome != notify.MessageRejected || r.Code != "552 5.3.4" {
		t.Errorf("result %+v", r)
	}
}

func TestQueueID(t *testing.T) {
	for said, want := range map[string]string{
		"2.0.0 Ok: queued as 4F1D2A0C3B":            "4F1D2A0C3B",
		"OK id=1rAbCd-0001Xy-7Q":                    "1rAbCd-0001Xy-7Q",
		"2.0.0 4BTA5AbC001234 Message accepted":     "4BTA5AbC001234",
		"Ok 0100018c-1234-5678-000000":              "",
		"queued as <ana@example.org>":               "",
		"2.0.0 Ok: queued as 4F1 for ana@a.example": "",
		"": "",
		"2.6.0 <x@y> [InternalId=123] Queued mail":   "",
		"2.0.0 OK  1700000000 abc-def.123 - gsmtp":   "",
		"2.0.0 Ok: queued as 4F1D2A0C3B\nthank you":  "4F1D2A0C3B",
		"2.0.0 from MTA(smtp:[::1]:10025): 250 Okay": "",
	} {
		if got := queueID(said); got != want {
			t.Errorf("queueID(%q) = %q, want %q", said, got, want)
		}
	}
}

func FuzzReply(f *testing.F) {
	f.Add(550, "5.1.1 no such user", "RCPT")
	f.Add(250, "", "end of data")
	f.Add(-1, "5.999.999", "MAIL")
	f.Fuzz(func(t *testing.T, code int, text, st string) {
		r := parseReply(code, text).result(stage(st))
		if !r.Outcome.Valid() || r.Outcome == notify.Accepted || r.Suppress && r.Outcome != notify.RecipientRejected {
			t.Errorf("%d %q at %s: %+v", code, text, st, r)
		}
	})
}
