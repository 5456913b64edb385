// Package telemetry is how the service is watched: its log and its metrics. No
// recipient, project, address or text of a message is ever in either.
package telemetry

import (
	"io"
	"log/slog"
	"os"
)

// NewLogger writes a log to w, normally standard error. format is "json", "text",
// or "auto": text where w is a terminal, JSON elsewhere. Times are in UTC.
func NewLogger(w io.Writer, level slog.Leveler, format string) *slog.Logger {
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: utc}
	if format == "text" || format != "json" && Terminal(w) {
		return slog.New(slog.NewTextHandler(w, options))
	}
	return slog.New(slog.NewJSONHandler(w, options))
}

func utc(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.TimeValue(a.Value.Time().UTC())
	}
	return a
}

// Terminal reports whether w is a character device, as a terminal is.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
