package config_test

import (
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/config"
)

func TestThePublicURLIsOneThatPathsCanFollow(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "",
		"https://notify.example.com":       "https://notify.example.com",
		"https://notify.example.com/":      "https://notify.example.com",
		"http://[2001:db8::1]:8080/a/b//":  "http://[2001:db8::1]:8080/a/b",
		"HTTPS://notify.example.com/d%20x": "HTTPS://notify.example.com/d%20x",
	} {
		c, err := config.Parse([]byte("http: {public_url: "+quoted(text)+"}"), config.Env{"DATABASE_URL": "postgres://h/d"}, nil)
		if err != nil || string(c.HTTP.PublicURL) != want {
			t.Errorf("%q: %q, %v", text, c.HTTP.PublicURL, err)
		}
	}
	for _, text := range []string{
		"notify.example.com", "//notify.example.com", "ftp://notify.example.com", "https://", "https:notify.example.com",
		"https://user:hunter2@notify.example.com", "https://notify.example.com/?", "https://notify.example.com?a=hunter2",
		"https://notify.example.com/#", "https://notify.example.com/a b", "https://notify.example.com:port",
	} {
		_, err := config.Parse(nil, config.Env{"DATABASE_URL": "postgres://h/d", "DISPATCHER_HTTP_PUBLIC_URL": text}, nil)
		if err == nil || !strings.Contains(err.Error(), "DISPATCHER_HTTP_PUBLIC_URL") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func quoted(s string) string { return "'" + s + "'" }
