package channels_test

import (
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

func TestCodeKeepsOnlyWhatLooksLikeACode(t *testing.T) {
	for _, s := range []string{"21211", "UNREGISTERED", "550 5.1.1", "messaging/invalid-argument", "channel_not_found", "131047:2494055"} {
		if got := channels.Code(s); got != s {
			t.Errorf("Code(%q) = %q, want it unchanged", s, got)
		}
	}
	for _, s := range []string{"", "+14155550100", "ana@example.com", "<html>", "no\nsuch", " 550", "é", "{}", strings.Repeat("x", 65)} {
		if got := channels.Code(s); got != "" {
			t.Errorf("Code(%q) = %q, want it dropped", s, got)
		}
	}
}
