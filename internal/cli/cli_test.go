package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/notification-dispatcher/dispatcher/internal/cli"
)

// result is what a command left behind.
type result struct {
	code           int
	stdout, stderr string
}

// run runs a command with an environment of nothing but env.
func run(t *testing.T, env []string, args ...string) result {
	t.Helper()
	return runIn(t, t.Context(), env, "", args...)
}

func runIn(t *testing.T, ctx context.Context, env []string, stdin string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := cli.Run(ctx, cli.Process{
		Args: args, Stdin: strings.NewReader(stdin), Stdout: &stdout, Stderr: &stderr, Env: env, Version: "v1.2.3",
	})
	return result{code, stdout.String(), stderr.String()}
}

// want fails the test unless the command ended with code and its output holds the
// texts.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d\nstdout: %s\nstderr: %s", r.code, code, r.stdout, r.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(r.stdout+r.stderr, text) {
			t.Errorf("the output lacks %q\nstdout: %s\nstderr: %s", text, r.stdout, r.stderr)
		}
	}
}

var commandLine = regexp.MustCompile(`(?m)^  (\S+)\s{3,}\S`)

// commands returns the commands that a help text lists.
func commands(help string) []string {
	_, list, ok := strings.Cut(help, "Commands:\n")
	if !ok {
		return nil
	}
	var out []string
	for _, m := range commandLine.FindAllStringSubmatch(list, -1) {
		out = append(out, m[1])
	}
	return out
}

func TestEveryCommandHasHelp(t *testing.T) {
	n := 0
	var visit func(path []string)
	visit = func(path []string) {
		r := run(t, nil, append(path, "--help")...)
		r.want(t, 0, "Usage: dispatcher")
		if r.stderr != "" {
			t.Errorf("help of %q goes to standard error: %s", path, r.stderr)
		}
		for _, c := range commands(r.stdout) {
			n++
			visit(append(slices.Clip(path), c))
		}
	}
	visit(nil)
	if n < 20 {
		t.Errorf("%d commands were visited, want them all", n)
	}
	if r := run(t, nil, "help", "send"); r.stdout != run(t, nil, "send", "--help").stdout {
		t.Errorf("help send is not send --help: %+v", r)
	}
}

func TestMistakesInTheCommandLineExitWithTwo(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "a command is missing"},
		{[]string{"sned"}, `no command "sned"`},
		{[]string{"migrate"}, "a command is missing"},
		{[]string{"version", "now"}, `takes no argument "now"`},
		{[]string{"version", "--loud"}, "--loud; see dispatcher version --help"},
		{[]string{"serve", "--mode", "some"}, "--mode must be all, api or worker"},
		{[]string{"watch"}, "takes the id of one notification"},
		{[]string{"keys", "revoke", "x"}, "not the id of a key"},
		{[]string{"keys", "limit", "x", "--write", "1/s"}, "not the id of a key"},
		{[]string{"keys", "limit", "01937f00-0000-7000-8000-00000000dead"}, "needs one of"},
		{[]string{"keys", "limit", "01937f00-0000-7000-8000-00000000dead", "--write", "many"}, "must be a rate such as"},
		{[]string{"keys", "limit", "01937f00-0000-7000-8000-00000000dead", "--write", "1/s,0"}, "the burst must be"},
		{[]string{"keys", "limit", "01937f00-0000-7000-8000-00000000dead", "--write", "0/s"}, "the rate must be"},
		{[]string{"keys", "create", "--project", "No Good"}, "--project must be"},
		{[]string{"keys", "create", "--scopes", "send,fly"}, "--scopes must be some of"},
		{[]string{"config", "example", "--sandbox", "http://x"}, "given together"},
		{[]string{"config", "check", "a", "b"}, "takes one file"},
		{[]string{"send", "--body", "x", "--within", "1m"}, "--within needs --chain"},
		{[]string{"send", "--to-push", "token"}, "fcm:TOKEN or apns:TOKEN"},
		{[]string{"send"}, "nothing to send"},
	} {
		run(t, nil, c.args...).want(t, 2, c.says)
	}
}

