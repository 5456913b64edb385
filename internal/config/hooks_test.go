package config_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/config"
)

func TestStatusWebhooksAreReadFromFileAndEnvironment(t *testing.T) {
	const file = `status_webhooks: {allow_ports: [80, 8443], allow_private: ["hooks.internal:8443", 10.1.0.0/16]}`
	for name, tt := range map[string]struct {
		env          config.Env
		ports        []int
		allowPrivate []string
	}{
		"the file":        {config.Env{"DATABASE_URL": "postgres://db"}, []int{80, 8443}, []string{"hooks.internal:8443", "10.1.0.0/16"}},
		"the environment": {config.Env{"DATABASE_URL": "postgres://db", "DISPATCHER_STATUS_WEBHOOKS_ALLOW_PORTS": " 443, 444,", "DISPATCHER_STATUS_WEBHOOKS_ALLOW_PRIVATE": "10.2.0.0/16"}, []int{443, 444}, []string{"10.2.0.0/16"}},
	} {
		c, err := config.Parse([]byte(file), tt.env, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(tt.ports, c.StatusWebhooks.Ports()) + cmp.Diff(tt.allowPrivate, c.StatusWebhooks.AllowPrivate.Items()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestStatusWebhooksThatCannotBeAreReported(t *testing.T) {
	for _, text := range []string{
		`status_webhooks: {allow_ports: [https]}`, `status_webhooks: {allow_ports: [0]}`, `status_webhooks: {allow_private: {a: b}}`,
		`channels: {webhook: {accounts: [{name: status-webhooks, provider: webhook}]}}`,
	} {
		if _, err := config.Parse([]byte(text), config.Env{"DATABASE_URL": "postgres://db"}, nil); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}
