package sms

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// lists answers with one message to ana.
func lists(t *testing.T, from, service, text string) string {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.Method + " " + r.URL.Query().Get("To"); got != "GET "+ana {
			t.Errorf("call %s", got)
		}
		_, _ = fmt.Fprintf(w, `{"messages":[{"sid":"%s","from":"%s","messaging_service_sid":"%s","body":"%s","status":"sent","direction":"outbound-api",
			"error_code":null,"date_created":"%s"}],"next_page_uri":null}`, messageSID, from, service, text, time.Now().UTC().Format(time.RFC1123Z))
	}))
	t.Cleanup(srv.Close)
	return srv.URL
}

func TestLookUpKnowsWhatTheAccountSends(t *testing.T) {
	const german = "Störung: api „läuft“ nicht" // has quotes that smart encoding replaces
	text := message("").Content.SMSText()
	escaped := strings.ReplaceAll(text, "\n", `\n`)
	for _, c := range []struct {
		name           string
		from, service  string // of the message listed
		listed         string
		change         func(*Config, *channels.Message)
		found, certain bool
	}{
		{"its own sender", "+15005550006", "", escaped, nil, true, true},
		{"its own service", "+15005550001", serviceSID, escaped, func(c *Config, _ *channels.Message) { c.MessagingServiceSID = serviceSID }, true, true},
		{"another sender", "+15005550001", "", escaped, nil, false, true},
		{"another text", "+15005550006", "", "other", nil, false, true},
		{"a text that may have been encoded smartly", "+15005550006", "", "other", func(c *Config, m *channels.Message) {
			c.SmartEncoded, m.Content = true, notify.Content{Body: german}
		}, false, false},
		{"a text that a service may have encoded smartly", "", serviceSID, "other", func(c *Config, m *channels.Message) {
			c.From, c.MessagingServiceSID, m.Content = "", serviceSID, notify.Content{Body: german}
		}, false, false},
		{"a text that smart encoding leaves alone", "+15005550006", "", "other", func(c *Config, _ *channels.Message) { c.SmartEncoded = true }, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, m := config(lists(t, c.from, c.service, c.listed)), message("")
			if c.change != nil {
				c.change(&cfg, m)
			}
			began := time.Now().Add(-40 * time.Second)
			got := provider(t, cfg).LookUp(t.Context(), m, began, began)
			if found := len(got.Messages) == 1 && got.Messages[0].MessageID == messageSID; found != c.found || got.Complete != c.certain {
				t.Errorf("sighting %+v", got)
			}
		})
	}
}
