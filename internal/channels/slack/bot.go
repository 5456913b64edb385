package slack

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	slackapi "github.com/slack-go/slack"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	// defaultAPI is the Web API of commercial Slack.
	defaultAPI = "https://slack.com/api"
	// methodScope is the scope of the rate limit that Slack keeps for each method
	// and workspace.
	methodScope = "chat.postMessage"
	// idleConns is how many connections to Slack are kept for the next calls.
	idleConns = 64
	// metadataEvent marks a message as ours, so that conversations.history can
	// find a delivery by its key.
	metadataEvent = "dispatcher"
)

// BotConfig configures an account that posts as a bot.
type BotConfig struct {
	// Token is the bot token (xoxb-…) of an app with the scope chat:write.
	// Required. With channels:history, and groups:history for private channels, an
	// unknown outcome can be looked up; see [Bot.LookUp].
	Token secret.Value `yaml:"token"`
	// BaseURL is the Web API's address; default https://slack.com/api. GovSlack
	// is https://slack-gov.com/api.
	BaseURL string `yaml:"base_url"`
}

// Bot posts through chat.postMessage. The deadline of a call is its context's.
type Bot struct {
	info   channels.Info
	token  secret.Value
	api    string // ends with a slash
	client *http.Client
}

// NewBot returns the provider of one bot account. The error names every setting
// that is wrong.
func NewBot(account string, cfg BotConfig) (*Bot, error) {
	var errs []error
	if cfg.Token.Empty() {
		errs = append(errs, errors.New("token: must be given"))
	}
	base, err := channels.BaseURL(cfg.BaseURL, defaultAPI)
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("slack account %s: %w", account, errors.Join(errs...))
	}
	return &Bot{
		info: channels.Info{
			Account: account, Channel: notify.Slack, Provider: "slack", MaxObservable: notify.Sent,
		},
		token:  cfg.Token,
		api:    base + "/",
		client: channels.NewHTTPClient(idleConns),
	}, nil
}

// Info implements [channels.Provider].
func (b *Bot) Info() channels.Info { return b.info }

// Scopes implements [channels.Scoper]: Slack limits the method for the workspace,
// and posts to one conversation to about one a second.
func (b *Bot) Scopes(t notify.Target) []string {
	return []string{methodScope, channelScope(t)}
}

// Pace implements [channels.Paced]: about one message a second for a
// conversation, short bursts borne, and about fifty look-ups a minute (Slack's rate
// limits).
func (b *Bot) Pace(scope string) (perSecond float64, burst int) {
	switch {
	case strings.HasPrefix(scope, channelPrefix):
		return postsPerSecond, postsBurst
	case scope == historyScope:
		return historyPerSecond, historyBurst
	}
	return 0, 0
}

const (
	channelPrefix  = "channel:"
	postsPerSecond = 1
	postsBurst     = 5
)

func channelScope(t notify.Target) string {
	hash := t.Hash(notify.Slack)
	return channelPrefix + hex.EncodeToString(hash[:])
}

// Check implements [channels.Checker].
func (b *Bot) Check(m *channels.Message) error { return orNil(b.check(m)) }

func (b *Bot) check(m *channels.Message) *channels.CheckError {
	if t := m.To.Slack; t == nil || t.Channel == "" {
		return &channels.CheckError{Field: "/to/slack", Reason: "this account posts as a bot and needs channel"}
	}
	if ts := thread(&m.Content); ts != "" && !threadPattern.MatchString(ts) {
		return &channels.CheckError{Field: "/content/slack/thread", Reason: "must be the ts of a message, such as 1712345678.000100"}
	}
	return checkContent(&m.Content)
}

// Send implements [channels.Provider].
func (b *Bot) Send(ctx context.Context, m *channels.Message) channels.Result {
	if err := b.check(m); err != nil {
		return refuse(err)
	}
	rec := recorder{client: b.client}
	api := slackapi.New(b.token.Reveal(), slackapi.OptionHTTPClient(&rec), slackapi.OptionAPIURL(b.api))
	// What the SDK makes of the answer is not used: it loses Retry-After and tells
	// neither an empty answer nor a broken one from a refusal.
	_, _, err := api.PostMessageContext(ctx, m.To.Slack.Channel, b.options(m)...)
	if !rec.called {
		return unbuilt(err)
	}
	return b.result(ctx, m, rec.exchange)
}

