package cli_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/cli"
	"github.com/notification-dispatcher/dispatcher/internal/localpg"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
)

// process is a command that runs until it is stopped.
type process struct {
	cancel context.CancelFunc
	done   chan int // receives the exit code

	mu     sync.Mutex
	stderr bytes.Buffer
}

// Write keeps what the process writes to standard error.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(b)
}

func (p *process) log() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()
}

// stop ends the process as Ctrl-C does and checks that it ends well.
func (p *process) stop(t *testing.T) {
	t.Helper()
	p.cancel()
	select {
	case code := <-p.done:
		if code != 0 {
			t.Errorf("exit code %d after a stop, want 0: %s", code, p.log())
		}
	case <-time.After(time.Minute):
		t.Fatalf("still running a minute after the stop: %s", p.log())
	}
}

// background runs a command that prints to stdout.
func background(t *testing.T, env []string, stdout io.WriteCloser, args ...string) *process {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	p := &process{cancel: cancel, done: make(chan int, 1)}
	go func() {
		code := cli.Run(ctx, cli.Process{Args: args, Stdin: strings.NewReader(""), Stdout: stdout, Stderr: p, Env: env, Version: "test"})
		_ = stdout.Close()
		p.done <- code
	}()
	t.Cleanup(func() {
		cancel()
		if t.Failed() {
			t.Log(p.log())
		}
	})
	return p
}

// start runs a command in the background and returns what it printed up to the
// line that holds until.
func start(t *testing.T, env []string, until string, args ...string) (*process, string) {
	t.Helper()
	read, write := io.Pipe()
	p := background(t, env, write, args...)
	var printed strings.Builder
	lines := bufio.NewScanner(read)
	for lines.Scan() {
		printed.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), until) {
			go func() { _, _ = io.Copy(io.Discard, read) }()
			return p, printed.String()
		}
	}
	if os.Getenv("CI") == "" && strings.Contains(p.log(), localpg.ErrNoPrograms.Error()) {
		t.Skip(localpg.ErrNoPrograms.Error())
	}
	t.Fatalf("the process ended (exit code %d) before it said %q: %s", <-p.done, until, p.log())
	return nil, ""
}

var (
	curlCommand = regexp.MustCompile(`(?s)curl -sS (\S+) \\\n  -H '(Authorization: Bearer (dsp_\S+))' -H 'Content-Type: application/json' -d '(.*?)'\n`)
	sandboxPage = regexp.MustCompile(`(http://\S+)/sandbox/`)
)

func devArgs(data string, more ...string) []string {
	return append([]string{
		"dev", "--listen", "127.0.0.1:0", "--sandbox-listen", "127.0.0.1:0", "--smtp-listen", "127.0.0.1:0", "--data", data,
	}, more...)
}

const lastLine = "Ctrl-C stops everything"

// curl makes the request that dev prints.
func curl(t *testing.T, printed string) (id, base, key string) {
	t.Helper()
	m := curlCommand.FindStringSubmatch(printed)
	if m == nil {
		t.Fatalf("no curl command in: %s", printed)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m[1], strings.NewReader(m[4]))
	if err != nil {
		t.Fatal(err)
	}
	name, value, _ := strings.Cut(m[2], ": ")
	req.Header.Set(name, value)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("status %d: %s, %v", resp.StatusCode, body, err)
	}
	id, _ = parse(t, string(body)).(map[string]any)["id"].(string)
	return id, strings.TrimSuffix(m[1], "/v1/notifications"), m[3]
}

func TestTheRequestThatDevPrintsReachesAllSixChannels(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	database := pgtest.Empty(t)
	p, printed := start(t, nil, lastLine, devArgs(data, "--database-url", database)...)
	id, base, key := curl(t, printed)
	env := []string{"DISPATCHER_URL=" + base, "DISPATCHER_KEY=" + key}

	r := run(t, env, "watch", id)
	r.want(t, 0)
	for _, channel := range []string{"push", "sms", "whatsapp", "email", "slack", "webhook"} {
		if !regexp.MustCompile(`(?m)^\S+  ` + channel + ` +(sent|delivered) `).MatchString(r.stdout) {
			t.Errorf("%s was not sent: %s", channel, r.stdout)
		}
	}
	run(t, env, "channels", "list").want(t, 0, "fcm-main", "slack-webhook", "closed")
	run(t, env, "send", "--to-push", "fcm:unregistered-1", "--to-sms", "+14155550100", "--body", "x", "--watch").
		want(t, 0, "push      failed     fcm-main answered recipient_rejected (UNREGISTERED)", "sms       sent")
	run(t, nil, "healthcheck", "--url", base+"/readyz").want(t, 0)

	page := sandboxPage.FindStringSubmatch(printed)
	if page == nil {
		t.Fatalf("no page of the sandbox in: %s", printed)
	}
	run(t, nil, "healthcheck", "--url", page[1]+"/sandbox/").want(t, 0)
	run(t, nil, devArgs(data, "--database-url", database, "--listen", strings.TrimPrefix(base, "http://"))...).
		want(t, 1, "cannot be listened on: another program listens there; --listen chooses another")
	p.stop(t)

	databaseFile := filepath.Join(data, "database")
	if text, err := os.ReadFile(databaseFile); err != nil || strings.TrimSpace(string(text)) != database {
		t.Errorf("the database's file has %q, %v; want %q", text, err, database)
	}
	if info, err := os.Stat(databaseFile); err != nil || info.Mode().Perm() != 0o600 { // its URL may hold a password
		t.Errorf("the database's file: %v, %v; want it for its owner alone", info, err)
	}
	keyFile := filepath.Join(data, "key")
	if info, err := os.Stat(keyFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v, %v; want it for its owner alone", info, err)
	}
	p, printed = start(t, nil, lastLine, devArgs(data, "--database-url", database)...)
	if _, _, again := curl(t, printed); again != key {
		t.Error("a second run made another key although the first still works")
	}
	p.stop(t)

	if err := os.WriteFile(keyFile, []byte("dsp_stale\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p, printed = start(t, nil, lastLine, devArgs(data, "--database-url", database)...)
	if _, _, fresh := curl(t, printed); fresh == key || fresh == "dsp_stale" {
		t.Errorf("the key is %q although the one in the file does not work", fresh)
	}
	p.stop(t)
}

func TestDevKeepsItsOwnDatabase(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	p, printed := start(t, nil, lastLine, devArgs(data)...)
	id, base, key := curl(t, printed)
	run(t, []string{"DISPATCHER_URL=" + base, "DISPATCHER_KEY=" + key}, "watch", id).want(t, 0)
	run(t, nil, devArgs(data)...).want(t, 1, "in use by another process")
	p.stop(t)
	p, printed = start(t, nil, lastLine, devArgs(data)...)
	_, base, again := curl(t, printed)
	if again != key {
		t.Error("the key of the first run is not known to the second")
	}
	run(t, []string{"DISPATCHER_URL=" + base, "DISPATCHER_KEY=" + again}, "watch", id).want(t, 0)
	p.stop(t)
}
