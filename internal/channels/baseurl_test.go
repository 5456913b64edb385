package channels_test

import (
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

func TestBaseURLDefaultsToTheVendors(t *testing.T) {
	got, err := channels.BaseURL("", "https://api.example.com")
	if err != nil || got != "https://api.example.com" {
		t.Errorf("BaseURL = %q, %v, want the vendor's", got, err)
	}
}

func TestBaseURLKeepsPathAndDropsTheLastSlash(t *testing.T) {
	for in, want := range map[string]string{
		"http://127.0.0.1:8090":        "http://127.0.0.1:8090",
		"http://127.0.0.1:8090/":       "http://127.0.0.1:8090",
		"https://proxy.example/vendor": "https://proxy.example/vendor",
		"https://[::1]:8443/a/b//":     "https://[::1]:8443/a/b",
	} {
		if got, err := channels.BaseURL(in, "https://api.example.com"); err != nil || got != want {
			t.Errorf("BaseURL(%q) = %q, %v, want %q", in, got, err, want)
		}
	}
}

func TestBaseURLRefusesWhatIsNoBase(t *testing.T) {
	for _, in := range []string{
		"example.com", "/path", "ftp://example.com", "https://", "https://:8080", "https://user:hunter2@example.com",
		"https://example.com?key=hunter2", "https://example.com?", "https://example.com#hunter2", "http://[::1",
	} {
		_, err := channels.BaseURL(in, "https://api.example.com")
		switch {
		case err == nil:
			t.Errorf("BaseURL(%q) was taken", in)
		case !strings.HasPrefix(err.Error(), "base_url: "):
			t.Errorf("BaseURL(%q): error %q does not name the key", in, err)
		case strings.Contains(err.Error(), "hunter2"):
			t.Errorf("BaseURL(%q): error %q discloses it", in, err)
		}
	}
}
