package config_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/config/strict"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// load writes text to a file and loads it.
func load(t *testing.T, text string, env config.Env, flags map[string]string) (config.Config, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dispatcher.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return config.Load(path, env, flags)
}

const twoAccounts = `
database: {url: postgres://ana:hunter2@db/dispatcher}
http: {max_body: 2MiB}
channels:
  sms:
    max_in_flight: 64
    accounts:
      - name: main
        provider: twilio
        timeout: 5s
        retry: {base: 2s}
        account_sid: AC123
        auth_token: hunter2
      - name: spare
        provider: twilio
        on_unknown: fallback
        projects: [alarms]
        breaker: {failures: 3, open: 1m}
  email:
    accounts:
      - {name: relay, provider: smtp}
`

func TestEachLayerWinsOverTheOneBefore(t *testing.T) {
	const text = "database: {url: postgres://file}\nhttp: {listen: ':1', max_body: 2MiB, read_timeout: 9s}\n"
	env := config.Env{"DATABASE_URL": "postgres://env", "DISPATCHER_HTTP_LISTEN": ":2", "DISPATCHER_HTTP_READ_TIMEOUT": "8s"}
	c, err := load(t, text, env, map[string]string{"http.listen": ":3"})
	if err != nil {
		t.Fatal(err)
	}
	want := config.Default().HTTP
	want.Listen, want.MaxBody, want.ReadTimeout = ":3", 2<<20, 8*time.Second
	if diff := cmp.Diff(want, c.HTTP); diff != "" {
		t.Error(diff)
	}
	if got := c.Database.URL.Reveal(); got != "postgres://env" {
		t.Errorf("database.url = %q, want the environment's", got)
	}
}

