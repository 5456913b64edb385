package email

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

func TestNewReportsEverySetting(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		cfg  Config
		want []string
	}{
		{"nothing is set", Config{}, []string{"host:", "from:"}},
		{
			"all is wrong",
			Config{
				Host: "smtp.example.com:587", Port: 70000, TLS: "ssl", CAFile: empty, Insecure: true, Username: "u", Auth: "ntlm",
				Helo: "a b", From: Address{Address: "x"}, ReplyTo: Address{Name: "x"}, ReturnPath: "x", DKIM: DKIM{PrivateKey: secret.New("hunter2")},
				MaxAttachmentBytes: -1, MaxConnections: -1,
			},
			[]string{
				"host:", "port:", "tls:", "ca_file:", "insecure:", "username:", "auth:", "helo:", "from:", "reply_to:", "return_path:",
				"dkim.domain:", "dkim.selector:", "dkim.private_key:", "max_attachment_bytes:", "max_connections:",
			},
		},
		{"plaintext beyond the loopback", Config{Host: "smtp.example.com", TLS: tlsNone, From: Address{Address: "a@example.com"}}, []string{"tls:"}},
		{"a missing file", Config{Host: "smtp.example.com", CAFile: filepath.Join(dir, "none.pem"), From: Address{Address: "a@example.com"}}, []string{"ca_file:"}},
		{"a password alone", Config{Host: "smtp.example.com", Password: secret.New("hunter2"), From: Address{Address: "a@example.com"}}, []string{"username:"}},
		{"a mechanism alone", Config{Host: "smtp.example.com", Auth: "plain", From: Address{Address: "a@example.com"}}, []string{"auth:"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New("smtp-main", tt.cfg)
			if err == nil {
				t.Fatal("no error")
			}
			got := strings.Split(strings.TrimPrefix(err.Error(), "smtp account smtp-main: "), "\n")
			if len(got) != len(tt.want) {
				t.Errorf("%d problems, want %d:\n%v", len(got), len(tt.want), err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error lacks %q:\n%v", want, err)
				}
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error discloses a secret: %v", err)
			}
		})
	}
}

func TestDefaults(t *testing.T) {
	for mode, port := range map[string]int{"": 587, tlsStartTLS: 587, tlsOpportunistic: 587, tlsImplicit: 465, tlsNone: 25} {
		p, err := New("smtp-main", Config{Host: "localhost", TLS: mode, From: Address{Address: "a@example.com"}})
		if err != nil {
			t.Fatal(err)
		}
		if p.cfg.Port != port {
			t.Errorf("tls %q: port %d, want %d", mode, p.cfg.Port, port)
		}
		if i := p.Info(); i.Account != "smtp-main" || i.Channel != notify.Email || i.Provider != "smtp" || i.MaxObservable != notify.Sent {
			t.Errorf("info %+v", i)
		}
	}
}

func TestConfigInYAML(t *testing.T) {
	text := `
host: smtp.example.com
port: 2525
tls: opportunistic
allow_plaintext: true
server_name: mail.example.com
username: relay
password: hunter2
auth: login
helo: client.example.com
from: {address: alerts@example.com, name: Alerts}
allow_from_override: true
reply_to: {address: ops@example.com}
return_path: bounces@example.com
dkim: {domain: example.com, selector: 2026a, private_key: k}
max_attachment_bytes: 1000
max_connections: 3
idle_timeout: 5s
`
	dec := yaml.NewDecoder(strings.NewReader(text))
	dec.KnownFields(true)
	var got Config
	if err := dec.Decode(&got); err != nil {
		t.Fatal(err)
	}
	want := Config{
		Host: "smtp.example.com", Port: 2525, TLS: tlsOpportunistic, AllowPlaintext: true, ServerName: "mail.example.com",
		Username: "relay", Password: secret.New("hunter2"), Auth: "login", Helo: "client.example.com",
		From: Address{"alerts@example.com", "Alerts"}, AllowFromOverride: true, ReplyTo: Address{Address: "ops@example.com"},
		ReturnPath: "bounces@example.com", DKIM: DKIM{"example.com", "2026a", secret.New("k")},
		MaxAttachmentBytes: 1000, MaxConnections: 3, IdleTimeout: 5 * time.Second,
	}
	sameSecret := cmp.Comparer(func(a, b secret.Value) bool { return a.Reveal() == b.Reveal() })
	if diff := cmp.Diff(want, got, sameSecret); diff != "" {
		t.Errorf("config (-want +got):\n%s", diff)
	}
}
