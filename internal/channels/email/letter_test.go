package email

import (
	"errors"
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func wantField(t *testing.T, err error, field string) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Errorf("Check says %v", err)
		}
		return
	}
	ce, ok := errors.AsType[*channels.CheckError](err)
	if !ok || ce.Field != field {
		t.Errorf("Check says %v, want the field %s", err, field)
	}
}

func TestCheckNamesTheField(t *testing.T) {
	to := func(address string) func(*channels.Message) {
		return func(m *channels.Message) { m.To.Email.Address = address }
	}
	content := func(e notify.EmailContent) func(*channels.Message) {
		return func(m *channels.Message) { m.Content.Email = &e }
	}
	file := func(a notify.Attachment) func(*channels.Message) {
		return content(notify.EmailContent{Attachments: []notify.Attachment{{Filename: "ok"}, a}})
	}
	tests := []struct {
		name   string
		change func(*channels.Message)
		want   string
	}{
		{"a message that is right", func(*channels.Message) {}, ""},
		{"no target", func(m *channels.Message) { m.To.Email = nil }, "/to/email"},
		{"no address", to(""), "/to/email"},
		{"no at", to("ana"), "/to/email"},
		{"no local part", to("@example.org"), "/to/email"},
		{"no domain", to("ana@"), "/to/email"},
		{"two addresses", to("ana@example.org, eve@example.org"), "/to/email"},
		{"a name in the address", to("Ana <ana@example.org>"), "/to/email"},
		{"another address after it", to("ana@example.org> , <eve@example.org"), "/to/email"},
		{"another line", to("ana@example.org\r\nRCPT TO:<eve@example.org>"), "/to/email"},
		{"a space", to("ana b@example.org"), "/to/email"},
		{"a quoted local part", to(`"ana b"@example.org`), ""},
		{"a quoted line end", to("\"ana\r\n\"@example.org"), "/to/email"},
		{"an address literal", to("ana@[127.0.0.1]"), "/to/email"},
		{"a bad domain", to("ana@exa_mple..org"), "/to/email"},
		{"a long local part", to(strings.Repeat("a", 65) + "@example.org"), "/to/email"},
		{"a long address", to("ana@" + strings.Repeat("a234567.", 32) + "org"), "/to/email"},
		{"a local part of another script", to("用户@例子.广告"), ""},
		{"a name of 257 bytes", func(m *channels.Message) { m.To.Email.Name = strings.Repeat("x", 257) }, "/to/email"},
		{"nothing to say", func(m *channels.Message) { m.Content = notify.Content{Title: "x"} }, "/content/email/text"},
		{"a title of 999 characters", func(m *channels.Message) { m.Content.Title = strings.Repeat("é", 999) }, "/content/title"},
		{"a subject of 998 characters", content(notify.EmailContent{Subject: strings.Repeat("é", 998)}), ""},
		{"a subject of 999 characters", content(notify.EmailContent{Subject: strings.Repeat("é", 999)}), "/content/email/subject"},
		{"another sender", content(notify.EmailContent{From: &notify.EmailAddress{Address: "ceo@example.com"}}), "/content/email/from"},
		{"a bad reply-to", content(notify.EmailContent{ReplyTo: &notify.EmailAddress{Address: "x"}}), "/content/email/reply_to"},
		{"a file without a name", file(notify.Attachment{}), "/content/email/attachments/1/filename"},
		{"a file with a name of spaces", file(notify.Attachment{Filename: " \r\n "}), "/content/email/attachments/1/filename"},
		{"a file with a long name", file(notify.Attachment{Filename: strings.Repeat("x", 256)}), "/content/email/attachments/1/filename"},
		{"a file of no type", file(notify.Attachment{Filename: "a", ContentType: "pdf"}), "/content/email/attachments/1/content_type"},
		{"a file of many parts", file(notify.Attachment{Filename: "a", ContentType: "multipart/mixed; boundary=x"}), "/content/email/attachments/1/content_type"},
		{"a file that is a message", file(notify.Attachment{Filename: "a", ContentType: "message/rfc822"}), "/content/email/attachments/1/content_type"},
		{"a type with a line of its own", file(notify.Attachment{Filename: "a", ContentType: "text/plain\r\nX: y"}), "/content/email/attachments/1/content_type"},
		{"files of 7 MiB", file(notify.Attachment{Filename: "a", Content: make([]byte, 7<<20)}), ""},
		{"files of a byte more", file(notify.Attachment{Filename: "a", Content: make([]byte, 7<<20+1)}), "/content/email/attachments"},
	}
	p := offline(t, nil)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := testMessage()
			tt.change(m)
			err := p.Check(m)
			wantField(t, err, tt.want)
			if tt.want == "" {
				return
			}
			if a := m.To.Email; a != nil && len(a.Address) > 4 && strings.Contains(err.Error(), a.Address) {
				t.Errorf("Check echoes the address: %v", err)
			}
			wantOutcome := notify.MessageRejected
			if strings.HasPrefix(tt.want, "/to/") {
				wantOutcome = notify.RecipientRejected
			}
			if r := p.Send(t.Context(), m); r.Outcome != wantOutcome {
				t.Errorf("Send says %q, want %q", r.Outcome, wantOutcome)
			}
		})
	}
}

func TestSenderOverride(t *testing.T) {
	p := offline(t, func(c *Config) {
		c.AllowFromOverride = true
		c.ReplyTo = Address{Address: "ops@example.com", Name: "Ops"}
	})
	m := testMessage()
	m.Content.Email = &notify.EmailContent{From: &notify.EmailAddress{Address: "ceo@bücher.example", Name: "Die Chefin"}}
	got := parseMessage(t, rendered(t, p, m))
	if a := got.address(t, "From"); a.Address != "ceo@xn--bcher-kva.example" || a.Name != "Die Chefin" {
		t.Errorf("from %+v", a)
	}
	if a := got.address(t, "Reply-To"); a.Address != "ops@example.com" || a.Name != "Ops" {
		t.Errorf("reply to %+v", a)
	}
	if id := got.header.Get("Message-Id"); !strings.HasSuffix(id, "@xn--bcher-kva.example>") {
		t.Errorf("message id %q is not of the sender's domain", id)
	}
	m.Content.Email.From.Address = "nobody"
	wantField(t, p.Check(m), "/content/email/from")
}

// FuzzMailbox: an address that is taken is one address and stays what it is.
func FuzzMailbox(f *testing.F) {
	for _, s := range []string{"ana@example.org", `"a b"@example.org`, "jörg@bücher.example", "a@b>", "a@b\r\n", "a@@b", "<a@b>", "a(c)@b", "\"\\\"\"@b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m, err := parseMailbox(s, "")
		if err != nil {
			return
		}
		path := m.path()
		if strings.ContainsAny(path, "\r\n\x00") || !strings.HasPrefix(path, "<") || strings.Count(path, ">") != 1 || !strings.HasSuffix(path, ">") {
			t.Fatalf("%q becomes the path %q", s, path)
		}
		again, err := parseMailbox(path[1:len(path)-1], "")
		if err != nil || again != m {
			t.Errorf("%q becomes %+v, then %+v, %v", s, m, again, err)
		}
	})
}
