package store_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// leaves are values that a caller may put anywhere.
var leaves = []string{
	`null`, `""`, `" "`, `"x"`, `0`, `1`, `-1`, `1.5`, `1e400`, `true`, `[]`, `{}`, `[null]`, `{"a":null}`, `"+14155550100"`, `"0.5s"`, `"90s"`,
	`"1.5h2ms"`, `"200h"`, `"2026-12-02T23:59:60Z"`, `"2026-12-02T23:59:59.999999999-15:30"`, `"2027-02-30T00:00:00Z"`, `"https://h:0/"`,
	`"https://h:65535/%zz"`, `"HTTPS://[::1]:8080/a?%zz#x"`, `"http://u@h/"`, `"http:///x"`, `"http://a b/"`, `"http://a/\u00a0"`, `"a\u0085b"`, `"a\u2028b"`,
	`"a@b.c"`, `"a@b-"`, `"a@b_c"`, `"ä@ö.de"`, `"a\u3000@b.c"`, `"a,b@c.d"`, `"aGk="`, `"aGk"`, `"a;b"`, `"text/plain; charset=utf-8"`, `"first"`, `"all"`,
	`"critical"`, `"push"`, `"fcm"`, `"webpush"`, `"` + strings.Repeat("x", 256) + `"`, `"` + strings.Repeat("é", 200) + `"`,
}

// variants yields the value with each of its parts replaced by a fifth of the
// leaves, one at a time.
func variants(v any, place *int, yield func(any)) {
	*place++
	for i := *place % 5; i < len(leaves); i += 5 {
		yield(json.RawMessage(leaves[i]))
	}
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			was := v[name]
			variants(was, place, func(now any) { v[name] = now; yield(v) })
			v[name] = was
		}
	case []any:
		for i, was := range v {
			variants(was, place, func(now any) { v[i] = now; yield(v) })
			v[i] = was
		}
	}
}

// rich has every member there is.
const rich = `{"to":{"push":[{"provider":"fcm","token":"t"},{"provider":"webpush","endpoint":"https://p.example/x","keys":{
	"p256dh":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA","auth":"AAAAAAAAAAAAAAAAAAAAAA"}}],
	"sms":"+14155550100","whatsapp":"+14155550100","email":{"address":"ana@example.com","name":"Ana"},"slack":{"channel":"C1"},
	"webhook":{"url":"https://h.example/x","headers":{"X-A":"b"}}},
	"chain":[{"channel":"push","account":"a","success":"accepted","within":"90s","attempts":3,"on_unknown":"resend"},{"channel":"sms"},
		{"channel":"whatsapp"},{"channel":"email"},{"channel":"slack"},{"channel":"webhook"}],
	"mode":"all","priority":"high","send_at":"2026-12-02T00:00:00Z","expires_at":"2026-12-03T00:00:00Z","reference":"r","metadata":{"k":"v"},
	"content":{"title":"t","body":"b","data":{"k":1},"push":{"title":"t","body":"b","image":"https://i.example/x","data":{"k":1},"collapse_key":"c","ttl":"90s"},
		"sms":{"body":"b"},"whatsapp":{"body":"b","template":{"name":"n","language":"en","variables":{"1":"x"}}},
		"email":{"subject":"s","text":"t","html":"h","from":"a@b.c","reply_to":{"address":"a@b.c"},"unsubscribe_url":"https://u.example","unsubscribe_mailto":"a@b.c",
			"attachments":[{"filename":"f","content_type":"text/plain","content":"aGk="}]},
		"slack":{"text":"t","blocks":[{"type":"divider"}],"thread":"1700000000.000100"},"webhook":{"payload":{"a":1}}}}`

func TestEnqueueAgreesWithTheAPIOnVariantsOfABody(t *testing.T) {
	t.Parallel()
	var body any
	if err := json.Unmarshal([]byte(rich), &body); err != nil {
		t.Fatal(err)
	}
	var bodies []string
	place := 0
	variants(body, &place, func(v any) {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if text[0] == '{' { // else the project could not be added
			bodies = append(bodies, string(text))
		}
	})
	if len(bodies) < 600 {
		t.Errorf("only %d variants", len(bodies))
	}
	for i, got := range open(t).judge(bodies) {
		_, problems := notify.Parse([]byte(bodies[i]), notify.ParseOptions{ID: uuid.New(), Project: "default", Now: noon})
		var want []string
		for _, p := range problems {
			want = append(want, p.Pointer+" "+p.Code)
		}
		if (got == "") != (len(want) == 0) || got != "" && !slices.Contains(want, got) {
			t.Errorf("found %q, want one of %q in %s", got, want, bodies[i])
		}
	}
}
