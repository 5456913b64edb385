package cli_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// canned is a service that answers every call alike and tells what it was asked.
func canned(t *testing.T, status int, answer string) (env []string, asked func() string) {
	t.Helper()
	var got strings.Builder
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got.Reset()
		got.WriteString(r.Method + " " + r.URL.RequestURI() + " " + string(body))
		w.WriteHeader(status)
		_, _ = io.WriteString(w, answer)
	}))
	t.Cleanup(server.Close)
	return []string{"DISPATCHER_URL=" + server.URL, "DISPATCHER_KEY=dsp_x"}, func() string { return strings.TrimSpace(got.String()) }
}

func TestBreakersAreOperatedByCommand(t *testing.T) {
	const answer = `{"account":"twilio-main","breaker":{"state":"open","open_until":null,"forced":true,"forced_by":"ana (1)","forced_until":"2030-01-01T00:00:00Z"},"gate":{"until":null}}`
	env, asked := canned(t, 200, answer)
	run(t, env, "channels", "open", "twilio-main", "--why", "incident 4711", "--until", "2030-01-01T00:00:00Z").
		want(t, 0, "twilio-main: breaker open, forced by ana (1) until 2030-01-01T00:00:00Z, gate open")
	if got, want := asked(), `POST /v1/channels/twilio-main/breaker {"action":"open","until":"2030-01-01T00:00:00Z","why":"incident 4711"}`; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	run(t, env, "channels", "close", "--why", "x", "hooks", "--scope", "host:example.com", "--for", "1h", "--json").want(t, 0, `"forced_by": "ana (1)"`)
	if got := asked(); !strings.HasPrefix(got, `POST /v1/channels/hooks/breaker {"action":"close","scope":"host:example.com","until":"20`) {
		t.Errorf("asked %s", got)
	}
	run(t, env, "channels", "reset", "hooks", "--why", "repaired").want(t, 0)
	if got, want := asked(), `POST /v1/channels/hooks/breaker {"action":"reset","why":"repaired"}`; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

func TestChannelsArePausedByCommand(t *testing.T) {
	env, asked := canned(t, 200, `{"channel":"sms","paused":{"by":"ana (0193a1b2-0000-7000-8000-000000000001)"}}`)
	run(t, env, "channels", "pause", "sms", "--why", "incident").want(t, 0, "sms: paused by ana\n")
	if got, want := asked(), `POST /v1/channels/sms/pause {"why":"incident"}`; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	env, asked = canned(t, 200, `{"channel":"sms","paused":null}`)
	run(t, env, "channels", "resume", "sms", "--why", "over").want(t, 0, "sms: runs")
	if got, want := asked(), `POST /v1/channels/sms/resume {"why":"over"}`; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

func TestWhatOperatorsDidIsListed(t *testing.T) {
	env, asked := canned(t, 200, `{"items":[{"at":"2026-12-01T12:00:00Z","action":"pause","target":"sms","by":"ana (1)","why":"incident","until":null}]}`)
	run(t, env, "channels", "history", "--limit", "5").want(t, 0, "2026-12-01T12:00:00Z   pause", "ana (1)", "incident")
	if got, want := asked(), "GET /v1/channels/actions?limit=5"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	env, asked = canned(t, 200, `{"account":"hooks","scope":"host:x","breaker":{"state":"half_open","because":"probe"},"gate":{"until":null},
		"transitions":[{"at":"2026-12-01T12:00:00Z","from":"open","to":"half_open","reason":"probe","until":null}]}`)
	run(t, env, "channels", "history", "hooks", "--scope", "host:x").want(t, 0, "breaker half_open (probe), gate open", "2026-12-01T12:00:00Z   open   half_open")
	if got, want := asked(), "GET /v1/channels/hooks/breaker?scope=host%3Ax"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

func TestScopesInTroubleAreListedBelowTheirAccount(t *testing.T) {
	env, _ := canned(t, 200, `{"items":[{"channel":"webhook","paused":{"since":"2026-12-01T12:00:00Z"},"accounts":[{"account":"hooks","provider":"webhook",
		"breaker":{"state":"closed"},"gate":{"until":null},"more_scopes":true,
		"scopes":[{"scope":"host:x","breaker":{"state":"open","because":"failures","open_until":"2026-12-01T12:00:30Z"},"gate":{"until":"2026-12-01T12:01:00Z"}}]}],
		"backlog":{"queued":1,"waiting":{"breaker_open":7},"oldest_held_seconds":1200.5}}]}`)
	run(t, env, "channels", "list").want(t, 0, "webhook (paused)", "host:x", "open until 12:00:30 (failures)", "shut until 12:01:00", "and more",
		"7 breaker_open, held for 20m0s")
}

func TestOperatingExitsWithOneWhereItWasNotDoneAndTwoForMistakes(t *testing.T) {
	env, _ := canned(t, 404, `{"status":404,"code":"not_found","detail":"There is no such thing."}`)
	run(t, env, "channels", "open", "nobody", "--why", "x").want(t, 1, "answered 404 (not_found)")
	env, asked := canned(t, 200, "{}")
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"open", "a"}, "--why must be given"},
		{[]string{"reset", "a", "--why", " "}, "--why must be given"},
		{[]string{"open", "--why", "x"}, "takes the name of one account"},
		{[]string{"open", "a", "--why", "x", "--until", "tomorrow"}, "--until must be an RFC 3339 time"},
		{[]string{"open", "a", "--why", "x", "--until", "2030-01-01T00:00:00Z", "--for", "1h"}, "do not go together"},
		{[]string{"open", "a", "--why", "x", "--for", "-1h"}, "--for must not be negative"},
		{[]string{"reset", "a", "--why", "x", "--for", "1h"}, "--for"},
		{[]string{"pause", "twilio-main", "--why", "x"}, "takes one channel"},
		{[]string{"resume", "sms"}, "--why must be given"},
		{[]string{"history", "a", "b"}, "one account at most"},
		{[]string{"history", "--scope", "x"}, "--scope needs an account"},
		{[]string{"history", "a", "--limit", "1"}, "--limit does not go with an account"},
	} {
		run(t, env, append([]string{"channels"}, c.args...)...).want(t, 2, c.says)
	}
	if got := asked(); got != "" {
		t.Errorf("asked %s", got)
	}
}
