package webhook

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// Unsigned is an account without secrets of its own: who sends through it gives
// them with each message.
type Unsigned struct{ *Provider }

// NewUnsigned returns the named account. The secrets of cfg must be empty. The
// error joins all that is wrong with the rest.
func NewUnsigned(account string, cfg Config) (*Unsigned, error) {
	var s settings
	if err := cfg.resolveRest(&s); err != nil {
		return nil, fmt.Errorf("webhook account %s: %w", account, err)
	}
	return &Unsigned{assemble(account, s)}, nil
}

// Send implements [channels.Provider] by refusing: no request goes out unsigned.
func (u *Unsigned) Send(context.Context, *channels.Message) channels.Result {
	return channels.Result{Outcome: notify.MessageRejected, Detail: "cannot be signed"}
}

// SendSigned makes the one call of a message under the given webhook-id, which
// holds no dot, signed with each of the secrets.
func (u *Unsigned) SendSigned(ctx context.Context, m *channels.Message, id string, secrets []secret.Value) channels.Result {
	decoded, err := keys(secrets)
	if err != nil { // its text tells nothing of them, but helps nobody either
		return channels.Result{Outcome: notify.MessageRejected, Detail: "cannot be signed"}
	}
	by, err := signers(decoded)
	if err != nil {
		return channels.Result{Outcome: notify.MessageRejected, Detail: "cannot be signed"}
	}
	return u.send(ctx, m, id, by)
}

// NewSecret makes a secret of 32 random bytes in the form that is shown to
// receivers: "whsec_" and their base64.
func NewSecret() secret.Value {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return secret.New(secretPrefix + base64.StdEncoding.EncodeToString(key))
}
