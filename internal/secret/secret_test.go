package secret_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/secret"
)

const text = "correct-horse"

func TestNoWayOfPrintingShowsTheText(t *testing.T) {
	v := secret.New(text)
	hidden := struct{ v secret.Value }{v}
	exported := struct{ V secret.Value }{v}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("m", slog.Any("v", v), slog.Any("in_struct", hidden))
	asJSON, err := json.Marshal(exported)
	if err != nil {
		t.Fatal(err)
	}
	asYAML, err := yaml.Marshal(exported)
	if err != nil {
		t.Fatal(err)
	}
	printed := []string{log.String(), string(asJSON), string(asYAML)}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		printed = append(printed, fmt.Sprintf(verb, v), fmt.Sprintf(verb, &v), fmt.Sprintf(verb, hidden), fmt.Sprintf(verb, exported))
	}
	for _, p := range printed {
		if strings.Contains(p, text) || strings.Contains(p, fmt.Sprintf("%x", text)) {
			t.Errorf("the secret shows in %q", p)
		}
	}
	if v.Reveal() != text {
		t.Errorf("Reveal() = %q", v.Reveal())
	}
}

func TestYAMLFormsOfASecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("SECRET_TEST", "from-env")
	for name, c := range map[string]struct{ yaml, want, err string }{
		"text":           {`v: plain`, "plain", ""},
		"number":         {`v: 0123`, "0123", ""},
		"null":           {`v:`, "", ""},
		"environment":    {`v: {env: SECRET_TEST}`, "from-env", ""},
		"file":           {`v: {file: ` + file + `}`, "from-file", ""},
		"unset variable": {`v: {env: SECRET_TEST_UNSET}`, "", "SECRET_TEST_UNSET is not set"},
		"missing file":   {`v: {file: /nonexistent/x}`, "", "read secret"},
		"unknown form":   {`v: {vault: x}`, "", "a secret is a string"},
		"list":           {`v: [a]`, "", "a secret is a string"},
	} {
		t.Run(name, func(t *testing.T) {
			var into struct{ V secret.Value }
			err := yaml.Unmarshal([]byte(c.yaml), &into)
			switch {
			case c.err == "" && err != nil:
				t.Fatal(err)
			case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
				t.Fatalf("error %v, want one with %q", err, c.err)
			case into.V.Reveal() != c.want:
				t.Errorf("got %q, want %q", into.V.Reveal(), c.want)
			}
		})
	}
}
