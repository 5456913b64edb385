package catalog_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/channels/catalog"
	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/config/strict"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

func TestEveryChannelHasAProviderAndEveryNameIsUniqueWithinItsChannel(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range catalog.All() {
		id := string(s.Channel) + "/" + s.Provider
		if seen[id] {
			t.Errorf("%s is listed twice", id)
		}
		seen[id] = true
		if found, ok := catalog.Lookup(s.Channel, s.Provider); !ok || found.Provider != s.Provider || found.Channel != s.Channel {
			t.Errorf("Lookup does not find %s", id)
		}
	}
	for _, c := range notify.Channels() {
		if len(catalog.Names(c)) == 0 {
			t.Errorf("%s has no provider", c)
		}
	}
	if _, ok := catalog.Lookup(notify.Email, "twilio"); ok {
		t.Error("Lookup finds a provider of another channel")
	}
}

// parse reads a configuration whose text is good in all that is not the accounts'
// own settings.
func parse(t *testing.T, text string) config.Config {
	t.Helper()
	c, err := config.Parse([]byte(text), config.Env{"DATABASE_URL": "postgres://db"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestEveryProviderIsBuiltFromTheSandboxExample(t *testing.T) {
	text, err := config.Example(config.ExampleOptions{Sandbox: "http://127.0.0.1:8090/", SMTP: "127.0.0.1:8025"})
	if err != nil {
		t.Fatal(err)
	}
	accounts := parse(t, string(text)).Accounts()
	providers, err := catalog.Build(accounts)
	if err != nil {
		t.Fatal(err)
	}
	built := map[string]bool{}
	for i, p := range providers {
		info := p.Info()
		if info.Account != accounts[i].Name || info.Channel != accounts[i].Channel || info.Provider != accounts[i].Provider {
			t.Errorf("account %s of %s became %+v", accounts[i].Name, accounts[i].Provider, info)
		}
		if info.MaxObservable.Rank() < notify.Sent.Rank() {
			t.Errorf("%s can observe at most %q", info.Account, info.MaxObservable)
		}
		built[string(info.Channel)+"/"+info.Provider] = true
	}
	for _, s := range catalog.All() {
		if !built[string(s.Channel)+"/"+s.Provider] {
			t.Errorf("the example has no account of %s for %s", s.Provider, s.Channel)
		}
	}
}

func TestEveryProblemOfEveryAccountIsReportedAtOnce(t *testing.T) {
	c := parse(t, `
channels:
  push:
    accounts:
      - {name: a, provider: fcmm}
      - name: b
        provider: apns
        key_id: short
        tokens: x
  webhook:
    accounts:
      - name: c
        provider: webhook
        secrets: [hunter2]
        allow_ports: [https]
  email:
    accounts:
      - {name: d, provider: smtp, host: localhost, from: {adress: ana@example.com}}
`)
	_, err := catalog.Build(c.Accounts())
	problems := strict.From(err)
	got := map[string]int{}
	for _, p := range problems {
		got[p.Path] = p.Line
	}
	want := map[string]int{
		"channels.push.accounts[0].provider":          0,
		"channels.push.accounts[1].key_id":            8,
		"channels.push.accounts[1].team_id":           0,
		"channels.push.accounts[1].topic":             0,
		"channels.push.accounts[1].private_key":       0,
		"channels.push.accounts[1].tokens":            9,
		"channels.webhook.accounts[0].secrets[0]":     14,
		"channels.webhook.accounts[0].allow_ports[0]": 15,
		"channels.email.accounts[0].from.adress":      18,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s\n%s", diff, err)
	}
	if strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "did you mean fcm?") {
		t.Errorf("error: %s", err)
	}
}

func TestAConstructorsErrorIsGivenAsItIsWhereItNamesNoSetting(t *testing.T) {
	s, ok := catalog.Lookup(notify.Slack, "slack")
	if !ok {
		t.Fatal("no provider slack")
	}
	_, err := s.New("x", &yaml.Node{})
	if err == nil || !strings.HasPrefix(err.Error(), "token: ") {
		t.Errorf("error = %v, want it to begin with the setting", err)
	}
}
