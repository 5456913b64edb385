package config_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/config"
)

func TestVariablesComeFromThePathsOfSettings(t *testing.T) {
	got := config.Variables()
	for _, want := range []string{"DATABASE_URL", "DISPATCHER_HTTP_MAX_BODY", "DISPATCHER_LOG_LEVEL", "DISPATCHER_RETENTION_IDEMPOTENCY_KEYS"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing from %q", want, got)
		}
	}
}

func TestAFileTwinGivesTheValueWithoutItsLastNewline(t *testing.T) {
	path := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(path, []byte("postgres://from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load("", config.Env{"DATABASE_URL_FILE": path, "DATABASE_URL": ""}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Database.URL.Reveal(); got != "postgres://from-file" {
		t.Errorf("database.url = %q", got)
	}
}

func TestAVariableAndItsTwinTogetherAreAProblem(t *testing.T) {
	env := config.Env{"DATABASE_URL_FILE": "/nowhere", "DATABASE_URL": "postgres://db"}
	_, err := config.Load("", env, nil)
	if err == nil || !strings.Contains(err.Error(), "DATABASE_URL_FILE: is set beside DATABASE_URL") {
		t.Errorf("error = %v", err)
	}
}

func TestVariablesThatOthersSetAreLeftAlone(t *testing.T) {
	env := config.ParseEnv([]string{
		"DATABASE_URL=postgres://db", "DISPATCHER_CONFIG=x.yaml", "DISPATCHER_URL=http://x", "DISPATCHER_KEY=dsp_x", "DISPATCHER_KEY_FILE=k",
		// Kubernetes sets these beside a service that is called dispatcher.
		"DISPATCHER_SERVICE_HOST=10.0.0.1", "DISPATCHER_SERVICE_PORT=80", "DISPATCHER_SERVICE_PORT_HTTP=80", "DISPATCHER_PORT=tcp://10.0.0.1:80",
		"DISPATCHER_PORT_80_TCP=tcp://10.0.0.1:80", "DISPATCHER_PORT_80_TCP_ADDR=10.0.0.1", "DISPATCHER_API_SERVICE_HOST=10.0.0.2",
		"HOME=/root", "=C:=C:\\",
	})
	if _, err := config.Load("", env, nil); err != nil {
		t.Error(err)
	}
	env["DISPATCHER_HTTP_PORT"] = "9090"
	if _, err := config.Load("", env, nil); err == nil {
		t.Error("a guess at a setting was taken for a variable of Kubernetes")
	}
}

func TestBytesAreReadInEveryUnit(t *testing.T) {
	for text, want := range map[string]config.Bytes{
		"0": 0, "17": 17, "17B": 17, "1kB": 1000, "1KiB": 1024, "2MB": 2e6, "2MiB": 2 << 20, "1 GiB": 1 << 30, "3GB": 3e9,
	} {
		var got config.Bytes
		if err := got.UnmarshalText([]byte(text)); err != nil || got != want {
			t.Errorf("%q = %d, %v; want %d", text, got, err, want)
		}
		var again config.Bytes
		if err := again.UnmarshalText([]byte(got.String())); err != nil || again != got {
			t.Errorf("%q prints as %q, which reads as %d, %v", text, got, again, err)
		}
	}
	for _, text := range []string{"", "MiB", "-1", "1.5MiB", "1TiB", "1 M", "9223372036854775807GiB"} {
		var got config.Bytes
		if err := got.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was read as %d", text, got)
		}
	}
}
