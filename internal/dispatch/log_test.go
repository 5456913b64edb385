package dispatch_test

import (
	"log/slog"
	"testing"
)

// testLogger writes to the test's own log, until the test is over.
func testLogger(t *testing.T) *slog.Logger {
	t.Helper()
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
}
