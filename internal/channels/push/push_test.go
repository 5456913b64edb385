package push

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

const (
	testToken = "9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0"
	testTitle = "Deploy failed"
	testBody  = "api: 3 of 5 pods are down"
)

var testKey = uuid.MustParse("0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b")

// The keys are made once: RSA takes its time.
var (
	rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return key
	})
	ecKey = sync.OnceValue(func() *ecdsa.PrivateKey {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			panic(err)
		}
		return key
	})
)

func pemOf(tb testing.TB, key any) string {
	tb.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func deviceMessage(provider string) *channels.Message {
	return &channels.Message{
		Key:      testKey,
		To:       notify.Target{Device: &notify.Device{Provider: provider, Token: testToken}},
		Content:  notify.Content{Title: testTitle, Body: testBody, Data: jsontext.Value(`{"incident":"4711"}`)},
		Priority: notify.High,
	}
}

// clock is a time that a test moves. It starts now, as tokens of real libraries
// are made and read by the real clock too.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// at returns the value at a path of object names in a JSON text, "" where there
// is none; values that are not strings as their JSON.
func at(tb testing.TB, text []byte, path string) string {
	tb.Helper()
	v := jsontext.Value(text)
	for name := range strings.SplitSeq(path, "/") {
		var object map[string]jsontext.Value
		if err := json.Unmarshal(v, &object); err != nil {
			tb.Fatalf("%s: %v in %s", path, err, text)
		}
		v = object[name]
		if v == nil {
			return ""
		}
	}
	if v.Kind() == '"' {
		s, err := jsontext.AppendUnquote(nil, v)
		if err != nil {
			tb.Fatal(err)
		}
		return string(s)
	}
	return string(v)
}

func TestLifetimeIsTheSoonestOfExpiryTTLAndFourWeeks(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	cases := []struct {
		name    string
		expires time.Time
		ttl     time.Duration
		want    time.Duration
		over    bool
	}{
		{"neither", time.Time{}, 0, MaxTTL, false},
		{"expiry", now.Add(time.Hour), 0, time.Hour, false},
		{"ttl before expiry", now.Add(time.Hour), time.Minute, time.Minute, false},
		{"expiry before ttl", now.Add(time.Minute), time.Hour, time.Minute, false},
		{"expiry beyond four weeks", now.Add(2 * MaxTTL), 0, MaxTTL, false},
		{"parts of a second are dropped", now.Add(1900 * time.Millisecond), 0, time.Second, false},
		{"less than a second is now or never", now.Add(time.Millisecond), 0, 0, false},
		{"expiring now", now, 0, 0, true},
		{"expired", now.Add(-time.Second), time.Hour, 0, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := &channels.Message{ExpiresAt: c.expires, Content: notify.Content{Push: &notify.PushContent{TTL: notify.Duration(c.ttl)}}}
			got, over := lifetime(m, now)
			if got != c.want || over != c.over {
				t.Errorf("lifetime %v, over %t; want %v, %t", got, over, c.want, c.over)
			}
		})
	}
}

func TestTokenIsRefusedThatIsNone(t *testing.T) {
	t.Parallel()
	for _, token := range []string{testToken, "unregistered", "dQw4w9WgXcQ:APA91bH-x_y.z"} {
		if err := checkToken(token, 512); err != nil {
			t.Errorf("%q: %v", token, err)
		}
	}
	for _, token := range []string{"", ".", "..", "a/b", "a b", "a?b", "a%2fb", "tökèn", "a\n", strings.Repeat("a", 513)} {
		err := checkToken(token, 512)
		if err == nil {
			t.Errorf("%q is taken for a token", token)
		} else if err.Field != "/to/push/token" {
			t.Errorf("field %q of %q", err.Field, token)
		}
	}
}

