package hooks

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/channels/webhook"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Endpoints is what a call needs to know of a webhook, and tells of it.
type Endpoints interface {
	WebhookSigning(ctx context.Context, id uuid.UUID) (store.WebhookSigning, error)
	WebhookWorked(ctx context.Context, id uuid.UUID) error
	WebhookFailed(ctx context.Context, id uuid.UUID, gone bool, now time.Time) (because string, err error)
}

// Provider makes the calls, each signed with its webhook's own secrets, and keeps
// count of how webhooks fare.
type Provider struct {
	*webhook.Unsigned
	endpoints Endpoints
	log       *slog.Logger
}

var (
	_ channels.Provider = (*Provider)(nil)
	_ channels.Checker  = (*Provider)(nil)
	_ channels.Scoper   = (*Provider)(nil)
)

// NewProvider returns the account. The guard that keeps calls to public addresses
// is that of other webhooks, with the exceptions of cfg.
func NewProvider(cfg webhook.Config, e Endpoints, log *slog.Logger) (*Provider, error) {
	u, err := webhook.NewUnsigned(Account, cfg)
	if err != nil {
		return nil, err
	}
	return &Provider{u, e, log}, nil
}

// Codes of calls that are not made, because the webhook is not there to be called.
const (
	CodeDeleted  = "webhook_deleted"
	CodeDisabled = "webhook_disabled"
)

// noting is how long it may take to note how a call went.
const noting = 2 * time.Second

// Send implements [channels.Provider].
func (p *Provider) Send(ctx context.Context, m *channels.Message) channels.Result {
	id, err := uuid.Parse(m.Reference)
	var l label
	if err == nil {
		l, err = labelIn(&notify.Notification{Metadata: m.Metadata})
	}
	if err != nil {
		return channels.Result{Outcome: notify.MessageRejected, Detail: "no message of a webhook"}
	}
	w, err := p.endpoints.WebhookSigning(ctx, id)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return channels.Result{Outcome: notify.RecipientRejected, Code: CodeDeleted, Detail: "the webhook has been deleted"}
	case err != nil:
		return channels.Result{Outcome: notify.NotAttempted, Detail: "the webhook's secrets cannot be read now"}
	case w.Disabled:
		return channels.Result{Outcome: notify.RecipientRejected, Code: CodeDisabled, Detail: "the webhook is disabled"}
	}
	r := owned(p.SendSigned(ctx, m, l.MessageID.String(), w.Secrets))
	p.note(context.WithoutCancel(ctx), id, r, w.Failing)
	return r
}

// owned is what a result means for an endpoint whose owner registered it: apart
// from 410, whatever it answers may be mended and is tried again, and the address
// is not suppressed but the webhook disabled.
func owned(r channels.Result) channels.Result {
	r.Suppress, r.SuppressFor = false, 0
	rejected := r.Outcome == notify.MessageRejected || r.Outcome == notify.RecipientRejected || r.Outcome == notify.AccountRejected
	if rejected && r.HTTPStatus != 0 && r.HTTPStatus != http.StatusGone {
		r.Outcome = notify.RecipientUnavailable
	}
	return r
}

// note keeps count of a webhook's failures. What cannot be noted is noted with
// the next call.
func (p *Provider) note(ctx context.Context, id uuid.UUID, r channels.Result, failing bool) {
	ctx, cancel := context.WithTimeout(ctx, noting)
	defer cancel()
	var because string
	var err error
	switch r.Outcome {
	case notify.Accepted:
		if failing {
			err = p.endpoints.WebhookWorked(ctx, id)
		}
	case notify.NotAttempted, notify.Throttled:
	default:
		because, err = p.endpoints.WebhookFailed(ctx, id, r.HTTPStatus == http.StatusGone, time.Now())
	}
	if err != nil {
		p.log.WarnContext(ctx, "a webhook's state cannot be noted", slog.String("webhook_id", id.String()), slog.Any("error", err))
	}
	if because != "" {
		p.log.WarnContext(ctx, "webhook disabled", slog.String("webhook_id", id.String()), slog.String("because", because))
	}
}