func TestFlagsMayStandAfterArguments(t *testing.T) {
	file := filepath.Join(t.TempDir(), "empty.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := run(t, []string{"DATABASE_URL=postgres://db"}, "config", "check", file, "--json")
	r.want(t, 0, `"ok": true`)
	run(t, nil, "config", "check", "--", "--json").want(t, 1, "open --json")
}

func TestVersionIsWhatTheProcessWasBuiltAs(t *testing.T) {
	run(t, nil, "version").want(t, 0, "dispatcher v1.2.3 (go1.")
	var v struct{ Version string }
	if err := json.Unmarshal([]byte(run(t, nil, "version", "--json").stdout), &v); err != nil || v.Version != "v1.2.3" {
		t.Errorf("version --json: %+v, %v", v, err)
	}
}

func TestConfigCheckReportsEveryProblemOfFileEnvironmentAndAccounts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad.yaml")
	const text = `
http: {listn: ":1"}
channels:
  sms:
    accounts:
      - {name: main, provider: twilio, account_sid: AC1}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"DISPATCHER_CONFIG=" + file, "DISPATCHER_LOG_LEVEL=loud"}
	says := []string{
		"http.listn (line 2): unknown setting; did you mean listen?", "DISPATCHER_LOG_LEVEL: must be one of",
		"database.url: must be given", "channels.sms.accounts[0].account_sid (line 6): must be AC", "channels.sms.accounts[0].auth_token: is required",
	}
	run(t, env, "config", "check").want(t, 1, says...)
	run(t, env, "serve").want(t, 1, says...)

	var out struct {
		OK       bool
		Problems []struct{ Path, Text string }
	}
	r := run(t, env, "config", "check", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil || r.code != 1 || out.OK || len(out.Problems) < 5 {
		t.Errorf("config check --json: exit code %d, %+v, %v", r.code, out, err)
	}
}

func TestTheExampleForASandboxIsFine(t *testing.T) {
	r := run(t, nil, "config", "example", "--sandbox", "http://127.0.0.1:8090", "--smtp", "127.0.0.1:8025")
	r.want(t, 0)
	file := filepath.Join(t.TempDir(), "sandbox.yaml")
	if err := os.WriteFile(file, []byte(r.stdout), 0o600); err != nil {
		t.Fatal(err)
	}
	run(t, []string{"DATABASE_URL=postgres://db"}, "config", "check", file).want(t, 0, "The configuration is fine.", "fcm-main", "webhook-main")
	again := filepath.Join(t.TempDir(), "again.yaml")
	run(t, nil, "config", "example", "--sandbox", "http://sandbox:8090", "--smtp", "sandbox:8025", "--output", again).want(t, 0)
	if info, err := os.Stat(again); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("--output wrote %v, %v; want a file for its owner alone", info, err)
	}
	run(t, []string{"DATABASE_URL=postgres://db"}, "config", "check", again).want(t, 0, "The configuration is fine.")
	run(t, nil, "config", "example", "--sandbox", "127.0.0.1", "--smtp", "x").want(t, 1, "must be an http or https URL")
}

func TestHealthcheckFailsUnlessTheAnswerIsOK(t *testing.T) {
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			status = http.StatusTeapot
		}
		w.WriteHeader(status)
	}))
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	run(t, nil, "healthcheck", "--url", s.URL+"/readyz").want(t, 0)
	run(t, []string{"DISPATCHER_HTTP_LISTEN=:" + port}, "healthcheck").want(t, 0)
	status = http.StatusServiceUnavailable
	run(t, nil, "healthcheck", "--url", s.URL+"/readyz").want(t, 1, "not ready", "503")
	s.Close()
	run(t, nil, "healthcheck", "--url", s.URL+"/readyz").want(t, 1, "not reachable")
}

func TestSandboxSaysPlainlyThatAnAddressIsTaken(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // a test's listener
	run(t, nil, "sandbox", "--listen", l.Addr().String(), "--smtp-listen", "127.0.0.1:0").
		want(t, 1, "the sandbox's address "+l.Addr().String()+" cannot be listened on: another program listens there; --listen chooses another")
}

func TestSandboxServesUntilItIsStopped(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	runIn(t, ctx, nil, "", "sandbox", "--listen", "127.0.0.1:0", "--smtp-listen", "127.0.0.1:0").want(t, 0, "sandbox at http://127.0.0.1:", "/sandbox/")
}

func TestOpenAPIDescribesTheAPI(t *testing.T) {
	run(t, nil, "openapi").want(t, 0, "openapi: 3.1", "/v1/notifications")
}
