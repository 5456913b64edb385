package notify_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestRecipientsHaveShortForms(t *testing.T) {
	fcm := notify.Device{Provider: "fcm", Token: "t"}
	tests := []struct {
		name, in string
		want     notify.To
	}{
		{"one device", `{"push":{"provider":"fcm","token":"t"}}`, notify.To{Push: notify.Devices{fcm}}},
		{"a list of devices", `{"push":[{"provider":"fcm","token":"t"},{"provider":"apns","token":"u"}]}`, notify.To{Push: notify.Devices{fcm, {Provider: "apns", Token: "u"}}}},
		{"an empty list is not no list", `{"push":[]}`, notify.To{Push: notify.Devices{}}},
		{"null is nothing", `{"push":null,"email":null,"slack":null,"webhook":null}`, notify.To{}},
		{"an address alone", `{"email":"ana@example.com"}`, notify.To{Email: &notify.EmailAddress{Address: "ana@example.com"}}},
		{"an address with a name", `{"email":{"address":"ana@example.com","name":"Ana"}}`, notify.To{Email: &notify.EmailAddress{Address: "ana@example.com", Name: "Ana"}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got notify.To
			if err := notify.Decode([]byte(tt.in), &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestShortFormsAreAsStrictAsTheRest(t *testing.T) {
	for _, in := range []string{
		`{"push":"t"}`, `{"push":[[]]}`, `{"push":[{"token":1}]}`, `{"push":{"provider":"fcm","tokne":"t"}}`, `{"push":[{"tokne":"t"}]}`,
		`{"email":1}`, `{"email":["a@b.c"]}`, `{"email":{"adress":"a@b.c"}}`, `{"email":{"address":1}}`,
	} {
		var to notify.To
		if err := json.Unmarshal([]byte(in), &to, json.RejectUnknownMembers(true)); err == nil {
			t.Errorf("%s is taken for %+v", in, to)
		}
	}
}

// What is stored and answered: other versions and other languages read it.
func TestEncodingStaysWhatItIs(t *testing.T) {
	tests := []struct {
		name string
		in   any
		want string
	}{
		{"an empty recipient", notify.To{}, `{}`},
		{"a whole one", reachable(), `{"push":[{"provider":"fcm","token":"token"},{"provider":"apns","token":"token"},` +
			`{"provider":"webpush","endpoint":"https://push.example.com/1","keys":{"p256dh":"p","auth":"a"}}],` +
			`"sms":"+14155550100","whatsapp":"+14155550101","email":{"address":"ana@example.com","name":"Ana"},` +
			`"slack":{"channel":"C0123"},"webhook":{"url":"https://example.com/hook","headers":{"X-Team":"core"}}}`},
		{"a step", notify.Step{Channel: notify.SMS}, `{"channel":"sms"}`},
		{
			"a whole one",
			notify.Step{
				Channel: notify.SMS, Account: "twilio-main", Success: notify.UntilDelivered, Within: notify.Duration(90 * time.Second),
				Attempts: 4, OnUnknown: notify.FallBack,
			},
			`{"channel":"sms","account":"twilio-main","success":"delivered","within":"1m30s","attempts":4,"on_unknown":"fallback"}`,
		},
		{"nil slices are empty arrays", map[string][]string{"a": nil}, `{"a":[]}`},
		{"members of maps are sorted", map[string]int{"b": 1, "a": 2, "c": 3}, `{"a":2,"b":1,"c":3}`},
		{"an attachment is base64", notify.Attachment{Filename: "a.txt", Content: []byte{0xfb, 0xff}}, `{"filename":"a.txt","content":"+/8="}`},
		{"a priority is a word", notify.High, `"high"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := notify.Encode(tt.in)
			if err != nil || string(got) != tt.want {
				t.Errorf("got  %s, %v\nwant %s", got, err, tt.want)
			}
		})
	}
}

func TestDecodeReadsWhatANewerVersionStored(t *testing.T) {
	var to notify.To
	if err := notify.Decode([]byte(`{"email":{"address":"a@b.c","lang":"nl"},"push":{"provider":"fcm","token":"t","v":2},"voice":"+1"}`), &to); err != nil {
		t.Fatal(err)
	}
	want := notify.To{Email: &notify.EmailAddress{Address: "a@b.c"}, Push: notify.Devices{{Provider: "fcm", Token: "t"}}}
	if diff := cmp.Diff(want, to); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestErrorsDoNotRepeatWhatWasDecoded(t *testing.T) {
	const secret = "4155550199"
	for _, in := range []string{
		`{"sms":` + secret + `}`, `{"email":` + secret + `}`, `{"push":"` + secret + `"}`, `{"push":{"token":` + secret + `}}`,
		`{"webhook":{"url":["` + secret + `"]}}`, `{"sms":"` + secret, `{"sms":"` + secret + `"`,
	} {
		err := notify.Decode([]byte(in), &notify.To{})
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%s gives %v", in, err)
		}
	}
	if _, err := notify.Encode(map[string]any{"a": func() {}}); err == nil {
		t.Error("a function was encoded")
	}
}

func TestDurations(t *testing.T) {
	valid := map[string]time.Duration{
		"0s": 0, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "2.5s": 2500 * time.Millisecond, "250ms": 250 * time.Millisecond,
		"168h0m0s": 168 * time.Hour, "1h1m1s1ms": time.Hour + time.Minute + time.Second + time.Millisecond,
	}
	for text, want := range valid {
		var d notify.Duration
		if err := d.UnmarshalText([]byte(text)); err != nil || d.Std() != want {
			t.Errorf("%q is %v, %v; want %v", text, d.Std(), err, want)
		}
	}
	for _, text := range []string{"", "90", "s", "-1s", "+1s", "1 s", "1s ", "1d", "5us", "5ns", "1,5s", ".5s", "1.s", "1e3s", "9999999999s", "999999999h", "1s1s1s1s1s"} {
		d := notify.Duration(time.Minute)
		if err := d.UnmarshalText([]byte(text)); err == nil || d.Std() != time.Minute {
			t.Errorf("%q is read as %v", text, d.Std())
		}
	}
}

func TestDurationsReadBackWhatTheyWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := notify.Duration(rapid.Int64Range(int64(notify.MinWithin), int64(notify.MaxPushTTL)).Draw(t, "duration"))
		text, err := d.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var got notify.Duration
		if err := got.UnmarshalText(text); err != nil || got != d {
			t.Fatalf("%s is read as %v, %v", text, got.Std(), err)
		}
	})
}

func TestWhatIsEncodedIsDecodedTheSame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		roundTrip(t, drawTo(t))
		roundTrip(t, drawContent(t))
		roundTrip(t, notify.Step{
			Channel: rapid.SampledFrom(notify.Channels()).Draw(t, "channel"), Account: rapid.String().Draw(t, "account"),
			Success:   notify.Criterion(rapid.String().Draw(t, "success")),
			Within:    notify.Duration(rapid.Int64Range(0, 1e6).Draw(t, "within")) * notify.Duration(time.Second),
			Attempts:  rapid.Int().Draw(t, "attempts"),
			OnUnknown: notify.UnknownPolicy(rapid.String().Draw(t, "unknown")),
		})
	})
}

