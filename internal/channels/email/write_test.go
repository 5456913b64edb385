package email

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// part is one leaf of a parsed message.
type part struct {
	Type, Disposition, Filename string
	Body                        string
}

// parsed is a message as a receiver reads it.
type parsed struct {
	header mail.Header
	tree   string // such as mixed(alternative(text/plain text/html) text/csv)
	parts  []part
}

func parseMessage(t *testing.T, raw string) parsed {
	t.Helper()
	lines := strings.Split(raw, "\n")
	for i, line := range lines {
		if i < len(lines)-1 && !strings.HasSuffix(line, "\r") {
			t.Fatalf("a line does not end with CRLF: %q", line)
		}
		if len(line) > 999 {
			t.Fatalf("a line of %d bytes", len(line))
		}
	}
	msg, err := mail.ReadMessage(strings.NewReader(raw))
	if err != nil {
		t.Fatalf("read message: %v\n%s", err, raw)
	}
	p := parsed{header: msg.Header}
	p.tree = p.walk(t, textproto.MIMEHeader(msg.Header), msg.Body)
	return p
}

func (p *parsed) walk(t *testing.T, h textproto.MIMEHeader, body io.Reader) string {
	t.Helper()
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		t.Fatalf("content type %q: %v", h.Get("Content-Type"), err)
	}
	if sub, ok := strings.CutPrefix(kind, "multipart/"); ok {
		var below []string
		for r := multipart.NewReader(body, params["boundary"]); ; {
			next, err := r.NextRawPart()
			if errors.Is(err, io.EOF) {
				return sub + "(" + strings.Join(below, " ") + ")"
			}
			if err != nil {
				t.Fatalf("read part: %v", err)
			}
			below = append(below, p.walk(t, next.Header, next))
		}
	}
	switch h.Get("Content-Transfer-Encoding") {
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	default:
		t.Fatalf("transfer encoding %q", h.Get("Content-Transfer-Encoding"))
	}
	b, err := io.ReadAll(body)
	if err != nil {
		t.Fatalf("decode body: %v", err)
	}
	leaf := part{Type: h.Get("Content-Type"), Body: string(b)}
	if d := h.Get("Content-Disposition"); d != "" {
		disposition, params, err := mime.ParseMediaType(d)
		if err != nil {
			t.Fatalf("disposition %q: %v", d, err)
		}
		leaf.Disposition, leaf.Filename = disposition, params["filename"]
	}
	p.parts = append(p.parts, leaf)
	return kind
}

func (p *parsed) decoded(t *testing.T, name string) string {
	t.Helper()
	s, err := new(mime.WordDecoder).DecodeHeader(p.header.Get(name))
	if err != nil {
		t.Fatalf("header %s: %v", name, err)
	}
	return s
}

func (p *parsed) address(t *testing.T, name string) mail.Address {
	t.Helper()
	list, err := p.header.AddressList(name)
	if err != nil || len(list) != 1 {
		t.Fatalf("header %s %q: %v", name, p.header.Get(name), err)
	}
	return *list[0]
}

var testDate = time.Date(2026, 11, 30, 9, 30, 0, 0, time.UTC)

