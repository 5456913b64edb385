package notify_test

import (
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// reachable is a recipient with an address of every kind.
func reachable() notify.To {
	return notify.To{
		Push: notify.Devices{
			{Provider: "fcm", Token: "token"},
			{Provider: "apns", Token: "token"},
			{Provider: "webpush", Endpoint: "https://push.example.com/1", Keys: &notify.WebPushKeys{P256dh: "p", Auth: "a"}},
		},
		SMS: "+14155550100", WhatsApp: "+14155550101", Email: &notify.EmailAddress{Address: "ana@example.com", Name: "Ana"},
		Slack:   &notify.SlackTarget{Channel: "C0123"},
		Webhook: &notify.WebhookTarget{URL: "https://example.com/hook", Headers: map[string]string{"X-Team": "core"}},
	}
}

func TestTargetsAreTheAddressesOfAChannelInOrder(t *testing.T) {
	to := reachable()
	want := map[notify.Channel][]notify.Target{
		notify.Push:     {{Device: &to.Push[0]}, {Device: &to.Push[1]}, {Device: &to.Push[2]}},
		notify.SMS:      {{Phone: to.SMS}},
		notify.WhatsApp: {{Phone: to.WhatsApp}},
		notify.Email:    {{Email: to.Email}},
		notify.Slack:    {{Slack: to.Slack}},
		notify.Webhook:  {{Webhook: to.Webhook}},
		"voice":         nil,
	}
	for c, targets := range want {
		if diff := cmp.Diff(targets, to.Targets(c)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c, diff)
		}
		if got := (notify.To{}).Targets(c); len(got) != 0 {
			t.Errorf("%s of nobody: %v", c, got)
		}
	}
}

// The hashes name rows of the suppression list: they may never change.
func TestAddressHashesStayWhatTheyAre(t *testing.T) {
	to := reachable()
	hook := notify.Target{Slack: &notify.SlackTarget{WebhookURL: "https://hooks.slack.com/services/T/B/x"}}
	tests := []struct {
		name    string
		channel notify.Channel
		target  notify.Target
		want    string // first 16 bytes of SHA-256 over channel, NUL and address
	}{
		{"fcm", notify.Push, notify.Target{Device: &to.Push[0]}, "dafd5ae6a18c49f7b294578d7c058545"},
		{"apns", notify.Push, notify.Target{Device: &to.Push[1]}, "0472e9769b826a610c70356bbe8bbd39"},
		{"webpush", notify.Push, notify.Target{Device: &to.Push[2]}, "270fb409dd9619732d66a122f3d837e5"},
		{"sms", notify.SMS, notify.Target{Phone: "+14155550100"}, "3ba1979877547c84abd999c3de4bfa9a"},
		{"whatsapp", notify.WhatsApp, notify.Target{Phone: "+14155550100"}, "b60519d3b08cbf9349ca1aca18eb9ac9"},
		{"email", notify.Email, notify.Target{Email: to.Email}, "373254ed911b8f57a7ae1fc3cf8f8bb1"},
		{"slack", notify.Slack, notify.Target{Slack: to.Slack}, "01137092cbbb4f3e6337c72e0e6af93d"},
		{"slack-webhook", notify.Slack, hook, "bf21ad890f7130863c1d3ef7d1aafd66"},
		{"webhook", notify.Webhook, notify.Target{Webhook: to.Webhook}, "1c5a5ea4d3e26576f1a366cd1e8a1483"},
	}
	seen := map[[16]byte]string{}
	for _, tt := range tests {
		got := tt.target.Hash(tt.channel)
		if hex.EncodeToString(got[:]) != tt.want {
			t.Errorf("%s: hash %x, want %s", tt.name, got, tt.want)
		}
		if other := seen[got]; other != "" {
			t.Errorf("%s and %s have the same hash", tt.name, other)
		}
		seen[got] = tt.name
	}
}

// A name beside the address, keys or headers do not make another recipient.
func TestAddressHashIsOfTheAddressAlone(t *testing.T) {
	tests := []struct {
		channel notify.Channel
		a, b    notify.Target
	}{
		{notify.Email, notify.Target{Email: &notify.EmailAddress{Address: "a@b.c"}}, notify.Target{Email: &notify.EmailAddress{Address: "a@b.c", Name: "A"}}},
		{notify.Email, notify.Target{Email: &notify.EmailAddress{Address: "ana@example.com"}}, notify.Target{Email: &notify.EmailAddress{Address: "Ana@EXAMPLE.Com"}}},
		{
			notify.Webhook,
			notify.Target{Webhook: &notify.WebhookTarget{URL: "https://b.c"}},
			notify.Target{Webhook: &notify.WebhookTarget{URL: "https://b.c", Headers: map[string]string{"A": "b"}}},
		},
		{
			notify.Push,
			notify.Target{Device: &notify.Device{Provider: "webpush", Endpoint: "https://b.c"}},
			notify.Target{Device: &notify.Device{Provider: "webpush", Endpoint: "https://b.c", Keys: &notify.WebPushKeys{Auth: "a"}}},
		},
	}
	for _, tt := range tests {
		if tt.a.Hash(tt.channel) != tt.b.Hash(tt.channel) {
			t.Errorf("%s: the hash depends on more than the address", tt.channel)
		}
	}
}