func roundTrip[T any](t *rapid.T, v T) {
	t.Helper()
	text, err := notify.Encode(v)
	if err != nil {
		t.Fatal(err)
	}
	var got T
	if err := notify.Decode(text, &got); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	if diff := cmp.Diff(v, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", text, diff)
	}
	again, err := notify.Encode(got)
	if err != nil || string(again) != string(text) {
		t.Fatalf("%s is encoded again as %s, %v", text, again, err)
	}
}

// maybe draws nil or a pointer to what one draws.
func maybe[T any](t *rapid.T, label string, one func(*rapid.T) T) *T {
	if rapid.Bool().Draw(t, label) {
		return nil
	}
	v := one(t)
	return &v
}

func text(t *rapid.T) string { return rapid.String().Draw(t, "text") }

func texts(t *rapid.T) map[string]string {
	return rapid.OneOf(rapid.Just(map[string]string(nil)), rapid.MapOfN(rapid.String(), rapid.String(), 1, 3)).Draw(t, "texts")
}

func drawTo(t *rapid.T) notify.To {
	device := rapid.Custom(func(t *rapid.T) notify.Device {
		keys := maybe(t, "no keys", func(t *rapid.T) notify.WebPushKeys { return notify.WebPushKeys{P256dh: text(t), Auth: text(t)} })
		return notify.Device{Provider: text(t), Token: text(t), Endpoint: text(t), Keys: keys}
	})
	return notify.To{
		Push: rapid.OneOf(rapid.Just([]notify.Device(nil)), rapid.SliceOfN(device, 0, 3)).Draw(t, "push"),
		SMS:  text(t), WhatsApp: text(t), Email: maybe(t, "no email", drawEmail),
		Slack: maybe(t, "no slack", func(t *rapid.T) notify.SlackTarget { return notify.SlackTarget{Channel: text(t), WebhookURL: text(t)} }),
		Webhook: maybe(t, "no webhook", func(t *rapid.T) notify.WebhookTarget {
			return notify.WebhookTarget{URL: text(t), Headers: texts(t)}
		}),
	}
}