func TestAccountsHaveDefaultsAndKeepTheirOrder(t *testing.T) {
	c, err := load(t, twoAccounts, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, a := range c.Accounts() {
		got = append(got, fmt.Sprint(a.Path, a.Channel, a.Name, a.Provider, a.Timeout, a.Projects, a.OnUnknown, a.Retry, a.Breaker))
	}
	want := []string{
		fmt.Sprint("channels.sms.accounts[0]", notify.SMS, "main", "twilio", 5*time.Second, []string(nil), notify.Reconcile,
			config.Retry{Base: 2 * time.Second, Cap: 30 * time.Second, RecipientBase: 5 * time.Minute, RecipientCap: 30 * time.Minute, Budget: 0.15},
			config.Breaker{Failures: 5, Open: 30 * time.Second, MaxOpen: 5 * time.Minute, Successes: 2, MinCalls: 20}),
		fmt.Sprint("channels.sms.accounts[1]", notify.SMS, "spare", "twilio", 10*time.Second, []string{"alarms"}, notify.FallBack,
			config.Retry{Base: time.Second, Cap: 30 * time.Second, RecipientBase: 5 * time.Minute, RecipientCap: 30 * time.Minute, Budget: 0.15},
			config.Breaker{Failures: 3, Open: time.Minute, MaxOpen: 5 * time.Minute, Successes: 2, MinCalls: 20}),
		fmt.Sprint("channels.email.accounts[0]", notify.Email, "relay", "smtp", 10*time.Second, []string(nil), notify.Resend,
			config.Retry{Base: time.Second, Cap: 30 * time.Second, RecipientBase: 5 * time.Minute, RecipientCap: 30 * time.Minute, Budget: 0.15},
			config.Breaker{Failures: 5, Open: 30 * time.Second, MaxOpen: 5 * time.Minute, Successes: 2, MinCalls: 20}),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if c.Channels[notify.SMS].MaxInFlight != 64 || c.Channels[notify.Push].MaxInFlight != 256 {
		t.Errorf("max_in_flight: sms %d, push %d; want 64 and the default 256",
			c.Channels[notify.SMS].MaxInFlight, c.Channels[notify.Push].MaxInFlight)
	}
}

func TestOnlyAProvidersOwnSettingsAreLeftToIt(t *testing.T) {
	c, err := load(t, twoAccounts, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	var into struct {
		SID   string `yaml:"account_sid"`
		Token string `yaml:"auth_token"`
	}
	settings := c.Channels[notify.SMS].Accounts[0].Settings
	if problems := strict.Decode(settings.Node(), "", &into); len(problems) > 0 {
		t.Fatal(problems)
	}
	if into.SID != "AC123" || into.Token != "hunter2" {
		t.Errorf("settings = %+v", into)
	}
}

func TestEveryProblemIsReportedAtOnceByItsPath(t *testing.T) {
	const text = `
database: {max_connections: 1}
http:
  listn: ":9"
  max_body: lots
  read_timeout: 30
log: {level: loud, format: xml}
retention: {final: 1s}
channels:
  fax: {}
  sms:
    max_in_flight: 0
    acounts: []
    accounts:
      - {name: Main, provider: twilio}
      - {name: twin, timeout: 1h, on_unknown: panic, retry: {base: 1m}}
      - just text
  email:
    accounts:
      - {name: twin, provider: smtp, projects: ["No Good"], receipt_window: 8760h, breaker: {failures: 0, opn: 1s}}
`
	env := config.Env{"DISPATCHER_HTTP_IDLE_TIMEOUT": "soon", "DISPATCHER_HTTP_LISTN": ":1"}
	_, err := load(t, text, env, map[string]string{"log.color": "red"})
	problems := strict.From(err)
	got := map[string]string{}
	for _, p := range problems {
		got[p.Path] = p.Text
	}
	want := map[string]string{
		"database.url":               "must be given, here or as DATABASE_URL",
		"database.max_connections":   "must be from 4 to 1000",
		"http.listn":                 "unknown setting; did you mean listen?",
		"http.max_body":              `must be a size such as "1MiB", "512KiB" or "1000000"`,
		"http.read_timeout":          `must be a duration such as "90s" or "2m30s"`,
		"log.level":                  "must be one of debug, info, warn, error",
		"log.format":                 "must be one of auto, json, text",
		"log.color":                  "no such setting",
		"retention.final":            "must be from 1h0m0s to 876000h0m0s",
		"channels.fax":               "unknown channel; it is one of email, push, slack, sms, webhook, whatsapp",
		"channels.sms.max_in_flight": "must be from 1 to 10000",
		"channels.sms.acounts":       "unknown setting; did you mean accounts?",
		"channels.sms.accounts[0].name": `must be 1 to 63 lower-case letters, digits, "-" and "_", ` +
			"and begin with a letter or digit",
		"channels.sms.accounts[1].provider":           "must be given",
		"channels.sms.accounts[1].timeout":            "must be from 100ms to 2m0s",
		"channels.sms.accounts[1].on_unknown":         "must be one of reconcile, resend, fallback, assume_sent",
		"channels.sms.accounts[1].retry.cap":          "must be from 1m0s to 24h0m0s",
		"channels.sms.accounts[2]":                    "must be a mapping of settings",
		"channels.sms.accounts[2].name":               "must be given",
		"channels.sms.accounts[2].provider":           "must be given",
		"channels.email.accounts[0].name":             "is the name of channels.sms.accounts[1] too; names are unique over all channels",
		"channels.email.accounts[0].breaker.failures": "must be from 1 to 1000",
		"channels.email.accounts[0].receipt_window":   "must be from 1s to 720h0m0s",
		"channels.email.accounts[0].breaker.opn":      "unknown setting; did you mean open?",
		"channels.email.accounts[0].projects": `a project must be 1 to 63 lower-case letters, digits, "-" and "_", ` +
			"and begin with a letter or digit",
		"DISPATCHER_HTTP_IDLE_TIMEOUT": `must be a duration such as "90s" or "2m30s"`,
		"DISPATCHER_HTTP_LISTN":        "unknown environment variable; did you mean DISPATCHER_HTTP_LISTEN?",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(problems) != len(want) {
		t.Errorf("%d problems, want %d: no path twice", len(problems), len(want))
	}
}

func TestNothingThatIsPrintedHoldsASecret(t *testing.T) {
	c, err := load(t, twoAccounts, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, printed := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c.Accounts()), fmt.Sprintf("%#v", c.Database)} {
		if strings.Contains(printed, "hunter2") {
			t.Errorf("printed: %s", printed)
		}
	}
	misplaced := strings.ReplaceAll(twoAccounts, "timeout: 5s", "timeout: hunter2") + "hunter2: [\n"
	for _, text := range []string{misplaced, strings.TrimSuffix(misplaced, "hunter2: [\n")} {
		if _, err := load(t, text, nil, nil); err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("error: %v", err)
		}
	}
}

func TestAFileThatIsNotOneYAMLDocumentIsAProblem(t *testing.T) {
	env := config.Env{"DATABASE_URL": "postgres://db"}
	for _, text := range []string{"a: [", "- list\n", "text", "database: {}\n---\ndatabase: {}\n", "a: *nowhere\n"} {
		if _, err := load(t, text, env, nil); err == nil {
			t.Errorf("%q was loaded", text)
		}
	}
	if _, err := load(t, "# nothing but a comment\n", env, nil); err != nil {
		t.Errorf("an empty file: %v", err)
	}
	if _, err := config.Load(filepath.Join(t.TempDir(), "none.yaml"), env, nil); err == nil {
		t.Error("a file that is not there was loaded")
	}
}
