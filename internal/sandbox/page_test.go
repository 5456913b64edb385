package sandbox_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

func page(t *testing.T, s *sandbox.Server) answer {
	t.Helper()
	a := send(t, http.MethodGet, s.HTTPURL()+"/sandbox/", "")
	if a.status != 200 || !strings.HasPrefix(a.header.Get("Content-Type"), "text/html") {
		t.Fatalf("the page answers %d %v", a.status, a.header)
	}
	return a
}

func wantParts(t *testing.T, html string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(html, part) {
			t.Errorf("the page lacks %q", part)
		}
	}
}

func TestThePageShowsEachMessageAsItsReaderSeesIt(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	wantParts(t, page(t, s).body, "Nothing yet", s.HTTPURL(), s.SMTPAddr(), "bounce@sandbox.test", "21610")

	sms(t, s, "+14155550100", "an <i>sms</i>")
	sms(t, s, "whatsapp:+14155550100", "a whatsapp")
	sms(t, s, "+15005550001", "a refused one")
	send(t, http.MethodPost, s.HTTPURL()+"/services/T1/B1/x", `{"text":"a slack message"}`)
	send(t, http.MethodPost, s.HTTPURL()+"/webhook/a", `{"a":{"b":1}}`)
	pushTo(t, s, "ana", `{"title":"a title","body":"a push"}`, "")
	if err := mailTo(t, s, "ana@example.com", "1"); err != nil {
		t.Fatal(err)
	}
	html := page(t, s).body
	wantParts(t, html,
		`<p class="bubble">an &lt;i&gt;sms&lt;/i&gt;</p>`, `class="card whatsapp reached"`, `<p class="bubble">a whatsapp</p>`,
		`<span class="chip refused">400 21211</span>`, `<p>a slack message</p>`, "{\n  &#34;a&#34;: {", "<strong>a title</strong><p>a push</p>",
		"<strong>S</strong>", `<span class="chip accepted">accepted</span>`)
	if strings.Index(html, "a push") > strings.Index(html, "an &lt;i&gt;sms") {
		t.Error("the newest is not first")
	}
	if strings.Contains(html, "<i>sms</i>") {
		t.Error("a message's text is not escaped")
	}
}

func TestThePageLoadsNothingFromElsewhere(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	a := page(t, s)
	policy := a.header.Get("Content-Security-Policy")
	if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe-inline") || strings.Contains(policy, "http") {
		t.Errorf("policy %q", policy)
	}
	for _, attribute := range []string{` style="`, "<style", "onclick", "javascript:"} {
		if strings.Contains(a.body, attribute) {
			t.Errorf("the page has %q, which its policy forbids", attribute)
		}
	}
	for part := range strings.SplitSeq(a.body, `"`) {
		u, err := url.Parse(part)
		if err != nil || !strings.HasPrefix(part, "/sandbox/static/") {
			continue
		}
		if got := send(t, http.MethodGet, s.HTTPURL()+u.Path, ""); got.status != 200 || got.body == "" {
			t.Errorf("%s answers %d", part, got.status)
		}
	}
}

func TestNewCardsAreThoseAfterTheLast(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	sms(t, s, "+14155550100", "old")
	sms(t, s, "+14155550100", "new")
	a := send(t, http.MethodGet, s.HTTPURL()+"/sandbox/cards?after=1", "")
	if !strings.Contains(a.body, "new") || strings.Contains(a.body, "old") || a.header.Get("X-Sandbox-Last") != "2" {
		t.Errorf("got %v %s", a.header, a.body)
	}
	a = send(t, http.MethodGet, s.HTTPURL()+"/sandbox/cards?after=2", "")
	if strings.TrimSpace(a.body) != "" || a.header.Get("X-Sandbox-Last") != "2" {
		t.Errorf("nothing new: %q", a.body)
	}
	if a = send(t, http.MethodGet, s.HTTPURL()+"/sandbox/cards?after=99", ""); a.header.Get("X-Sandbox-Last") != "2" {
		t.Error("a page that is ahead is not told to begin again")
	}
}

func TestAMailsHTMLIsCaged(t *testing.T) {
	t.Parallel()
	s := start(t, sandbox.Config{})
	if err := rawMail(t, s, "ana@example.com", "Content-Type: text/html\r\n\r\n<script>1</script><p>x</p>"); err != nil {
		t.Fatal(err)
	}
	wantParts(t, page(t, s).body, `<iframe src="/sandbox/mail/1"`)
	a := send(t, http.MethodGet, s.HTTPURL()+"/sandbox/mail/1", "")
	policy := a.header.Get("Content-Security-Policy")
	if !strings.Contains(a.body, "<p>x</p>") || !strings.HasPrefix(policy, "sandbox;") || strings.Contains(policy, "script") {
		t.Errorf("%q under %q", a.body, policy)
	}
	if a := send(t, http.MethodGet, s.HTTPURL()+"/sandbox/mail/2", ""); a.status != 404 {
		t.Errorf("no such mail answers %d", a.status)
	}
}
