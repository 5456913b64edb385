package sms

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/channels/twilio"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

func TestNewReportsEveryProblemByItsKey(t *testing.T) {
	_, err := New("twilio-main", Config{
		Account:             twilio.Account{AccountSID: "AC1", BaseURL: "ftp://example.com"},
		MessagingServiceSID: "AC0123456789abcdef0123456789abcdef",
		From:                "much too long a name",
		MaxSegments:         -1,
	})
	if err == nil {
		t.Fatal("a broken configuration was taken")
	}
	for _, key := range []string{"account_sid: ", "auth_token: ", "base_url: ", "from: ", "messaging_service_sid: ", "max_segments: "} {
		if !strings.Contains("\n"+err.Error(), "\n"+key) {
			t.Errorf("error does not name %q:\n%v", key, err)
		}
	}
}

func TestNewWantsASender(t *testing.T) {
	cfg := config("")
	cfg.From = ""
	if _, err := New("twilio-main", cfg); err == nil || !strings.HasPrefix(err.Error(), "from: ") {
		t.Errorf("New: %v, want an error about from", err)
	}
}

func TestNewTakesEachKindOfSender(t *testing.T) {
	for from, want := range map[string]bool{
		"+14155550100": true, "12345": true, "ACME": true, "Acme Alerts": true, "A1-b_c+d&e": true,
		"12": false, "+0415": false, "4155550100": false, "Acme Alerts!": false, "whatsapp:+14155550100": false, "- +&_": false, "Ünited": false,
	} {
		cfg := config("")
		cfg.From = from
		if _, err := New("twilio-main", cfg); (err == nil) != want {
			t.Errorf("from %q: %v", from, err)
		}
	}
}

func TestNewNeverRepeatsASecret(t *testing.T) {
	cfg := config("https://user:hunter2@example.com")
	cfg.APIKeySID, cfg.APIKeySecret = "hunter2", secret.New("hunter2")
	if _, err := New("twilio-main", cfg); err == nil || strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), authToken) {
		t.Errorf("New: %v", err)
	}
}

func TestAPrintedProviderShowsNoToken(t *testing.T) {
	p := provider(t, config(""))
	if text := fmt.Sprintf("%+v %+v", p, p.client); strings.Contains(text, authToken) {
		t.Error(text)
	}
}

func TestConfigReadsItsYAML(t *testing.T) {
	var cfg Config
	dec := yaml.NewDecoder(strings.NewReader("account_sid: " + accountSID + "\nauth_token: t0k3n\nfrom: ACME\nsmart_encoded: true\nmax_segments: 3\n" +
		"callback_auth_tokens: [n3xt]\n"))
	dec.KnownFields(true)
	if err := dec.Decode(&cfg); err != nil {
		t.Fatal(err)
	}
	if cfg.AccountSID != accountSID || cfg.AuthToken.Reveal() != "t0k3n" || cfg.From != "ACME" || !cfg.SmartEncoded || cfg.MaxSegments != 3 ||
		len(cfg.CallbackAuthTokens) != 1 || cfg.CallbackAuthTokens[0].Reveal() != "n3xt" {
		t.Errorf("config %+v", cfg)
	}
	if _, err := New("twilio-main", cfg); err != nil {
		t.Error(err)
	}
}

func TestTheAlphabetIsWhole(t *testing.T) {
	// 128 code points of the default alphabet, one of which is the escape.
	if n := utf8.RuneCountInString(gsm7Basic); n != 127 {
		t.Errorf("the basic alphabet has %d characters, want 127", n)
	}
	seen := map[rune]bool{}
	for _, r := range gsm7Basic + gsm7Extension {
		if seen[r] {
			t.Errorf("%q stands twice", r)
		}
		seen[r] = true
	}
}
