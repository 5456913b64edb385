package catalog_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/channels/catalog"
	"github.com/notification-dispatcher/dispatcher/internal/config"
)

const exampleFile = "../../../dispatcher.example.yaml"

func TestTheExampleAtTheRootIsWhatConfigExamplePrints(t *testing.T) {
	want, err := config.Example(config.ExampleOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Error("dispatcher.example.yaml is not current: write it with `go run ./cmd/dispatcher config example`")
	}
}

// TestTheExampleAtTheRootLoads puts in what an operator has to: the secrets.
func TestTheExampleAtTheRootLoads(t *testing.T) {
	text, err := os.ReadFile(exampleFile)
	if err != nil {
		t.Fatal(err)
	}
	public, private := vapid(t)
	for name, value := range map[string]string{
		"VAPID_PRIVATE_KEY": private, "TWILIO_AUTH_TOKEN": "token", "META_ACCESS_TOKEN": "token",
		"SMTP_PASSWORD": "password", "SLACK_BOT_TOKEN": "xoxb-1",
		"WEBHOOK_SECRET": "whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
	} {
		t.Setenv(name, value)
	}
	secrets := t.TempDir()
	write(t, filepath.Join(secrets, "fcm.json"), serviceAccount(t))
	write(t, filepath.Join(secrets, "AuthKey.p8"), key(t, ecdsaKey(t)))
	filled := strings.ReplaceAll(string(text), "/run/secrets", secrets)
	filled = replaceKey(t, filled, public)

	c := parse(t, filled)
	if providers, err := catalog.Build(c.Accounts()); err != nil || len(providers) != len(catalog.All()) {
		t.Errorf("%d providers, %v; want each of the catalog's %d", len(providers), err, len(catalog.All()))
	}
	want := config.Default()
	if c.HTTP != want.HTTP || c.Log != want.Log || c.Retention != want.Retention {
		t.Errorf("the example's values are not the defaults: %+v %+v %+v", c.HTTP, c.Log, c.Retention)
	}
	first := c.Accounts()[0]
	second := c.Accounts()[1]
	if first.Retry != second.Retry || first.Breaker != second.Breaker || first.Timeout != second.Timeout || first.OnUnknown != second.OnUnknown {
		t.Errorf("the example's account settings are not the defaults: %+v, want %+v", first, second)
	}
}

// replaceKey puts a public key whose private half is known in place of the
// example's.
func replaceKey(t *testing.T, text, public string) string {
	t.Helper()
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		if before, _, ok := strings.Cut(l, "vapid_public_key: "); ok {
			lines[i] = before + "vapid_public_key: " + public
			return strings.Join(lines, "\n")
		}
	}
	t.Fatal("the example has no vapid_public_key")
	return ""
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func ecdsaKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func key(t *testing.T, k any) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func serviceAccount(t *testing.T) string {
	t.Helper()
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(map[string]string{
		"type": "service_account", "project_id": "my-project", "private_key_id": "1", "private_key": key(t, k),
		"client_email": "a@my-project.iam.gserviceaccount.com", "token_uri": "https://oauth2.googleapis.com/token",
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func vapid(t *testing.T) (public, private string) {
	t.Helper()
	k := ecdsaKey(t)
	point, err := k.PublicKey.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	scalar, err := k.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	return base64.RawURLEncoding.EncodeToString(point), base64.RawURLEncoding.EncodeToString(scalar)
}
