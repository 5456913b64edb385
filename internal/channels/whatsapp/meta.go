package whatsapp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const (
	metaURL = "https://graph.facebook.com"
	// metaVersion is the version of the Graph API that this was written for.
	metaVersion = "v25.0"
	// connections is how many idle connections to Meta are kept: as many as a
	// channel has calls in flight by default.
	connections = 256
)

// MetaConfig is a business phone number at Meta's WhatsApp Cloud API.
//
// What it takes to send for real: a Meta app with the WhatsApp product, a verified
// business with a WhatsApp Business Account and a payment method, a registered
// number, and templates approved in WhatsApp Manager. The test number of a new
// app works at once for up to five recipients listed there.
type MetaConfig struct {
	// PhoneNumberID is the number's id, digits only, as shown under WhatsApp > API
	// Setup; it is not the number itself. Required.
	PhoneNumberID string `yaml:"phone_number_id"`
	// AccessToken is a token with permission whatsapp_business_messaging. That of
	// a system user does not expire; the one on the API Setup page does within a
	// day. Required.
	AccessToken secret.Value `yaml:"access_token"`
	// Version of the Graph API, default v25.0. Meta retires each two years after
	// the next one came.
	Version string `yaml:"version"`
	// PreviewURL asks for a preview of the first link in a free text. Default
	// false.
	PreviewURL bool `yaml:"preview_url"`
	// AppSecret is the app's secret, with which Meta signs webhooks. With it the
	// account learns what becomes of its messages; without it none is believed.
	AppSecret secret.Value `yaml:"app_secret"`
	// VerifyToken is a text of your own that is entered with the webhook's address
	// in the app's dashboard, 8 to 256 characters. Meta shows it when it verifies
	// the address; needed with AppSecret unless that was done before.
	VerifyToken secret.Value `yaml:"verify_token"`
	// MarketingStops takes it for a stop of everything when a person stops marketing
	// messages in WhatsApp itself, and for a start when they resume: for a number that
	// sends nothing else. Default false: Meta holds back marketing templates itself.
	MarketingStops bool `yaml:"marketing_stops"`
	// BaseURL defaults to https://graph.facebook.com.
	BaseURL string `yaml:"base_url"`
}

var (
	phoneNumberID = regexp.MustCompile(`^[0-9]{1,32}$`)
	graphVersion  = regexp.MustCompile(`^v[1-9][0-9]*\.[0-9]+$`)
)

// Meta sends WhatsApp messages through Meta's Cloud API.
type Meta struct {
	account       string
	phoneNumberID string
	url           string
	// Not the values, which %+v of an unexported field would print.
	token, appSecret, verifyToken func() string
	previewURL, marketingStops    bool
	client                        *http.Client
}

var (
	_ channels.Provider = (*Meta)(nil)
	_ channels.Checker  = (*Meta)(nil)
	_ channels.Scoper   = (*Meta)(nil)

	_ channels.CallbackReader = (*Meta)(nil)
)

// NewMeta returns the provider of one account, or every problem of its
// configuration joined, each beginning with its yaml key.
func NewMeta(account string, cfg MetaConfig) (*Meta, error) {
	var problems []error
	if !phoneNumberID.MatchString(cfg.PhoneNumberID) {
		problems = append(problems, errors.New("phone_number_id: must be the id of a number, digits only"))
	}
	if cfg.AccessToken.Empty() {
		problems = append(problems, errors.New("access_token: is required"))
	}
	if n := len(cfg.VerifyToken.Reveal()); !cfg.VerifyToken.Empty() && (n < 8 || n > 256) {
		problems = append(problems, errors.New("verify_token: must be 8 to 256 characters that nobody guesses"))
	}
	if !cfg.VerifyToken.Empty() && cfg.AppSecret.Empty() {
		problems = append(problems, errors.New("app_secret: is needed with verify_token: without it no webhook is believed"))
	}
	version := cfg.Version
	if version == "" {
		version = metaVersion
	}
	if !graphVersion.MatchString(version) {
		problems = append(problems, errors.New("version: must be a version of the Graph API such as "+metaVersion))
	}
	base, err := channels.BaseURL(cfg.BaseURL, metaURL)
	if err := errors.Join(append(problems, err)...); err != nil {
		return nil, err
	}
	return &Meta{
		account:        account,
		phoneNumberID:  cfg.PhoneNumberID,
		url:            base + "/" + version + "/" + cfg.PhoneNumberID + "/messages",
		token:          cfg.AccessToken.Reveal,
		appSecret:      cfg.AppSecret.Reveal,
		verifyToken:    cfg.VerifyToken.Reveal,
		previewURL:     cfg.PreviewURL,
		marketingStops: cfg.MarketingStops,
		client:         channels.NewHTTPClient(connections),
	}, nil
}

// Info implements [channels.Provider]. Meta tells more only to a webhook, which
// takes the app's secret to believe.
func (p *Meta) Info() channels.Info {
	info := channels.Info{Account: p.account, Channel: notify.WhatsApp, Provider: "meta", MaxObservable: notify.Sent}
	if p.appSecret() != "" {
		info.MaxObservable, info.Receipts = notify.Read, true
	}
	return info
}

// Scopes implements [channels.Scoper]: the business number, and the pair of it
// and the recipient.
func (p *Meta) Scopes(t notify.Target) []string {
	return []string{metaSender, channels.RecipientScope(notify.WhatsApp, t)}
}

// Pace implements [channels.Paced]: a number sends 80 messages a second by
// default (Meta's throughput page), and a pair of it and a recipient about one
// in six seconds, of which a few may come at once.
func (p *Meta) Pace(scope string) (perSecond float64, burst int) {
	if scope == metaSender {
		return metaPerSecond, metaPerSecond
	}
	return 1.0 / 6, metaPairBurst
}

const (
	metaPerSecond = 80
	metaPairBurst = 10
)

// Send implements [channels.Provider]. A message id of Meta's holds the
// recipient's number in base64, so that it is an address like another.
func (p *Meta) Send(ctx context.Context, m *channels.Message) channels.Result {
	body, err := json.Marshal(p.request(m))
	if err != nil {
		return channels.Result{Outcome: notify.MessageRejected, Detail: "message has no JSON form"}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url, bytes.NewReader(body))
	if err != nil {
		return channels.Result{Outcome: notify.AccountRejected, Detail: "request cannot be made"}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+p.token())
	return metaResult(ctx, channels.Do(p.client, req), m.To)
}