func TestCodeIsKeptUnlessItIsAnEcho(t *testing.T) {
	t.Parallel()
	const address = "dQw4w9WgXcQ:APA91bABCDEF_GHI"
	for _, c := range []struct {
		text  string
		shape *regexp.Regexp
		want  string
	}{
		{"UNREGISTERED", googleCode, "UNREGISTERED"},
		{"BadDeviceToken", appleCode, "BadDeviceToken"},
		{"invalid_grant", oauthCode, "invalid_grant"},
		{"ABCDEF_GHI", googleCode, ""}, // a piece of the address
		{"Deploy failed", appleCode, ""},
		{"UNREGISTERED\n", googleCode, ""},
		{strings.Repeat("A", 65), googleCode, ""},
		{"", googleCode, ""},
	} {
		if got := code(c.text, c.shape, address); got != c.want {
			t.Errorf("code %q of %q", got, c.text)
		}
	}
}

// checkCase is a message that a provider refuses before the call.
type checkCase struct {
	name   string
	change func(*channels.Message)
	field  string // "" where it is fine
}

func runChecks(t *testing.T, p channels.Provider, message func() *channels.Message, cases []checkCase) {
	t.Helper()
	cases = append(cases,
		checkCase{"no device", func(m *channels.Message) { m.To.Device = nil }, "/to/push/provider"},
		checkCase{"a device of another provider", func(m *channels.Message) { m.To.Device.Provider = "other" }, "/to/push/provider"},
		checkCase{"no text", func(m *channels.Message) { m.Content.Title, m.Content.Body = "", "" }, "/content/push"},
		checkCase{"a title alone", func(m *channels.Message) { m.Content.Body = "" }, ""},
		checkCase{"invalid UTF-8", func(m *channels.Message) { m.Content.Body = "\xff" }, "/content/push"},
		checkCase{"data that is no object", func(m *channels.Message) { m.Content.Data = jsontext.Value(`["a"]`) }, "/content/data"},
		checkCase{"push data that is no object", func(m *channels.Message) {
			m.Content.Push = &notify.PushContent{Data: jsontext.Value(`"a"`)}
		}, "/content/push/data"},
		checkCase{"an image that is no https", func(m *channels.Message) {
			m.Content.Push = &notify.PushContent{Image: "http://example.com/a.png"}
		}, "/content/push/image"},
		checkCase{"a ttl over four weeks", func(m *channels.Message) {
			m.Content.Push = &notify.PushContent{TTL: notify.Duration(MaxTTL + 1)}
		}, "/content/push/ttl"},
		checkCase{"a ttl below zero", func(m *channels.Message) {
			m.Content.Push = &notify.PushContent{TTL: -1}
		}, "/content/push/ttl"},
		checkCase{"a body far too long", func(m *channels.Message) { m.Content.Body = strings.Repeat("x", 5000) }, "/content/push"},
	)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := message()
			c.change(m)
			checkRefusal(t, p, m, c.field)
		})
	}
}

func checkRefusal(t *testing.T, p channels.Provider, m *channels.Message, field string) {
	t.Helper()
	err := p.(channels.Checker).Check(m)
	if field == "" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	refusal, ok := errors.AsType[*channels.CheckError](err)
	if !ok {
		t.Fatalf("error %v, want a refusal of %s", err, field)
	}
	if refusal.Field != field {
		t.Errorf("field %s, want %s (%s)", refusal.Field, field, refusal.Reason)
	}
	want := notify.MessageRejected
	if strings.HasPrefix(field, "/to/") {
		want = notify.RecipientRejected
	}
	if r := p.Send(t.Context(), m); r.Outcome != want || r.Detail == "" {
		t.Errorf("Send gives %+v, want %s", r, want)
	}
}

// checkExpired: a message whose time is over costs no call.
func checkExpired(t *testing.T, p channels.Provider, m *channels.Message, now time.Time) {
	t.Helper()
	m.ExpiresAt = now.Add(-time.Second)
	if r := p.Send(t.Context(), m); r.Outcome != notify.Expired {
		t.Errorf("outcome %q, want expired (%+v)", r.Outcome, r)
	}
}

// checkProblems: each key is named, and the secrets are not.
func checkProblems(t *testing.T, err error, keys []string, secrets ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	for _, key := range keys {
		if !strings.Contains(err.Error(), key+": ") {
			t.Errorf("%s is not named in:\n%v", key, err)
		}
	}
	for _, s := range secrets {
		if strings.Contains(err.Error(), s) {
			t.Errorf("a secret is disclosed in:\n%v", err)
		}
	}
}
