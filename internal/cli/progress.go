package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// progress shows how a notification is getting on.
type progress interface {
	show(v *view, now time.Time)
}

type silentProgress struct{}

func (silentProgress) show(*view, time.Time) {}

// plainProgress prints a line for each change.
type plainProgress struct {
	w    io.Writer
	seen []string
}

func (p *plainProgress) show(v *view, now time.Time) {
	lines := progressLines(v)
	for i, line := range lines {
		if i >= len(p.seen) || p.seen[i] != line {
			printTo(p.w, "%s  %s\n", now.UTC().Format(time.TimeOnly), line)
		}
	}
	p.seen = lines
}

// liveProgress redraws its lines in a terminal.
type liveProgress struct {
	w     io.Writer
	drawn int
}

func (p *liveProgress) show(v *view, _ time.Time) {
	var b strings.Builder
	if p.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", p.drawn) // up to the first line
	}
	lines := progressLines(v)
	for _, line := range lines {
		b.WriteString("\r\x1b[2K" + line + "\n") // over what stood there
	}
	p.drawn = len(lines)
	_, _ = io.WriteString(p.w, b.String())
}

// progressLines is a line for each step and one for the whole.
func progressLines(v *view) []string {
	lines := make([]string, 0, len(v.Steps)+1)
	for _, s := range v.Steps {
		lines = append(lines, strings.TrimRight(fmt.Sprintf("%-9s %-10s %s", s.Channel, s.Status, s.note()), " "))
	}
	return append(lines, strings.TrimRight(fmt.Sprintf("%-9s %-10s %s", "=", v.Status, v.Waiting.note()), " "))
}

// note says what is known of a step beside its status.
func (s *stepView) note() string {
	var parts []string
	if n := len(s.Attempts); n > 0 {
		last := s.Attempts[n-1]
		text := fmt.Sprintf("%s answered %s", last.Account, last.Outcome)
		if last.ProviderCode != "" && last.Outcome != notify.Accepted {
			text += " (" + last.ProviderCode + ")"
		}
		parts = append(parts, fmt.Sprintf("%s in %.0f ms, %s", text, last.DurationMS, plural(n, "call")))
	} else if s.Because != "" && s.Because != string(s.Status) {
		parts = append(parts, s.Because)
	}
	if n := len(s.Receipts); n > 0 {
		last := s.Receipts[n-1]
		text := "reported " + string(last.Status)
		if last.ProviderCode != "" {
			text += " (" + last.ProviderCode + ")"
		}
		parts = append(parts, text)
	}
	if w := s.Waiting.note(); w != "" {
		parts = append(parts, w)
	}
	return strings.Join(parts, "; ")
}

func (w waitView) note() string {
	switch {
	case w.Reason == "":
		return ""
	case w.Until.IsZero():
		return "waits: " + string(w.Reason)
	}
	return fmt.Sprintf("waits: %s until %s", w.Reason, w.Until.UTC().Format(time.TimeOnly))
}
