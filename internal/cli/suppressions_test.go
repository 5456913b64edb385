package cli_test

import (
	"strings"
	"testing"
)

const suppressedItem = `{"id":"sms-3ba1979877547c84abd999c3de4bfa9a","channel":"sms","reason":"manual","source":"ana (1)","created_at":"2026-12-01T08:00:00Z","until":null}`

func TestSuppressionsAreListedByCommand(t *testing.T) {
	env, asked := canned(t, 200, `{"items":[`+suppressedItem+`],"next":"AQ"}`)
	r := run(t, env, "suppressions", "list", "--channel", "sms", "--recipient", "+14155550100", "--reason", "manual", "--limit", "1", "--cursor", "AA")
	r.want(t, 0, "ID", "sms-3ba1979877547c84abd999c3de4bfa9a   manual   ana (1)   2026-12-01T08:00:00Z   -")
	if got, want := asked(), "GET /v1/suppressions?channel=sms&cursor=AA&limit=1&reason=manual&recipient=%2B14155550100"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	if !strings.Contains(r.stderr, "there are more: --cursor AQ") {
		t.Errorf("says %q", r.stderr)
	}
	run(t, env, "suppressions", "list", "--json").want(t, 0, `"reason": "manual"`)
	if got, want := asked(), "GET /v1/suppressions"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

func TestAddressesAreSuppressedAndLiftedByCommand(t *testing.T) {
	env, asked := canned(t, 200, `{"items":[`+suppressedItem+`]}`)
	run(t, env, "suppressions", "add", "sms", "+14155550100", "--why", "asked by phone").want(t, 0, "sms-3ba1979877547c84abd999c3de4bfa9a   manual")
	if got, want := asked(), `POST /v1/suppressions {"channel":"sms","recipient":"+14155550100","why":"asked by phone"}`; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	run(t, env, "suppressions", "add", "sms", "+14155550100", "--why", "x", "--for", "24h", "--json").want(t, 0, `"id": "sms-`)
	if got := asked(); !strings.Contains(got, `"until":"20`) {
		t.Errorf("asked %s", got)
	}
	env, asked = canned(t, 204, "")
	run(t, env, "suppressions", "lift", "sms-3ba1979877547c84abd999c3de4bfa9a", "--why", "asked again").want(t, 0, "sms-3ba1979877547c84abd999c3de4bfa9a: lifted")
	if got, want := asked(), "DELETE /v1/suppressions/sms-3ba1979877547c84abd999c3de4bfa9a?why=asked+again"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	env, _ = canned(t, 404, `{"status":404,"code":"not_found","detail":"There is no such thing."}`)
	run(t, env, "suppressions", "lift", "sms-1", "--why", "x").want(t, 1, "answered 404 (not_found)")
}

func TestChangesOfTheSuppressionListAreListedByCommand(t *testing.T) {
	env, asked := canned(t, 200, `{"items":[{"at":"2026-12-01T08:00:00Z","action":"lifted","id":"sms-3b","channel":"sms","reason":"stop","source":"twilio-main","until":null,"why":"start"}]}`)
	run(t, env, "suppressions", "history", "--recipient", "+14155550100").want(t, 0, "2026-12-01T08:00:00Z   lifted   sms-3b   stop     twilio-main   -       -    start")
	if got, want := asked(), "GET /v1/suppressions/history?recipient=%2B14155550100"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
}

func TestMistakesInSuppressionCommandsAreToldBeforeTheServiceIsAsked(t *testing.T) {
	env, asked := canned(t, 200, "{}")
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"add", "sms", "--why", "x"}, "takes a channel"},
		{[]string{"add", "voice", "+14155550100", "--why", "x"}, "takes a channel"},
		{[]string{"add", "sms", "+14155550100"}, "--why must be given"},
		{[]string{"add", "sms", "+14155550100", "--why", "x", "--until", "soon"}, "--until must be an RFC 3339 time"},
		{[]string{"add", "sms", "+14155550100", "--why", "x", "--for", "-1h"}, "--for must not be negative"},
		{[]string{"lift", "--why", "x"}, "takes one id"},
		{[]string{"lift", "sms-1"}, "--why must be given"},
	} {
		run(t, env, append([]string{"suppressions"}, c.args...)...).want(t, 2, c.says)
	}
	if got := asked(); got != "" {
		t.Errorf("asked %s", got)
	}
}
