package dispatch

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

func TestRiverIsHeardOnceAndOnlyWithWarnings(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := quiet(slog.New(slog.NewTextHandler(&out, nil))).With(slog.String("queue", "sms"))
	for range 100 {
		log.Info("ordinary life")
		log.Warn("error fetching jobs")
		log.WithGroup("g").Error("something else")
	}
	if n := strings.Count(out.String(), "\n"); n != 2 || strings.Contains(out.String(), "ordinary") {
		t.Errorf("%d lines:\n%s", n, out.String())
	}
}