// rendered is the message that m becomes, without a server.
func rendered(t *testing.T, p *Provider, m *channels.Message) string {
	t.Helper()
	l, bad := p.read(m)
	if bad != nil {
		t.Fatal(bad)
	}
	p.now = func() time.Time { return testDate }
	raw, err := p.render(l, messageID(m, l.from), deliveryRef(m).String())
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// offline is an account whose server is never asked.
func offline(t *testing.T, change func(*Config)) *Provider {
	t.Helper()
	cfg := Config{Host: "127.0.0.1", TLS: tlsNone, From: Address{Address: "alerts@example.com", Name: "Alerts"}}
	if change != nil {
		change(&cfg)
	}
	return newProvider(t, cfg)
}

// usualHeaders are those of every message.
var usualHeaders = []string{"Auto-Submitted", "Date", "From", "Message-Id", "Mime-Version", "To"}

func headerNames(h mail.Header, more ...string) (got, want []string) {
	want = append(slices.Clone(usualHeaders), more...)
	slices.Sort(want)
	return slices.Sorted(maps.Keys(h)), want
}

func TestPlainMessage(t *testing.T) {
	got := parseMessage(t, rendered(t, offline(t, nil), testMessage()))
	names, want := headerNames(got.header, "Subject", "Content-Type", "Content-Transfer-Encoding")
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	for name, want := range map[string]string{
		"Subject": "Deploy failed", "Auto-Submitted": "auto-generated", "Mime-Version": "1.0",
		"Date":       "Mon, 30 Nov 2026 09:30:00 +0000",
		"Message-Id": "<0193b0c0-0000-5000-8000-000000000001@example.com>",
		"From":       `"Alerts" <alerts@example.com>`, "To": `"Ana" <ana@example.org>`,
	} {
		if v := got.header.Get(name); v != want {
			t.Errorf("%s: %q, want %q", name, v, want)
		}
	}
	wantParts := []part{{Type: "text/plain; charset=UTF-8", Body: "3 of 5 pods are down"}}
	if diff := cmp.Diff(wantParts, got.parts); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

func TestStructure(t *testing.T) {
	csv := []notify.Attachment{{Filename: "a.csv", ContentType: "text/csv", Content: []byte("a,b\n")}}
	for _, tt := range []struct {
		name  string
		email notify.EmailContent
		want  string
	}{
		{"text", notify.EmailContent{Text: "t"}, "text/plain"},
		{"text and html", notify.EmailContent{Text: "t", HTML: "<p>t</p>"}, "alternative(text/plain text/html)"},
		{"text and a file", notify.EmailContent{Text: "t", Attachments: csv}, "mixed(text/plain text/csv)"},
		{"all", notify.EmailContent{Text: "t", HTML: "<p>t</p>", Attachments: csv}, "mixed(alternative(text/plain text/html) text/csv)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m := testMessage()
			m.Content.Email = &tt.email
			if got := parseMessage(t, rendered(t, offline(t, nil), m)); got.tree != tt.want {
				t.Errorf("structure %s, want %s", got.tree, tt.want)
			}
		})
	}
	t.Run("html alone", func(t *testing.T) {
		m := testMessage()
		m.Content = notify.Content{Email: &notify.EmailContent{HTML: "<p>t</p>"}}
		if got := parseMessage(t, rendered(t, offline(t, nil), m)); got.tree != "text/html" {
			t.Errorf("structure %s", got.tree)
		}
	})
}

func TestEveryLanguageComesThrough(t *testing.T) {
	texts := map[string]string{
		"German": "Störung: Überlauf im Größenzähler", "Greek": "Αποτυχία ανάπτυξης", "Russian": "Сбой развёртывания",
		"Arabic": "فشل النشر في الخادم", "Hebrew": "הפריסה נכשלה", "Hindi": "तैनाती विफल रही", "Thai": "การปรับใช้ล้มเหลว",
		"Chinese": "部署失败：五个中的三个已停止", "Japanese": "デプロイに失敗しました", "Korean": "배포에 실패했습니다",
		"emoji": "🔥 👩‍🚒 🇪🇺 down", "long": strings.Repeat("überlang ", 60) + "ende", "one word": strings.Repeat("部", 300),
		"looks encoded": "=?utf-8?q?=0D=0ABcc:_eve@example.com?=", "one ASCII word": strings.Repeat("x", 998),
	}
	for name, s := range texts {
		t.Run(name, func(t *testing.T) {
			m := testMessage()
			short := string([]rune(s)[:min(40, utf8.RuneCountInString(s))])
			short = strings.TrimSpace(short)
			m.To.Email.Name = short
			m.Content.Email = &notify.EmailContent{
				Subject: s, Text: s + "\nline 2\r\n.\r\n", HTML: "<p>" + s + "</p>",
				ReplyTo:     &notify.EmailAddress{Address: "ops@bücher.example", Name: short},
				Attachments: []notify.Attachment{{Filename: short + ".pdf", ContentType: "application/pdf", Content: []byte("%PDF\x00\xff" + s)}},
			}
			got := parseMessage(t, rendered(t, offline(t, nil), m))
			if v := got.decoded(t, "Subject"); v != s {
				t.Errorf("subject %q, want %q", v, s)
			}
			if a := got.address(t, "To"); a.Name != short || a.Address != "ana@example.org" {
				t.Errorf("to %+v", a)
			}
			if a := got.address(t, "Reply-To"); a.Name != short || a.Address != "ops@xn--bcher-kva.example" {
				t.Errorf("reply to %+v", a)
			}
			want := []part{
				{Type: "text/plain; charset=UTF-8", Body: s + "\r\nline 2\r\n.\r\n"},
				{Type: "text/html; charset=UTF-8", Body: "<p>" + s + "</p>"},
				{Type: "application/pdf", Disposition: "attachment", Filename: strings.ReplaceAll(short, "/", "_") + ".pdf", Body: "%PDF\x00\xff" + s},
			}
			if diff := cmp.Diff(want, got.parts); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFilesAreNoPaths(t *testing.T) {
	m := testMessage()
	m.Content.Email = &notify.EmailContent{Attachments: []notify.Attachment{{Filename: "../..\\etc/\r\npasswd", Content: []byte("x")}}}
	got := parseMessage(t, rendered(t, offline(t, nil), m))
	want := part{Type: "application/octet-stream", Disposition: "attachment", Filename: ".._.._etc_ passwd", Body: "x"}
	if diff := cmp.Diff(want, got.parts[1]); diff != "" {
		t.Errorf("part (-want +got):\n%s", diff)
	}
}

func TestUnsubscribeHeaders(t *testing.T) {
	tests := []struct {
		name        string
		url, mailto string
		list, post  string
		wantField   string
	}{
		{
			name: "a URL is for one click", url: "https://example.com/u?id=1&x=a%20b",
			list: "<https://example.com/u?id=1&x=a%20b>", post: "List-Unsubscribe=One-Click",
		},
		{name: "an address alone is not", mailto: "leave@example.com", list: "<mailto:leave@example.com>"},
		{
			name: "both", url: "https://example.com/u", mailto: "leave+a=b@bücher.example",
			list: "<https://example.com/u>, <mailto:leave+a=b@xn--bcher-kva.example>", post: "List-Unsubscribe=One-Click",
		},
		{name: "a URL in clear", url: "http://example.com/u", wantField: "/content/email/unsubscribe_url"},
		{name: "a URL with a line of its own", url: "https://example.com/u>\r\nBcc: eve@example.com", wantField: "/content/email/unsubscribe_url"},
		{name: "a URL without a host", url: "https:///u", wantField: "/content/email/unsubscribe_url"},
		{name: "a URL with a password", url: "https://a:b@example.com/u", wantField: "/content/email/unsubscribe_url"},
		{name: "a URL beyond a line", url: "https://example.com/" + strings.Repeat("x", 900), wantField: "/content/email/unsubscribe_url"},
		{name: "no address", mailto: "mailto:leave@example.com?subject=x", wantField: "/content/email/unsubscribe_mailto"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := testMessage()
			m.Content.Email = &notify.EmailContent{UnsubscribeURL: tt.url, UnsubscribeMailto: tt.mailto}
			p := offline(t, nil)
			wantField(t, p.Check(m), tt.wantField)
			if tt.wantField != "" {
				return
			}
			h := parseMessage(t, rendered(t, p, m)).header
			if h.Get("List-Unsubscribe") != tt.list || h.Get("List-Unsubscribe-Post") != tt.post {
				t.Errorf("headers %q, %q", h.Get("List-Unsubscribe"), h.Get("List-Unsubscribe-Post"))
			}
		})
	}
}

// FuzzHeaders puts whatever it likes where a caller's text becomes part of a
// header. The message must have the headers that it should have and no other.
func FuzzHeaders(f *testing.F) {
	f.Add("subject", "name", "file.txt", "text/plain", "body")
	f.Add("a\r\nBcc: eve@example.com", "x\r\nBcc: eve@example.com", "a\"\r\nX-A: b", "text/plain\r\nX-B: c", "\r\n.\r\nMAIL FROM:<x>")
	f.Add("=?utf-8?q?=0D=0ABcc:_eve?=", "\"<a@b>, <c@d>", "../../etc/passwd", "text/plain; name=\"a\r\n\"", "..")
	f.Add(strings.Repeat("x", 998), strings.Repeat("é", 120), strings.Repeat("部", 85), "a/b", strings.Repeat(" ", 2000))
	f.Add("x\\é", "é\\", "\\é", "text/plain", "\\")
	f.Add(" \t ", "\x00\x7f\u0085\u2028", "\u202e", "text/html; charset=\"=?\"", "\xff\xfe")
	f.Fuzz(func(t *testing.T, subject, name, filename, contentType, body string) {
		p := offline(t, nil)
		m := testMessage()
		m.To.Email.Name = name
		m.Content = notify.Content{Email: &notify.EmailContent{
			Subject: subject, Text: body, ReplyTo: &notify.EmailAddress{Address: "ops@example.com", Name: name},
			Attachments: []notify.Attachment{{Filename: filename, ContentType: contentType, Content: []byte(body)}},
		}}
		if p.Check(m) != nil {
			return
		}
		got := parseMessage(t, rendered(t, p, m))
		more := []string{"Content-Type", "Reply-To"}
		if headerText(subject) != "" {
			more = append(more, "Subject")
		}
		names, want := headerNames(got.header, more...)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Fatalf("headers (-want +got):\n%s", diff)
		}
		for name, values := range got.header {
			if len(values) != 1 {
				t.Errorf("%d headers %s", len(values), name)
			}
		}
		if v := got.decoded(t, "Subject"); v != headerText(subject) {
			t.Errorf("subject %q, want %q", v, headerText(subject))
		}
		if a := got.address(t, "To"); a.Name != displayName(name) || a.Address != "ana@example.org" {
			t.Errorf("to %+v, want %q", a, displayName(name))
		}
		if len(got.parts) != 2 || got.parts[0].Body != crlf(body) || got.parts[1].Body != body {
			t.Errorf("parts %q of body %q", got.parts, body)
		}
		if got.parts[1].Filename != fileName(filename) {
			t.Errorf("file %q, want %q", got.parts[1].Filename, fileName(filename))
		}
	})
}

func TestMessageSurvivesTheWire(t *testing.T) {
	s := newServer(t)
	m := testMessage()
	m.Content.Body = ".\n..\n.hidden\n\nfrom here\n" + strings.Repeat("x", 3000) + "\n.\n"
	p := newProvider(t, s.config())
	send(t, p, m)
	got := parseMessage(t, s.message(0))
	if want := crlf(m.Content.Body); len(got.parts) != 1 || got.parts[0].Body != want {
		t.Errorf("body %q, want %q", got.parts, want)
	}
	if bytes.Contains([]byte(s.message(0)), []byte("Bcc")) {
		t.Error("a Bcc header")
	}
}
