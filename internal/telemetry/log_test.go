package telemetry_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/telemetry"
)

func TestALogThatIsNoTerminalIsJSONInUTC(t *testing.T) {
	for _, format := range []string{"auto", "json"} {
		var b bytes.Buffer
		telemetry.NewLogger(&b, slog.LevelInfo, format).Info("breaker opened", slog.String("account", "twilio-main"))
		var line map[string]string
		if err := json.Unmarshal(b.Bytes(), &line); err != nil {
			t.Fatalf("%s: %v: %s", format, err, b.String())
		}
		if line["msg"] != "breaker opened" || line["account"] != "twilio-main" || !strings.HasSuffix(line["time"], "Z") {
			t.Errorf("%s: line = %v", format, line)
		}
	}
}

func TestTheLevelAndTheTextFormatAreHonoured(t *testing.T) {
	var b bytes.Buffer
	log := telemetry.NewLogger(&b, slog.LevelWarn, "text")
	log.Info("left out")
	log.Warn("kept", slog.Int("n", 1))
	if got := b.String(); strings.Contains(got, "left out") || !strings.Contains(got, "level=WARN msg=kept n=1") {
		t.Errorf("log = %q", got)
	}
}
