package notify_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/fallback"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// noon is the instant at which the tests' requests arrive.
var noon = time.Date(2026, 12, 1, 12, 0, 0, 123456789, time.UTC)

func options() notify.ParseOptions {
	best := map[notify.Channel]notify.Status{
		notify.Push: notify.Sent, notify.SMS: notify.Delivered, notify.WhatsApp: notify.Read,
		notify.Email: notify.Delivered, notify.Slack: notify.Sent, notify.Webhook: notify.Delivered,
	}
	return notify.ParseOptions{
		ID: uuid.MustParse("0193a1b2-0000-7000-8000-000000000001"), Project: "default", Now: noon,
		Account: func(c notify.Channel, name string) (notify.Status, bool) {
			if c == notify.SMS && name == "sms-poor" {
				return notify.Sent, true
			}
			return best[c], name == "" || name == string(c)+"-main"
		},
	}
}

type corpusRow struct {
	Name     string
	Body     json.RawMessage
	Problems []string // pointer, space, code
}

// corpus is the list of bodies that every way in has to judge alike.
func corpus(tb testing.TB) []corpusRow {
	tb.Helper()
	text, err := os.ReadFile("testdata/requests.json")
	if err != nil {
		tb.Fatal(err)
	}
	var rows []corpusRow
	if err := json.Unmarshal(text, &rows); err != nil {
		tb.Fatal(err)
	}
	return rows
}

func short(problems []notify.Problem) []string {
	out := []string{}
	for _, p := range problems {
		out = append(out, p.Pointer+" "+p.Code)
	}
	return out
}

