package push

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

func TestConfigsAreReadFromYAML(t *testing.T) {
	t.Parallel()
	const text = `
fcm: {credentials: s1, project: demo-project, base_url: http://h}
apns: {key_id: k, team_id: t, private_key: s2, topic: com.example.app, base_url: http://h, ca_file: ca.pem}
webpush: {vapid_public_key: p, vapid_private_key: s3, subject: ops@example.com, base_url: http://h, allow_private: ["sandbox:8090"]}
`
	type configs struct {
		FCM     FCMConfig     `yaml:"fcm"`
		APNs    APNsConfig    `yaml:"apns"`
		WebPush WebPushConfig `yaml:"webpush"`
	}
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	var got configs
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := configs{
		FCM:     FCMConfig{Credentials: secret.New("s1"), Project: "demo-project", BaseURL: "http://h"},
		APNs:    APNsConfig{KeyID: "k", TeamID: "t", PrivateKey: secret.New("s2"), Topic: "com.example.app", BaseURL: "http://h", CAFile: "ca.pem"},
		WebPush: WebPushConfig{VAPIDPublicKey: "p", VAPIDPrivateKey: secret.New("s3"), Subject: "ops@example.com", BaseURL: "http://h", AllowPrivate: []string{"sandbox:8090"}},
	}
	if d := cmp.Diff(want, got, cmp.Comparer(func(a, b secret.Value) bool { return a.Reveal() == b.Reveal() })); d != "" {
		t.Error(d)
	}
}
