// Package twilio holds what every channel at Twilio shares: the account, the one
// call that creates a message, and what its answers mean. It is no provider
// itself; packages sms and whatsapp are.
package twilio

import (
	"errors"
	"fmt"
	"regexp"

	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// vendorURL is where the SDK sends every request.
const vendorURL = "https://api.twilio.com"

// maxCallbackTokens is one, and another while tokens are changed.
const maxCallbackTokens = 2

// Account is the part of a configuration that says who calls Twilio. All of it is
// shown in the Twilio Console: the SID and the token on the account's first page,
// API keys under "API keys & tokens".
//
// Give either auth_token, or api_key_sid with api_key_secret. An API key can be
// revoked alone and is what Twilio advises for production.
type Account struct {
	// AccountSID is AC and 32 hexadecimal digits. Required, with an API key too.
	AccountSID string `yaml:"account_sid"`
	// AuthToken is the account's primary token.
	AuthToken secret.Value `yaml:"auth_token"`
	// APIKeySID is SK and 32 hexadecimal digits.
	APIKeySID string `yaml:"api_key_sid"`
	// APIKeySecret is shown once, when the key is made.
	APIKeySecret secret.Value `yaml:"api_key_secret"`
	// CallbackAuthTokens are auth tokens of the account that callbacks may be signed
	// with beside AuthToken, at most two: the primary token where an API key sends,
	// since Twilio signs with no other; and the one to come, or to go, while tokens
	// are changed. With no token at all no status callbacks are asked for, because
	// nobody could tell them from forged ones; statuses are then polled.
	CallbackAuthTokens []secret.Value `yaml:"callback_auth_tokens"`
	// BaseURL defaults to https://api.twilio.com. An account in another region
	// names its own, such as https://api.dublin.ie1.twilio.com.
	BaseURL string `yaml:"base_url"`
}

var sid = regexp.MustCompile(`^[A-Z]{2}[0-9a-fA-F]{32}$`)

// IsSID reports whether s is the SID of a resource whose type is written prefix,
// such as "AC" for an account.
func IsSID(prefix, s string) bool {
	return sid.MatchString(s) && s[:2] == prefix
}

// validate returns every problem of the credentials joined, each beginning with
// its yaml key.
func (a Account) validate() error {
	var problems []error
	problem := func(text string) { problems = append(problems, errors.New(text)) }
	if !IsSID("AC", a.AccountSID) {
		problem("account_sid: must be AC and 32 hexadecimal digits")
	}
	hasKey := a.APIKeySID != "" || !a.APIKeySecret.Empty()
	switch {
	case hasKey && !a.AuthToken.Empty():
		problem("auth_token: must not be given beside an API key")
	case !hasKey && a.AuthToken.Empty():
		problem("auth_token: is required, or api_key_sid and api_key_secret")
	}
	if hasKey && !IsSID("SK", a.APIKeySID) {
		problem("api_key_sid: must be SK and 32 hexadecimal digits")
	}
	if hasKey && a.APIKeySecret.Empty() {
		problem("api_key_secret: is required beside api_key_sid")
	}
	if len(a.CallbackAuthTokens) > maxCallbackTokens {
		problem("callback_auth_tokens: must be at most two")
	}
	for i, token := range a.CallbackAuthTokens {
		if token.Empty() {
			problem(fmt.Sprintf("callback_auth_tokens[%d]: must not be empty", i))
		}
	}
	return errors.Join(problems...)
}

// callbackTokens are the tokens that a callback may be signed with.
func (a Account) callbackTokens() []secret.Value {
	if a.AuthToken.Empty() {
		return a.CallbackAuthTokens
	}
	return append([]secret.Value{a.AuthToken}, a.CallbackAuthTokens...)
}

// credentials returns the user and password of HTTP basic authentication.
func (a Account) credentials() (user, password string) {
	if a.APIKeySID != "" {
		return a.APIKeySID, a.APIKeySecret.Reveal()
	}
	return a.AccountSID, a.AuthToken.Reveal()
}