func drawEmail(t *rapid.T) notify.EmailAddress {
	return notify.EmailAddress{Address: text(t), Name: text(t)}
}

func drawContent(t *rapid.T) notify.Content {
	raw := func() jsontext.Value {
		return rapid.SampledFrom([]jsontext.Value{nil, jsontext.Value(`{}`), jsontext.Value(`{"b":1.50,"a":[null,"é"]}`), jsontext.Value(`[1]`)}).Draw(t, "raw")
	}
	attachment := rapid.Custom(func(t *rapid.T) notify.Attachment {
		return notify.Attachment{Filename: text(t), ContentType: text(t), Content: rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "file")}
	})
	return notify.Content{
		Title: text(t), Body: text(t), Data: raw(),
		Push: maybe(t, "no push", func(t *rapid.T) notify.PushContent {
			ttl := notify.Duration(rapid.Int64Range(0, 1e6).Draw(t, "ttl")) * notify.Duration(time.Second)
			return notify.PushContent{Title: text(t), Body: text(t), Image: text(t), Data: raw(), CollapseKey: text(t), TTL: ttl}
		}),
		SMS: maybe(t, "no sms", func(t *rapid.T) notify.SMSContent { return notify.SMSContent{Body: text(t)} }),
		WhatsApp: maybe(t, "no whatsapp", func(t *rapid.T) notify.WhatsAppContent {
			return notify.WhatsAppContent{Body: text(t), Template: maybe(t, "no template", func(t *rapid.T) notify.WhatsAppTemplate {
				return notify.WhatsAppTemplate{Name: text(t), Language: text(t), Variables: texts(t)}
			})}
		}),
		Email: maybe(t, "no email", func(t *rapid.T) notify.EmailContent {
			return notify.EmailContent{
				Subject: text(t), Text: text(t), HTML: text(t), From: maybe(t, "no from", drawEmail), ReplyTo: maybe(t, "no reply", drawEmail),
				Attachments:    rapid.OneOf(rapid.Just([]notify.Attachment(nil)), rapid.SliceOfN(attachment, 1, 2)).Draw(t, "files"),
				UnsubscribeURL: text(t), UnsubscribeMailto: text(t),
			}
		}),
		Slack: maybe(t, "no slack", func(t *rapid.T) notify.SlackContent {
			return notify.SlackContent{Text: text(t), Blocks: raw(), Thread: text(t)}
		}),
		Webhook: maybe(t, "no webhook", func(t *rapid.T) notify.WebhookContent { return notify.WebhookContent{Payload: raw()} }),
	}
}
