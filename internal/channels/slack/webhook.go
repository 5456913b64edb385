package slack

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// WebhookConfig configures an account that posts through incoming webhooks.
type WebhookConfig struct {
	// WebhookURL is used for a target that names neither a webhook_url nor a
	// channel. Optional; without it every target must bring its own.
	WebhookURL secret.Value `yaml:"webhook_url"`
	// Channel is the conversation that webhook_url posts to, as targets write it.
	// A target that names this channel is served through webhook_url, so that the
	// account can stand in for a bot. Optional.
	Channel string `yaml:"channel"`
	// BaseURL replaces scheme and host of every webhook's URL. Without it only
	// https URLs of hooks.slack.com and hooks.slack-gov.com are called, since a
	// target's URL is the caller's. Default none.
	BaseURL string `yaml:"base_url"`
}

// Webhook posts through incoming webhooks. The deadline of a call is its
// context's.
type Webhook struct {
	info    channels.Info
	own     secret.Value
	channel string
	base    string // without a slash at its end, or empty
	client  *http.Client
}

// NewWebhook returns the provider of one account of incoming webhooks. The error
// names every setting that is wrong.
func NewWebhook(account string, cfg WebhookConfig) (*Webhook, error) {
	var errs []error
	base, err := channels.BaseURL(cfg.BaseURL, "")
	if err != nil {
		errs = append(errs, err)
	}
	w := &Webhook{
		info: channels.Info{
			Account: account, Channel: notify.Slack, Provider: "slack-webhook", MaxObservable: notify.Sent,
		},
		own:     cfg.WebhookURL,
		channel: cfg.Channel,
		base:    base,
		client:  channels.NewHTTPClient(idleConns),
	}
	if !cfg.WebhookURL.Empty() {
		if _, ok := w.endpoint(cfg.WebhookURL.Reveal()); !ok {
			errs = append(errs, errors.New("webhook_url: "+hookURLRule))
		}
	} else if cfg.Channel != "" {
		errs = append(errs, errors.New("channel: needs webhook_url"))
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("slack-webhook account %s: %w", account, errors.Join(errs...))
	}
	return w, nil
}

// Info implements [channels.Provider].
func (w *Webhook) Info() channels.Info { return w.info }

// Scopes implements [channels.Scoper]: Slack limits each webhook by itself.
func (w *Webhook) Scopes(t notify.Target) []string {
	raw, _ := w.pick(t.Slack)
	return []string{hookScope(raw)}
}

// Pace implements [channels.Paced]: an incoming webhook bears the same rate as a
// conversation.
func (w *Webhook) Pace(string) (perSecond float64, burst int) { return postsPerSecond, postsBurst }

func hookScope(raw string) string {
	hash := notify.Target{Slack: &notify.SlackTarget{WebhookURL: raw}}.Hash(notify.Slack)
	return "webhook:" + hex.EncodeToString(hash[:])
}

const hookURLRule = "must be a URL of an incoming webhook, https://hooks.slack.com/services/…"

// hookPath is what the path of an incoming webhook looks like. Nothing in it can
// climb out of the base_url.
var hookPath = regexp.MustCompile(`^/services(/[A-Za-z0-9_-]+){1,4}$`)

// endpoint returns the URL that is called for the webhook raw, and whether it may
// be called at all.
func (w *Webhook) endpoint(raw string) (string, bool) {
	u, err := url.Parse(raw)
	if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || !hookPath.MatchString(u.EscapedPath()) {
		return "", false
	}
	if w.base != "" {
		return w.base + u.EscapedPath(), true
	}
	switch strings.ToLower(u.Host) {
	case "hooks.slack.com", "hooks.slack-gov.com":
		return raw, u.Scheme == "https"
	}
	return "", false
}

// pick returns the webhook for a target and whether it is the account's own.
func (w *Webhook) pick(t *notify.SlackTarget) (raw string, own bool) {
	switch {
	case t == nil:
		return "", false
	case t.WebhookURL != "":
		return t.WebhookURL, false
	case t.Channel == "" || t.Channel == w.channel:
		return w.own.Reveal(), true
	}
	return "", false
}

// Check implements [channels.Checker].
func (w *Webhook) Check(m *channels.Message) error { return orNil(w.check(m)) }

func (w *Webhook) check(m *channels.Message) *channels.CheckError {
	raw, own := w.pick(m.To.Slack)
	if raw == "" {
		return &channels.CheckError{Field: "/to/slack", Reason: "this account posts through incoming webhooks and needs webhook_url"}
	}
	if _, ok := w.endpoint(raw); !ok && !own {
		return &channels.CheckError{Field: "/to/slack/webhook_url", Reason: hookURLRule}
	}
	if thread(&m.Content) != "" {
		return &channels.CheckError{Field: "/content/slack/thread", Reason: "an incoming webhook cannot reply in a thread; a bot account can"}
	}
	return checkContent(&m.Content)
}

// payload is the body of the call. The SDK's own type would drop blocks that its
// version does not know of.
type payload struct {
	Text        string         `json:"text,omitzero"`
	Blocks      jsontext.Value `json:"blocks,omitzero"`
	Mrkdwn      bool           `json:"mrkdwn"`
	UnfurlLinks bool           `json:"unfurl_links"`
	UnfurlMedia bool           `json:"unfurl_media"`
}

// Send implements [channels.Provider].
func (w *Webhook) Send(ctx context.Context, m *channels.Message) channels.Result {
	if err := w.check(m); err != nil {
		return refuse(err)
	}
	raw, own := w.pick(m.To.Slack)
	target, _ := w.endpoint(raw)
	s, plain := text(&m.Content)
	body, err := json.Marshal(payload{Text: s, Blocks: blocks(&m.Content), Mrkdwn: !plain})
	if err != nil {
		return unbuilt(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(body))
	if err != nil {
		return unbuilt(err)
	}
	req.Header.Set("Content-Type", "application/json; charset=utf-8")
	r := hookResult(ctx, channels.Do(w.client, req), hookScope(raw))
	if own && r.Outcome == notify.RecipientRejected {
		r.Outcome, r.Suppress = notify.AccountRejected, false
		r.Detail = "the account's own webhook_url was refused"
	}
	return r
}

// hookResult reads the answer of an incoming webhook: a plain text, "ok" where the
// message was posted.
func hookResult(ctx context.Context, x channels.Exchange, scope string) channels.Result {
	said := strings.TrimSpace(string(x.Body))
	if x.Status == http.StatusOK && x.Err == nil && said == "ok" {
		r := channels.Ok("")
		r.HTTPStatus = x.Status
		return r
	}
	v, known := lookup(hookErrors, said)
	if x.Status == 0 || x.Status == http.StatusTooManyRequests || !known {
		r := x.Default(ctx, true)
		r.Code = code(said)
		if r.Outcome == notify.Throttled {
			r.Scope = scope
		}
		return r
	}
	r := channels.Result{
		Outcome: v.outcome, HTTPStatus: x.Status, Code: code(said), Detail: v.detail,
		RetryAfter: retryAfter(x, v), Suppress: v.dead,
	}
	if v.outcome == notify.Throttled {
		r.Scope = scope
	}
	return r
}

var (
	_ channels.Provider = (*Webhook)(nil)
	_ channels.Checker  = (*Webhook)(nil)
	_ channels.Scoper   = (*Webhook)(nil)
)
