package twilio

import (
	"fmt"
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	testSID = "AC0123456789abcdef0123456789abcdef"
	testKey = "SK0123456789abcdef0123456789abcdef"
)

func TestNewClientTakesATokenOrAKey(t *testing.T) {
	token, key := secret.New("t0k3n"), secret.New("k3y/+=")
	for _, c := range []struct {
		name           string
		account        Account
		user, password string
	}{
		{"token", Account{AccountSID: testSID, AuthToken: token}, testSID, "t0k3n"},
		{"key", Account{AccountSID: testSID, APIKeySID: testKey, APIKeySecret: key}, testKey, "k3y/+="},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := NewClient(c.account)
			if err != nil {
				t.Fatal(err)
			}
			user, password := got.credentials()
			if user != c.user || password != c.password || got.base != vendorURL {
				t.Errorf("client calls %s as %s", got.base, user)
			}
			if text := fmt.Sprintf("%+v %#v", got, got); strings.Contains(text, c.password) {
				t.Errorf("a printed client shows its password: %s", text)
			}
		})
	}
}

func TestNewClientReportsEveryProblem(t *testing.T) {
	token, key := secret.New("t0k3n"), secret.New("k3y")
	for _, c := range []struct {
		name    string
		account Account
		want    []string
	}{
		{"nothing", Account{}, []string{"account_sid", "auth_token"}},
		{"both", Account{AccountSID: testSID, AuthToken: token, APIKeySID: testKey, APIKeySecret: key}, []string{"auth_token"}},
		{"key without secret", Account{AccountSID: testSID, APIKeySID: testKey}, []string{"api_key_secret"}},
		{"secret without key", Account{AccountSID: testSID, APIKeySecret: key}, []string{"api_key_sid"}},
		{"a key for an account", Account{AccountSID: testKey, AuthToken: token}, []string{"account_sid"}},
		{"empty tokens for callbacks", Account{AccountSID: testSID, AuthToken: token, CallbackAuthTokens: []secret.Value{{}, token}}, []string{"callback_auth_tokens[0]"}},
		{"too many tokens for callbacks", Account{AccountSID: testSID, AuthToken: token, CallbackAuthTokens: []secret.Value{token, token, token}}, []string{"callback_auth_tokens"}},
		{"url", Account{AccountSID: testSID, AuthToken: token, BaseURL: "api.twilio.com"}, []string{"base_url"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := NewClient(c.account)
			if err == nil {
				t.Fatal("it was taken")
			}
			lines := strings.Split(err.Error(), "\n")
			if len(lines) != len(c.want) {
				t.Fatalf("problems %q, want those of %q", lines, c.want)
			}
			for i, key := range c.want {
				if !strings.HasPrefix(lines[i], key+": ") {
					t.Errorf("problem %q, want one of %s", lines[i], key)
				}
			}
		})
	}
}