func TestParseJudgesTheCorpus(t *testing.T) {
	for _, row := range corpus(t) {
		t.Run(row.Name, func(t *testing.T) {
			_, problems := notify.Parse(row.Body, options())
			if diff := cmp.Diff(row.Problems, short(problems)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
			for _, p := range problems {
				if p.Detail == "" {
					t.Errorf("%s %s has no detail", p.Pointer, p.Code)
				}
			}
		})
	}
}

func TestParseRefusesWhatIsNoIJSON(t *testing.T) {
	const ok = `{"to":{"sms":"+14155550100"},"content":{"body":"hi"}}`
	deep := func(n int) string {
		return ok[:len(ok)-1] + `,"metadata":{"a":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}}`
	}
	tests := []struct{ name, body, want string }{
		{"nothing", "", " malformed"},
		{"null", "null", " type"},
		{"an array", "[]", " type"},
		{"a text", `"x"`, " type"},
		{"half an object", ok[:len(ok)-3], "/content/body malformed"},
		{"two objects", ok + ok, " malformed"},
		{"a trailing comma", `{"to":{"sms":"+14155550100",}}`, "/to malformed"},
		{"a comment", `{/* x */}`, " malformed"},
		{"NaN", `{"metadata":{"a":NaN}}`, "/metadata/a malformed"},
		{"a member twice", `{"to":{"sms":"+14155550100","sms":"+14155550101"}}`, "/to/sms duplicate_member"},
		{"a member twice in a free value", `{"metadata":{"a":{"b":1,"b":2}}}`, "/metadata/a/b duplicate_member"},
		{"invalid UTF-8", "{\"reference\":\"\xff\"}", "/reference malformed"},
		{"half a surrogate pair", `{"reference":"\ud800"}`, "/reference malformed"},
		{"U+0000 as it is", "{\"reference\":\"\x00\"}", "/reference malformed"},
		{"a byte order mark", "\ufeff" + ok, " malformed"},
		{"31 arrays in two objects", deep(31), " too_deep"},
		{"a bomb of brackets", strings.Repeat("[", 1<<20), " too_deep"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, problems := notify.Parse([]byte(tt.body), options())
			if diff := cmp.Diff([]string{tt.want}, short(problems)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
	if _, problems := notify.Parse([]byte(deep(30)), options()); len(problems) != 0 {
		t.Errorf("32 levels are refused: %v", problems)
	}
	brackets := strings.Replace(ok, "hi", `\"\\\"`+strings.Repeat("[", 40), 1)
	if _, problems := notify.Parse([]byte(brackets), options()); len(problems) != 0 {
		t.Errorf("brackets in a text are counted: %v", problems)
	}
}

func TestParseBoundsWhatIsLarge(t *testing.T) {
	devices := func(n int) string {
		var list []string
		for i := range n {
			list = append(list, fmt.Sprintf(`{"provider":"fcm","token":"t%d"}`, i))
		}
		return `{"to":{"push":[` + strings.Join(list, ",") + `]},"content":{"body":"hi"}}`
	}
	content := func(body, attachment int) string {
		return fmt.Sprintf(`{"to":{"email":"ana@example.com"},"content":{"title":"t","body":"%s","email":{"attachments":[{"filename":"a","content":"%s"}]}}}`,
			strings.Repeat("x", body), strings.Repeat("AAAA", attachment))
	}
	tests := []struct{ name, body, want string }{
		{"takes 100 devices", devices(100), ""},
		{"refuses 101 devices", devices(101), "/to/push length"},
		{"takes 250 KiB of text", content(250<<10, 1), ""},
		{"takes large attachments", content(1, 128<<10), ""},
		{"refuses 256 KiB of text", content(256<<10, 1), "/content length"},
		{"takes what is large for its white space only", strings.Replace(content(1, 1), "{", "{"+strings.Repeat(" ", 300<<10), 1), ""},
		{"takes a token of 4096 bytes", strings.Replace(devices(1), "t0", strings.Repeat("t", 4096), 1), ""},
		{"refuses a token of 4097 bytes", strings.Replace(devices(1), "t0", strings.Repeat("t", 4097), 1), "/to/push/0/token format"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, problems := notify.Parse([]byte(tt.body), options())
			if got := strings.Join(short(problems), ", "); got != tt.want {
				t.Errorf("problems %q, want %q", got, tt.want)
			}
		})
	}
	t.Run("answers a hundred problems at most", func(t *testing.T) {
		body := strings.ReplaceAll(devices(100), `"fcm"`, `"apns","endpoint":"x","keys":{}`)
		if _, problems := notify.Parse([]byte(body), options()); len(problems) != 100 {
			t.Errorf("%d problems, want 100", len(problems))
		}
	})
}

func TestParseBoundsTimes(t *testing.T) {
	now := noon.Truncate(time.Microsecond)
	tests := []struct {
		name, members  string
		sendAt, expire time.Time
		want           string
	}{
		{"fills in both", ``, now, now.Add(24 * time.Hour), ""},
		{"takes other time zones", `,"send_at":"2026-12-01T15:00:00+02:00"`, time.Date(2026, 12, 1, 13, 0, 0, 0, time.UTC), time.Date(2026, 12, 2, 13, 0, 0, 0, time.UTC), ""},
		{"cuts to microseconds", `,"send_at":"2026-12-02T00:00:00.123456789Z"`, time.Date(2026, 12, 2, 0, 0, 0, 123456000, time.UTC), time.Date(2026, 12, 3, 0, 0, 0, 123456000, time.UTC), ""},
		{"takes the past for now", `,"send_at":"1999-01-01T00:00:00Z"`, now, now.Add(24 * time.Hour), ""},
		{"takes five years ahead", `,"send_at":"2031-12-01T12:00:00Z"`, now.AddDate(5, 0, 0).Truncate(time.Second), now.AddDate(5, 0, 0).Truncate(time.Second).Add(24 * time.Hour), ""},
		{"refuses more than five years ahead", `,"send_at":"2031-12-01T12:00:01Z"`, time.Time{}, time.Time{}, "/send_at range"},
		{"takes an expiry", `,"expires_at":"2026-12-01T12:00:01Z"`, now, noon.Truncate(time.Second).Add(time.Second), ""},
		{"refuses an expiry in the past", `,"expires_at":"2026-12-01T12:00:00Z"`, time.Time{}, time.Time{}, "/expires_at range"},
		{"refuses an expiry that is not after send_at", `,"send_at":"2026-12-02T00:00:00Z","expires_at":"2026-12-02T00:00:00Z"`, time.Time{}, time.Time{}, "/expires_at range"},
		{"refuses an expiry within the same microsecond", `,"send_at":"2026-12-02T00:00:00.0000001Z","expires_at":"2026-12-02T00:00:00.0000009Z"`, time.Time{}, time.Time{}, "/expires_at range"},
		{"takes 30 days after send_at", `,"send_at":"2027-01-01T00:00:00Z","expires_at":"2027-01-31T00:00:00Z"`, time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC), ""},
		{"refuses more than 30 days after send_at", `,"send_at":"2027-01-01T00:00:00Z","expires_at":"2027-01-31T00:00:01Z"`, time.Time{}, time.Time{}, "/expires_at range"},
		{"needs a time zone", `,"send_at":"2026-12-02T00:00:00"`, time.Time{}, time.Time{}, "/send_at format"},
		{"needs a time", `,"send_at":"2026-12-02","expires_at":"tomorrow"`, time.Time{}, time.Time{}, "/send_at format, /expires_at format"},
		{"needs two digits of an hour", `,"send_at":"2026-12-02T3:04:05Z"`, time.Time{}, time.Time{}, "/send_at format"},
		{"needs an offset within a day", `,"send_at":"2026-12-02T03:04:05+24:00"`, time.Time{}, time.Time{}, "/send_at format"},
		{"refuses days that are none", `,"send_at":"2027-02-29T00:00:00Z"`, time.Time{}, time.Time{}, "/send_at format"},
		{"refuses numbers", `,"send_at":1764547200`, time.Time{}, time.Time{}, "/send_at type"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n, problems := notify.Parse([]byte(`{"to":{"sms":"+14155550100"},"content":{"body":"hi"}`+tt.members+`}`), options())
			if got := strings.Join(short(problems), ", "); got != tt.want {
				t.Fatalf("problems %q, want %q", got, tt.want)
			}
			if !n.SendAt.Equal(tt.sendAt) || !n.ExpiresAt.Equal(tt.expire) {
				t.Errorf("send at %v until %v, want %v until %v", n.SendAt, n.ExpiresAt, tt.sendAt, tt.expire)
			}
		})
	}
}

func TestParseFillsInEveryDefault(t *testing.T) {
	n, problems := notify.Parse([]byte(`{
		"to": {"email": "ana@example.com", "webhook": {"url": "https://example.com"}, "sms": "+14155550100", "push": {"provider": "fcm", "token": "t"}},
		"content": {"title": "t", "body": "b", "data": {"b": 1.50, "a": "\u0041"}}, "priority": "critical", "metadata": { }}`), options())
	if problems != nil {
		t.Fatal(problems)
	}
	now := noon.Truncate(time.Microsecond)
	within := notify.Duration(fallback.CriticalWithin)
	want := notify.Notification{
		ID: options().ID, Project: "default", Mode: notify.First, Priority: notify.Critical,
		To: notify.To{
			Push: notify.Devices{{Provider: "fcm", Token: "t"}}, SMS: "+14155550100",
			Email: &notify.EmailAddress{Address: "ana@example.com"}, Webhook: &notify.WebhookTarget{URL: "https://example.com"},
		},
		Chain: []notify.Step{
			{Channel: notify.Push, Success: notify.UntilAccepted, Attempts: fallback.DefaultAttempts, Within: within},
			{Channel: notify.SMS, Success: notify.UntilAccepted, Attempts: fallback.DefaultAttempts, Within: within},
			{Channel: notify.Email, Success: notify.UntilAccepted, Attempts: fallback.DefaultAttempts},
		},
		Content:  notify.Content{Title: "t", Body: "b", Data: jsontext.Value(`{"b":1.50,"a":"A"}`)},
		Metadata: jsontext.Value(`{}`), CreatedAt: now, SendAt: now, ExpiresAt: now.Add(24 * time.Hour),
	}
	if diff := cmp.Diff(want, n); diff != "" {
		t.Errorf("notification (-want +got):\n%s", diff)
	}
}

func TestParseBoundsStepsThatHaveANextOne(t *testing.T) {
	body := func(mode, priority string) []byte {
		return []byte(`{"to":{"sms":"+14155550100"},"content":{"body":"hi"},"mode":"` + mode + `","priority":"` + priority +
			`","chain":[{"channel":"sms"},{"channel":"sms","within":"5s"},{"channel":"sms"}]}`)
	}
	tests := []struct {
		mode, priority string
		want           []time.Duration
	}{
		{"first", "normal", []time.Duration{fallback.DefaultWithin, 5 * time.Second, 0}},
		{"first", "critical", []time.Duration{fallback.CriticalWithin, 5 * time.Second, 0}},
		{"all", "normal", []time.Duration{0, 5 * time.Second, 0}},
	}
	for _, tt := range tests {
		n, problems := notify.Parse(body(tt.mode, tt.priority), options())
		if problems != nil {
			t.Fatal(problems)
		}
		var got []time.Duration
		for _, s := range n.Chain {
			got = append(got, s.Within.Std())
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("mode %s, priority %s: within %v, want %v", tt.mode, tt.priority, got, tt.want)
		}
	}
}

func TestParseNeedsAnAccountForTheChannel(t *testing.T) {
	o := options()
	o.Account = func(notify.Channel, string) (notify.Status, bool) { return "", false }
	_, problems := notify.Parse([]byte(`{"to":{"sms":"+14155550100"},"content":{"body":"hi"}}`), o)
	if got := strings.Join(short(problems), ", "); got != "/to/sms unknown_account" {
		t.Errorf("default chain: problems %q", got)
	}
	_, problems = notify.Parse([]byte(`{"to":{"sms":"+14155550100"},"content":{"body":"hi"},"chain":[{"channel":"sms"}]}`), o)
	if got := strings.Join(short(problems), ", "); got != "/chain/0/channel unknown_account" {
		t.Errorf("named chain: problems %q", got)
	}
	o.Account = nil
	if _, problems = notify.Parse([]byte(`{"to":{"sms":"+14155550100"},"content":{"body":"hi"}}`), o); problems != nil {
		t.Errorf("accounts are checked although there is nobody to ask: %v", problems)
	}
}

// A pointer into the body names members, and a member's name may be an address.
func TestProblemsDoNotRepeatAddressesAndTexts(t *testing.T) {
	const phone, mail, words = "+14155550199", "ana.secret@example.com", "the-secret-word"
	bodies := []string{
		`{"` + phone + `":1}`, `{"to":{"` + mail + `":1}}`, `{"to":{"14155550199":1}}`, `{"metadata":{"` + mail + `":1,"` + mail + `":2}}`,
		`{"to":{"sms":"` + phone + `x","email":"` + mail + `@","push":{"provider":"` + words + `"}},"content":"` + words + `"}`,
		`{"to":{"sms":"` + phone + `x","email":"` + mail + `@","push":{"provider":"` + words + `"},"slack":{"channel":"` + words + ` "},
		  "webhook":{"url":"` + words + `","headers":{"` + mail + `":"\n"}}},"chain":[{"channel":"` + words + `","account":"` + words + `","success":"` + words + `",
		  "within":"` + words + `","on_unknown":"` + words + `"}],"mode":"` + words + `","priority":"` + words + `","send_at":"` + words + `","expires_at":"` + words + `"}`,
		`{"to":{"sms":` + phone + `}}`, `{"to":{"sms":"` + phone, `{"chain":[{"attempts":"` + words + `"}]}`,
		`{"content":{"push":{"ttl":"` + words + `"}}}`, `{"content":{"email":{"attachments":[{"content":"` + words + `"}]}}}`,
	}
	for _, body := range bodies {
		_, problems := notify.Parse([]byte(body), options())
		if len(problems) == 0 {
			t.Errorf("no problem with %s", body)
		}
		said := fmt.Sprint(problems)
		for _, secret := range []string{phone, phone[1:], mail, words} {
			if strings.Contains(said, secret) {
				t.Errorf("problems repeat %q: %s", secret, said)
			}
		}
	}
}
