// Package config reads the configuration: defaults, then a YAML file, then the
// environment, then flags, each winning over the one before. It reports every
// problem at once, by its path in the file, and never prints a secret.
package config

import (
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

// Config is everything a process is told. Start from [Default]; the zero value is
// not usable.
type Config struct {
	Database  Database  `yaml:"database"`
	HTTP      HTTP      `yaml:"http"`
	Log       Log       `yaml:"log"`
	Retention Retention `yaml:"retention"`
	// StatusWebhooks are the calls to endpoints that projects register.
	StatusWebhooks StatusWebhooks `yaml:"status_webhooks"`
	// Channels has an entry for every channel, those without accounts included.
	Channels map[notify.Channel]Channel
}

// Database is the one Postgres that everything is kept in.
type Database struct {
	// URL is a connection URL or key=value string of libpq. Required.
	URL secret.Value `yaml:"url"`
	// MaxConnections bounds this process's pool; 4 to 1000, default 16.
	MaxConnections int `yaml:"max_connections"`
}

// HTTP is the API's server.
type HTTP struct {
	// Listen is the address to listen on; default ":8080".
	Listen string `yaml:"listen"`
	// PublicURL is how others reach the API, for callbacks of providers and links in
	// messages: an http or https URL, with a path where a proxy takes one off.
	// Default none: no callback is asked for, and one that comes anyway is checked
	// against the address in the request.
	PublicURL PublicURL `yaml:"public_url"`
	// MaxBody bounds a request's body; 1KiB to 64MiB, default 1MiB.
	MaxBody Bytes `yaml:"max_body"`
	// MaxBatchBody bounds that of a JSON batch; 1KiB to 256MiB, default 10MiB.
	MaxBatchBody Bytes `yaml:"max_batch_body"`
	// ReadTimeout bounds reading a whole request; default 30s.
	ReadTimeout time.Duration `yaml:"read_timeout"`
	// WriteTimeout bounds a request from its header to the end of the answer;
	// default 1m.
	WriteTimeout time.Duration `yaml:"write_timeout"`
	// IdleTimeout closes a kept connection without requests; default 2m.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// DrainDelay is how long a stopping process answers "not ready" before it
	// stops listening, so that a load balancer can notice; default 0s.
	DrainDelay time.Duration `yaml:"drain_delay"`
	// ShutdownTimeout is how long requests and calls in flight have to end once
	// the process stops; default 20s.
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout"`
	Limits          Limits        `yaml:"limits"`
	// TrustedProxies are those whose X-Forwarded-For tells where a request came
	// from, and whose X-Forwarded-Proto and X-Forwarded-Host what it was for;
	// default none.
	TrustedProxies Networks `yaml:"trusted_proxies"`
}

// Log is how the process writes its log to standard error.
type Log struct {
	// Level is debug, info, warn or error; default info.
	Level LogLevel `yaml:"level"`
	// Format is json, text, or auto: text in a terminal, JSON elsewhere. Default
	// auto.
	Format LogFormat `yaml:"format"`
}

// LogLevel is the least level that is logged.
type LogLevel slog.Level

// UnmarshalText implements [encoding.TextUnmarshaler].
func (l *LogLevel) UnmarshalText(text []byte) error {
	switch string(text) {
	case "debug", "info", "warn", "error":
		return (*slog.Level)(l).UnmarshalText(text)
	}
	return errors.New("must be one of debug, info, warn, error")
}

// String is the level's name as it is configured.
func (l LogLevel) String() string { return strings.ToLower(slog.Level(l).String()) }

// LogFormat is how a log line is written.
type LogFormat string

// The formats.
const (
	LogAuto LogFormat = "auto"
	LogJSON LogFormat = "json"
	LogText LogFormat = "text"
)

// Retention is how long rows are kept. A notification that is not final is kept
// whatever its age.
type Retention struct {
	// Final is for notifications that have ended, with their deliveries, attempts
	// and events; at least 1h, default 720h (30 days).
	Final time.Duration `yaml:"final"`
	// IdempotencyKeys is how long a repeated request is recognized; at least 1m,
	// default 24h.
	IdempotencyKeys time.Duration `yaml:"idempotency_keys"`
}

// Channel is a channel's part of the configuration.
type Channel struct {
	// MaxInFlight bounds this process's calls at once on the channel; 1 to 10000,
	// default 256.
	MaxInFlight int `yaml:"max_in_flight"`
	// Accounts are in order of preference, unless they have weights: the first that
	// can serve a notification does.
	Accounts []Account
}

// Account is one provider with its credentials.
type Account struct {
	// Path is where the account stands in the configuration, such as
	// "channels.sms.accounts[0]".
	Path    string
	Channel notify.Channel

	// Name is unique over all channels: 1 to 63 lower-case letters, digits, "-"
	// and "_", the first a letter or digit. Required.
	Name string `yaml:"name"`
	// Provider is a name of package catalog, such as "twilio". Required.
	Provider string `yaml:"provider"`
	// Weight is the account's part of its channel's notifications, in proportion to
	// the weights of the others; 0 to 1000, default 0. Where no account has any they
	// are asked in order; else one without serves only while none of those with can.
	Weight float64 `yaml:"weight"`
	// Timeout bounds one call; 100ms to 2m, default 10s.
	Timeout time.Duration `yaml:"timeout"`
	// Projects limits the account to these projects; empty means all.
	Projects []string `yaml:"projects"`
	// OnUnknown is what an unknown outcome leads to; default reconcile for sms and
	// whatsapp, resend elsewhere.
	OnUnknown notify.UnknownPolicy `yaml:"on_unknown"`
	Retry     Retry                `yaml:"retry"`
	Breaker   Breaker              `yaml:"breaker"`
	// MaxPerSecond paces the account's calls, over all processes; 0 to 10000,
	// default 0 for no limit.
	MaxPerSecond float64 `yaml:"max_per_second"`
	// ReceiptWindow is how long after a message was accepted, where that was enough,
	// receipts are awaited; until then sent is not final. 0, or 1s to 720h; default 0
	// for 72h, and for 24h where all that can come is that it failed.
	ReceiptWindow time.Duration `yaml:"receipt_window"`
	// Settings is a mapping of what is left: the provider's own settings, not
	// decoded.
	Settings Settings
}

// Retry is how long a delivery waits before it is tried again: a random time
// whose upper bound doubles each time until the cap.
type Retry struct {
	// Base and Cap are for failures of the provider: the first wait is at most
	// Base. Defaults 1s and 30s.
	Base time.Duration `yaml:"base"`
	Cap  time.Duration `yaml:"cap"`
	// RecipientBase and RecipientCap are for passing failures of a recipient, such
	// as a full mailbox: the first wait is at least RecipientBase and at most twice
	// as long. Defaults 5m and 30m.
	RecipientBase time.Duration `yaml:"recipient_base"`
	RecipientCap  time.Duration `yaml:"recipient_cap"`
	// Budget is how many retries there may be for each first call, on average and
	// beyond a reserve of 100, so that a bad hour does not multiply the load on a
	// provider; 0.01 to 20, default 0.15.
	Budget float64 `yaml:"budget"`
}

// Breaker is when calls to an account, or to a narrower scope of it, are stopped.
type Breaker struct {
	// Failures in a row open it; 1 to 1000, default 5.
	Failures int `yaml:"failures"`
	// Open is how long it stays open before one probe is let through; doubled each
	// time the probe fails, until MaxOpen. Defaults 30s and 5m.
	Open    time.Duration `yaml:"open"`
	MaxOpen time.Duration `yaml:"max_open"`
	// Successes of probes in a row close it; 1 to 100, default 2.
	Successes int `yaml:"successes"`
	// FailureRate of the last minute's calls opens it too, from MinCalls calls on,
	// and so does SlowRate of calls that took SlowCall or longer; 0 to 1 and 0s to
	// 2m, default 0 for none. MinCalls is 1 to 100000, default 20.
	MinCalls    int           `yaml:"min_calls"`
	FailureRate float64       `yaml:"failure_rate"`
	SlowRate    float64       `yaml:"slow_rate"`
	SlowCall    time.Duration `yaml:"slow_call"`
}

// Default is a configuration with every default and no account.
func Default() Config {
	return Config{
		Database: Database{MaxConnections: 16},
		HTTP: HTTP{
			Listen:          ":8080",
			MaxBody:         1 << 20,
			MaxBatchBody:    10 << 20,
			ReadTimeout:     30 * time.Second,
			WriteTimeout:    time.Minute,
			IdleTimeout:     2 * time.Minute,
			ShutdownTimeout: 20 * time.Second,
			Limits: Limits{
				Write:           Rate{PerSecond: 1000, Burst: 10_000},
				Read:            Rate{PerSecond: 200, Burst: 2000},
				Admin:           Rate{PerSecond: 10, Burst: 100},
				Unauthenticated: Rate{PerSecond: 5, Burst: 100},
			},
		},
		Log: Log{Level: LogLevel(slog.LevelInfo), Format: LogAuto},
		Retention: Retention{
			Final:           30 * 24 * time.Hour,
			IdempotencyKeys: 24 * time.Hour,
		},
		Channels: defaultChannels(),
	}
}

func defaultChannels() map[notify.Channel]Channel {
	channels := map[notify.Channel]Channel{}
	for _, c := range notify.Channels() {
		channels[c] = Channel{MaxInFlight: 256}
	}
	return channels
}

func defaultAccount(c notify.Channel) Account {
	return Account{
		Channel:   c,
		Timeout:   10 * time.Second,
		OnUnknown: notify.DefaultUnknownPolicy(c),
		Retry: Retry{
			Base: time.Second, Cap: 30 * time.Second,
			RecipientBase: 5 * time.Minute, RecipientCap: 30 * time.Minute, Budget: 0.15,
		},
		Breaker: Breaker{Failures: 5, Open: 30 * time.Second, MaxOpen: 5 * time.Minute, Successes: 2, MinCalls: 20},
	}
}

// Accounts returns every account, channel by channel in the order of
// [notify.Channels], and in the configuration's order within one.
func (c Config) Accounts() []Account {
	var out []Account
	for _, ch := range notify.Channels() {
		out = append(out, c.Channels[ch].Accounts...)
	}
	return out
}