// The keys go out as webhook-id, Message-ID, collapse key and idempotency key: a
// version that made others would repeat what an older one sent.
func TestDeliveryKeysStayWhatTheyAre(t *testing.T) {
	id := uuid.MustParse("0193a1b2-0000-7000-8000-000000000001")
	tests := []struct {
		step, target, round int
		want                string
	}{
		{0, 0, 0, "f1365173-5b2d-5614-bb14-044aba431554"},
		{1, 0, 0, "188c1cb6-32e2-5205-a399-b7d43e290cd6"},
		{0, 1, 0, "6a661cfa-c55f-5902-af24-afb654f056e7"},
		{0, 0, 1, "70ed2091-b5fd-5dec-b384-8f61e8144809"},
		{9, 99, 300, "5534903d-bdee-509b-b9a8-20f15332d559"},
	}
	for _, tt := range tests {
		got := notify.DeliveryKey(id, tt.step, tt.target, tt.round)
		if got.String() != tt.want {
			t.Errorf("step %d, target %d, round %d: %s, want %s", tt.step, tt.target, tt.round, got, tt.want)
		}
		if got.Version() != 5 || got.Variant() != uuid.RFC4122 {
			t.Errorf("%s is not a UUID of version 5", got)
		}
	}
}

func TestDeliveryKeysAreDistinct(t *testing.T) {
	type place struct {
		id                  uuid.UUID
		step, target, round int
	}
	draw := func(t *rapid.T) place {
		return place{
			uuid.UUID{15: rapid.Byte().Draw(t, "id")},
			rapid.IntRange(0, notify.MaxSteps-1).Draw(t, "step"),
			rapid.IntRange(0, notify.MaxDevices-1).Draw(t, "target"), rapid.IntRange(0, 1<<15-1).Draw(t, "round"),
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t), draw(t)
		same := notify.DeliveryKey(a.id, a.step, a.target, a.round) == notify.DeliveryKey(b.id, b.step, b.target, b.round)
		if same != (a == b) {
			t.Fatalf("%+v and %+v: the same key: %t", a, b, same)
		}
	})
}

func TestCaseMattersBeyondTheASCIILettersOfEmailAddresses(t *testing.T) {
	for _, pair := range [][2]notify.Target{
		{{Email: &notify.EmailAddress{Address: "jörg@example.com"}}, {Email: &notify.EmailAddress{Address: "jÖrg@example.com"}}},
		{{Slack: &notify.SlackTarget{Channel: "c1"}}, {Slack: &notify.SlackTarget{Channel: "C1"}}},
		{{Webhook: &notify.WebhookTarget{URL: "https://a.example/x"}}, {Webhook: &notify.WebhookTarget{URL: "https://a.example/X"}}},
		{{Device: &notify.Device{Provider: "fcm", Token: "t"}}, {Device: &notify.Device{Provider: "fcm", Token: "T"}}},
	} {
		for _, c := range notify.Channels() {
			if pair[0].Hash(c) == pair[1].Hash(c) {
				t.Errorf("%s: %+v and %+v are one address", c, pair[0], pair[1])
			}
		}
	}
}

func TestAnAddressIsValidWhereARequestMayNameIt(t *testing.T) {
	to := reachable()
	for _, c := range notify.Channels() {
		for _, target := range to.Targets(c) {
			for _, other := range notify.Channels() {
				same := other == c || target.Phone != "" && (other == notify.SMS || other == notify.WhatsApp)
				if target.Valid(other) != same {
					t.Errorf("%+v on %s is valid: %t", target, other, !same)
				}
			}
		}
	}
	for c, wrong := range map[notify.Channel][]notify.Target{
		notify.SMS:     {{Phone: "14155550100"}, {}},
		notify.Email:   {{Email: &notify.EmailAddress{Address: "ana"}}},
		notify.Slack:   {{Slack: &notify.SlackTarget{}}, {Slack: &notify.SlackTarget{WebhookURL: "x"}}},
		notify.Webhook: {{Webhook: &notify.WebhookTarget{URL: "x"}}},
		notify.Push:    {{Device: &notify.Device{Provider: "fcm"}}, {Device: &notify.Device{Provider: "webpush", Endpoint: "x"}}},
	} {
		for _, target := range wrong {
			if target.Valid(c) {
				t.Errorf("%+v is valid on %s", target, c)
			}
		}
	}
}
