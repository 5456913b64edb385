package notify_test

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// wire writes an accepted notification as the request it could have come from.
func wire(t rapid.TB, n notify.Notification) []byte {
	t.Helper()
	members := map[string]any{
		"to": n.To, "chain": n.Chain, "mode": n.Mode, "content": n.Content, "priority": n.Priority,
		"send_at": n.SendAt, "expires_at": n.ExpiresAt, "reference": n.Reference,
	}
	if n.Metadata != nil {
		members["metadata"] = n.Metadata
	}
	body, err := notify.Encode(members)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// holds checks what must be true of whatever Parse was given.
func holds(t rapid.TB, body []byte) {
	t.Helper()
	n, problems := notify.Parse(body, options())
	if len(problems) > 0 {
		for _, p := range problems {
			if p.Code == "" || p.Detail == "" || p.Pointer != "" && !strings.HasPrefix(p.Pointer, "/") {
				t.Fatalf("a problem that helps nobody: %+v", p)
			}
		}
		return
	}
	if !n.SendAt.Before(n.ExpiresAt) || n.SendAt.Before(n.CreatedAt) {
		t.Fatalf("created at %v, sent at %v, expires at %v", n.CreatedAt, n.SendAt, n.ExpiresAt)
	}
	for _, s := range n.Chain {
		if len(n.To.Targets(s.Channel)) == 0 {
			t.Fatalf("a step on %s has no target", s.Channel)
		}
	}
	again, problems := notify.Parse(wire(t, n), options())
	if len(problems) > 0 {
		t.Fatalf("%s\nwas accepted, and its encoding is not: %v", body, problems)
	}
	if diff := cmp.Diff(n, again); diff != "" {
		t.Fatalf("%s\nis another notification when it is encoded and parsed again:\n%s", body, diff)
	}
}

func FuzzParse(f *testing.F) {
	for _, row := range corpus(f) {
		if len(row.Body) < 2000 {
			f.Add([]byte(row.Body))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) { holds(t, body) })
}

// Bytes seldom make a body that is accepted; this draws from what bodies are
// made of.
func TestWhatParsesIsTheSameWhenEncodedAndParsedAgain(t *testing.T) {
	rows := corpus(t)
	rapid.Check(t, func(t *rapid.T) {
		var members []string
		seen := map[string]bool{}
		for range rapid.IntRange(1, 6).Draw(t, "members") {
			row := rapid.SampledFrom(rows).Draw(t, "row")
			var parts map[string]jsontext.Value
			if err := notify.Decode(row.Body, &parts); err != nil {
				t.Fatal(err)
			}
			for name, value := range parts {
				if !seen[name] && rapid.Bool().Draw(t, name) {
					seen[name] = true
					members = append(members, `"`+name+`":`+string(value))
				}
			}
		}
		holds(t, []byte("{"+strings.Join(members, ",")+"}"))
	})
}
