package slack

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// posted is a message of conversations.history with a key in its metadata.
func posted(ts, event, key string) string {
	return `{"type":"message","subtype":"bot_message","text":"Deploy failed","ts":"` + ts + `","bot_id":"B1",
		"metadata":{"event_type":"` + event + `","event_payload":{"key":"` + key + `","more":1}}}`
}

func historyOf(more string, messages ...string) string {
	plain := `{"type":"message","user":"U1","text":"hello","ts":"1712345600.000100"}`
	return `{"ok":true,"messages":[` + strings.Join(append(messages, plain), ",") + `],"has_more":` + more + `,"pin_count":0}`
}

func TestLookUpFindsAMessageByItsKey(t *testing.T) {
	key := botMessage().Key.String()
	began := time.Unix(1712345678, 500_000_000)
	long := time.Now().Add(-time.Minute)
	missed := func(o notify.Outcome, code string) channels.Sighting {
		return channels.Sighting{Call: channels.Result{Outcome: o, Code: code, HTTPStatus: 200}}
	}
	found := []channels.Result{channels.Ok("1712345679.000100")}
	answered := channels.Result{Outcome: notify.Accepted, HTTPStatus: 200}
	limited := missed(notify.Throttled, "ratelimited")
	limited.Call.Scope = historyScope
	for _, c := range []struct {
		name  string
		ended time.Time
		body  string
		want  channels.Sighting
	}{
		{"there", long, historyOf("false", posted("1712345679.000100", "dispatcher", key)), channels.Sighting{Messages: found, Complete: true, Call: answered}},
		{"there, on the first of many pages", long, historyOf("true", posted("1712345679.000100", "dispatcher", key)), channels.Sighting{Messages: found, Call: answered}},
		{"not there", long, historyOf("false", posted("1712345679.000100", "dispatcher", "another")), channels.Sighting{Complete: true, Call: answered}},
		{"another application's", long, historyOf("false", posted("1712345679.000100", "other", key)), channels.Sighting{Complete: true, Call: answered}},
		{"not on the first of many pages", long, historyOf("true"), channels.Sighting{Call: answered}},
		{"too soon", time.Now().Add(-29 * time.Second), historyOf("false"), channels.Sighting{Call: answered}},
		{"no right to read", long, `{"ok":false,"error":"missing_scope","needed":"channels:history"}`, missed(notify.MessageRejected, "missing_scope")},
		{"a conversation that it cannot read", long, `{"ok":false,"error":"channel_not_found"}`, missed(notify.MessageRejected, "channel_not_found")},
		{"throttled", long, `{"ok":false,"error":"ratelimited"}`, limited},
		{"down", long, `{"ok":false,"error":"service_unavailable"}`, missed(notify.ProviderUnavailable, "service_unavailable")},
		{"no history", long, `{"ok":true}`, missed(notify.Unknown, "")},
		{"no json", long, `<html>` + testChannel, missed(notify.Unknown, "")},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, base := newCapture(t, c.body)
			s := newBot(t, base+"/api").LookUp(t.Context(), botMessage(), began, c.ended)
			c.want.Call.Detail = s.Call.Detail
			if diff := cmp.Diff(c.want, s); diff != "" {
				t.Errorf("sighting (-want +got):\n%s", diff)
			}
			if strings.Contains(s.Call.Detail, testChannel) || strings.Contains(s.Call.Detail, testToken) {
				t.Errorf("detail %q discloses the conversation or the token", s.Call.Detail)
			}
			form, err := url.ParseQuery(got.body)
			want := url.Values{"channel": {testChannel}, "include_all_metadata": {"1"}, "limit": {"100"}, "oldest": {"1712345618.500000"}}
			if diff := cmp.Diff(want, form); diff != "" || err != nil || got.path != "/api/conversations.history" || got.head.Get("Authorization") != "Bearer "+testToken {
				t.Errorf("%s with %v (-want +got):\n%s", got.path, err, diff)
			}
		})
	}
}

func TestLookUpThrottledByStatusHoldsReadingOnly(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "60")
		w.WriteHeader(http.StatusTooManyRequests)
	}))
	defer srv.Close()
	s := newBot(t, srv.URL).LookUp(t.Context(), botMessage(), time.Now(), time.Now())
	if c := s.Call; c.Outcome != notify.Throttled || c.RetryAfter != time.Minute || c.Scope != historyScope {
		t.Errorf("call %+v", c)
	}
}

func TestLookUpCannotFindAReply(t *testing.T) {
	got, base := newCapture(t, historyOf("false"))
	m := botMessage()
	m.Content.Slack = &notify.SlackContent{Thread: "1712345678.000100"}
	if s := newBot(t, base).LookUp(t.Context(), m, time.Now(), time.Now().Add(-time.Hour)); s.Complete || got.path != "" {
		t.Errorf("sighting %+v after a call of %q", s, got.path)
	}
}