func (b *Bot) options(m *channels.Message) []slackapi.MsgOption {
	s, plain := text(&m.Content)
	opts := []slackapi.MsgOption{
		slackapi.MsgOptionText(s, false),
		slackapi.MsgOptionDisableLinkUnfurl(),
		slackapi.MsgOptionDisableMediaUnfurl(),
		slackapi.MsgOptionMetadata(slackapi.SlackMetadata{
			EventType:    metadataEvent,
			EventPayload: map[string]any{"key": m.Key.String()},
		}),
	}
	if plain {
		opts = append(opts, slackapi.MsgOptionDisableMarkdown())
	}
	if ts := thread(&m.Content); ts != "" {
		opts = append(opts, slackapi.MsgOptionTS(ts))
	}
	if bl := blocks(&m.Content); len(bl) > 0 {
		// The SDK's own blocks would drop what its version does not know of.
		opts = append(opts, slackapi.UnsafeMsgOptionEndpoint(b.api+methodScope, func(v url.Values) {
			v.Set("blocks", string(bl))
		}))
	}
	return opts
}

// answer is what chat.postMessage says.
type answer struct {
	OK    bool   `json:"ok"`
	Error string `json:"error"`
	TS    string `json:"ts"`
}

func (b *Bot) result(ctx context.Context, m *channels.Message, x channels.Exchange) channels.Result {
	var a answer
	parsed := x.Status != 0 && json.Unmarshal(x.Body, &a) == nil
	switch {
	case parsed && a.OK && a.TS != "" && x.Status == http.StatusOK:
		r := channels.Ok(a.TS)
		r.HTTPStatus = x.Status
		return r
	case parsed && !a.OK && a.Error != "":
		return b.refused(ctx, m, x, a.Error)
	}
	r := x.Default(ctx, true)
	if r.Outcome == notify.Throttled {
		r.Scope = methodScope
	}
	return r
}

// refused is the result of an answer that names its error.
func (b *Bot) refused(ctx context.Context, m *channels.Message, x channels.Exchange, name string) channels.Result {
	v, known := lookup(apiErrors, name)
	if !known && x.Status != http.StatusOK {
		r := x.Default(ctx, true)
		r.Code = code(name)
		if r.Outcome == notify.Throttled {
			r.Scope = methodScope
		}
		return r
	}
	if !known {
		v = verdict{outcome: notify.MessageRejected, detail: "slack gave an error that is not known here"}
	}
	r := channels.Result{Outcome: v.outcome, HTTPStatus: x.Status, Code: code(name), Detail: v.detail}
	r.RetryAfter = retryAfter(x, v)
	if v.outcome == notify.Throttled {
		switch {
		case v.channel:
			r.Scope = channelScope(m.To)
		case !v.workspace:
			r.Scope = methodScope
		}
	}
	return r
}

// retryAfter is the time that Slack asked for. A throttle may come with status
// 200, where [channels.Exchange.RetryAfter] would not look.
func retryAfter(x channels.Exchange, v verdict) time.Duration {
	if v.outcome == notify.Throttled && x.Status == http.StatusOK {
		x.Status = http.StatusTooManyRequests
	}
	if d := x.RetryAfter(); d > 0 {
		return d
	}
	return v.quiet
}

// recorder makes the SDK's call and keeps what the SDK would drop.
type recorder struct {
	client   *http.Client
	exchange channels.Exchange
	called   bool
}

// Do implements the SDK's HTTP client.
func (r *recorder) Do(req *http.Request) (*http.Response, error) {
	r.called = true
	r.exchange = channels.Do(r.client, req)
	if r.exchange.Status == 0 {
		return nil, r.exchange.Err
	}
	return &http.Response{
		StatusCode: r.exchange.Status,
		Header:     r.exchange.Header,
		Body:       io.NopCloser(bytes.NewReader(r.exchange.Body)),
		Request:    req,
	}, nil
}

var (
	_ channels.Provider = (*Bot)(nil)
	_ channels.Checker  = (*Bot)(nil)
	_ channels.Scoper   = (*Bot)(nil)
)
