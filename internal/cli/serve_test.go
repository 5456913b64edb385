package cli_test

import (
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
)

// serve starts serve with a configuration file and waits until it is ready.
func serve(t *testing.T, env []string, args ...string) (p *process, url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, stdout := io.Pipe() // serve prints nothing
	p = background(t, env, stdout, append([]string{"serve", "--listen", address}, args...)...)
	url = "http://" + address
	p.await(t, func() bool { return run(t, nil, "healthcheck", "--url", url+"/readyz").code == 0 })
	return p, url
}

// await asks until ok says yes.
func (p *process) await(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); !ok(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute; the process says: %s", p.log())
		}
	}
}

func newKey(t *testing.T, env []string) string {
	t.Helper()
	var made struct{ Key string }
	r := run(t, env, "keys", "create", "--scopes", "send,read,admin", "--json")
	if err := json.Unmarshal([]byte(r.stdout), &made); err != nil {
		t.Fatalf("%v: %+v", err, r)
	}
	return made.Key
}

const oneAccount = "channels: {webhook: {accounts: [{name: hooks, provider: webhook, secrets: [whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=]}]}}\n"

func TestServeTakesOverNewAccountsAtAHangupAndKeepsTheOldOnesWhereTheyAreWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dispatcher.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(oneAccount)
	env := []string{"DATABASE_URL=" + pgtest.Empty(t), "DISPATCHER_CONFIG=" + file}
	p, url := serve(t, env, "--migrate")
	client := []string{"DISPATCHER_URL=" + url, "DISPATCHER_KEY=" + newKey(t, env)}
	hangup := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	run(t, client, "channels", "list").want(t, 0, "hooks")

	write(strings.Replace(oneAccount, "name: hooks", "name: renamed", 1))
	hangup()
	p.await(t, func() bool { return strings.Contains(run(t, client, "channels", "list").stdout, "renamed") })

	write("channels: {webhook: {accounts: [{name: broken, provider: webhook}]}}\n")
	hangup()
	p.await(t, func() bool { return strings.Contains(p.log(), "channels.webhook.accounts[0].secrets") })
	run(t, client, "channels", "list").want(t, 0, "renamed")
	p.stop(t)
}

func TestServeOnHoldAcceptsAndSendsNothing(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dispatcher.yaml")
	if err := os.WriteFile(file, []byte(oneAccount), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"DATABASE_URL=" + pgtest.URL(t), "DISPATCHER_CONFIG=" + file}
	p, url := serve(t, env, "--hold")
	client := []string{"DISPATCHER_URL=" + url, "DISPATCHER_KEY=" + newKey(t, env)}
	r := run(t, client, "send", "--to-webhook", "https://example.com/hook", "--chain", "webhook", "--body", "x")
	r.want(t, 0, "queued")
	run(t, client, "channels", "list", "--json").want(t, 0, `"queued": 1`)
	p.stop(t)
}

func TestAWorkerServesHealthOnly(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dispatcher.yaml")
	if err := os.WriteFile(file, []byte(oneAccount), 0o600); err != nil {
		t.Fatal(err)
	}
	env := []string{"DATABASE_URL=" + pgtest.URL(t), "DISPATCHER_CONFIG=" + file}
	p, url := serve(t, env, "--mode", "worker")
	run(t, []string{"DISPATCHER_URL=" + url, "DISPATCHER_KEY=" + newKey(t, env)}, "channels", "list").want(t, 1, "answered 404")
	p.stop(t)
}
