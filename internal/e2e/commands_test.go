//go:build unix

package e2e_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

func TestAPIAndWorkerAreTwoProcesses(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	api, worker := c.serve(t, "--mode=api"), c.serve(t, "--mode=worker")
	if v := api.finished(t, api.post(t, c.message(0))); v.Status != "sent" {
		t.Errorf("it ended as %+v", v)
	}
	for path, want := range map[string]int{"/v1/notifications": http.StatusNotFound, "/livez": http.StatusOK, "/metrics": http.StatusOK} {
		if got, err := worker.call(t, http.MethodGet, path, "", nil); err != nil || got.status != want {
			t.Errorf("the worker answers %s with %d, %v, want %d", path, got.status, err, want)
		}
	}
	// Without its worker the API goes on accepting, and nothing is sent.
	worker.signal(t, syscall.SIGTERM)
	if code := worker.exit(t, 20*time.Second); code != 0 {
		t.Errorf("the worker's exit code is %d", code)
	}
	id := api.post(t, c.message(1))
	if v := api.show(t, id); v.Status != "queued" {
		t.Errorf("without a worker it is %+v, want queued", v)
	}
	c.serve(t, "--mode=worker")
	if v := api.finished(t, id); v.Status != "sent" {
		t.Errorf("with a worker again it ended as %+v", v)
	}
}

func TestOnHoldNothingIsSent(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	held := c.serve(t, "--hold")
	id := held.post(t, c.message(0))
	// A few beats later it has had time to do what it should not.
	first := c.lastBeat(t, held)
	eventually(t, 10*time.Second, "the node's heart beats", func() bool { return c.lastBeat(t, held).Sub(first) > 2*time.Second })
	if v := held.show(t, id); v.Status != "queued" || len(v.Steps[0].Attempts) != 0 {
		t.Errorf("on hold it is %+v, want queued", v)
	}
	if got := c.received(""); len(got) != 0 {
		t.Errorf("on hold the sandbox received %+v", got)
	}
	c.serve(t)
	if v := held.finished(t, id); v.Status != "sent" {
		t.Errorf("with a node that is not on hold it ended as %+v", v)
	}
}

func (c *cluster) lastBeat(t *testing.T, n *node) time.Time {
	t.Helper()
	var at time.Time
	if err := c.pool.QueryRow(t.Context(), "select beat_at from dispatcher.nodes where id = $1", n.id).Scan(&at); err != nil {
		t.Fatal(err)
	}
	return at
}

func TestHangupTakesOverAChangedSecretFile(t *testing.T) {
	t.Parallel()
	const oldSecret, newSecret = "whsec_MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDA=", "whsec_MTExMTExMTExMTExMTExMTExMTExMTExMTExMTExMTE="
	c := newCluster(t)
	secretFile := filepath.Join(c.folder, "secret")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(secretFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.configure(t, func(a account) {
		if a["name"] == "webhook-main" {
			a["secrets"] = []any{account{"file": secretFile}}
		}
	})
	write(oldSecret + "\n")
	n := c.serve(t)
	n.wantSigned(t, c, oldSecret)

	write("no secret at all")
	n.signal(t, syscall.SIGHUP)
	n.said(t, &n.stderr, 5*time.Second, `"msg":"configuration not reloaded","path":"channels.webhook.accounts\[0\].secrets`)
	n.wantSigned(t, c, oldSecret)

	write(newSecret + "\n")
	n.signal(t, syscall.SIGHUP)
	n.said(t, &n.stderr, 5*time.Second, `"msg":"configuration reloaded"`)
	n.wantSigned(t, c, newSecret)
	for _, secret := range []string{oldSecret, newSecret, "no secret at all"} {
		if strings.Contains(n.stderr.String(), secret) {
			t.Error("a secret is in the log")
		}
	}
}

// wantSigned sends to a webhook and checks whose signature the call has.
func (n *node) wantSigned(t *testing.T, c *cluster, secret string) {
	t.Helper()
	v := n.finished(t, n.post(t, object{
		"to": object{"webhook": c.address("webhook", 0)}, "chain": []object{{"channel": "webhook"}}, "content": object{"body": "x"},
	}))
	if v.Status != "delivered" {
		t.Fatalf("it ended as %+v", v)
	}
	calls := c.received("webhook")
	last := calls[len(calls)-1]
	header := http.Header{}
	for name, value := range last.Headers {
		header.Set(name, value)
	}
	checker, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := checker.Verify([]byte(last.Body), header); err != nil {
		t.Errorf("the call is not signed with the secret: %v", err)
	}
}

func TestHealthcheckTellsByItsExitCode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.serve(t)
	run(t, command{args: []string{"healthcheck", "--url", n.url + "/readyz"}}).want(t, 0)
	address := strings.TrimPrefix(n.url, "http://")
	run(t, command{args: []string{"healthcheck"}, env: []string{"DISPATCHER_HTTP_LISTEN=" + address}}).want(t, 0)
	run(t, command{args: []string{"healthcheck", "--url", n.url + "/nowhere"}}).want(t, 1, "not ready", "404")
	n.signal(t, syscall.SIGTERM)
	n.exit(t, 20*time.Second)
	run(t, command{args: []string{"healthcheck", "--url", n.url + "/readyz"}}).want(t, 1, "not reachable")
}

func TestServeWaitsForItsSchema(t *testing.T) {
	t.Parallel()
	empty := pgtest.Empty(t)
	env := []string{"DATABASE_URL=" + empty}
	run(t, command{args: []string{"migrate", "status"}, env: env}).want(t, 1, "out of date; run `dispatcher migrate up`")

	c := &cluster{database: empty}
	n := c.begin(t)
	n.await(t, "/readyz", http.StatusServiceUnavailable)
	run(t, command{args: []string{"migrate", "up"}, env: env}).want(t, 0, "migrated from schema 0")
	run(t, command{args: []string{"migrate", "status"}, env: env}).want(t, 0, "current")
	n.await(t, "/readyz", http.StatusOK)
}

func TestServeMigratesWhereAsked(t *testing.T) {
	t.Parallel()
	c := &cluster{database: pgtest.Empty(t)}
	nodes := []*node{c.begin(t, "--migrate"), c.begin(t, "--migrate")} // both at once
	for _, n := range nodes {
		n.await(t, "/readyz", http.StatusOK)
	}
}

func TestAKeyIsMadeAsJSONAndOpensTheAPI(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	n := c.serve(t)
	r := run(t, command{args: []string{"keys", "create", "--project", "shop", "--scopes", "send", "--json"}, env: c.env()})
	r.want(t, 0)
	var made struct{ ID, Key, Project string }
	if err := json.Unmarshal([]byte(r.stdout), &made); err != nil || made.Project != "shop" {
		t.Fatalf("keys create --json prints %s, %v", r.stdout, err)
	}
	shop := *n
	shop.key = made.Key
	id := shop.post(t, c.message(0))
	if got, err := n.call(t, http.MethodGet, "/v1/notifications/"+id, "", nil); err != nil || got.status != http.StatusNotFound {
		t.Errorf("another project's key sees it: %d, %v", got.status, err)
	}
	run(t, command{args: []string{"keys", "revoke", made.ID}, env: c.env()}).want(t, 0, "revoked")
	eventually(t, 3*time.Second, "the revoked key is refused", func() bool {
		got, err := shop.call(t, http.MethodPost, "/v1/notifications", "", []byte("{}"))
		return err == nil && got.status == http.StatusUnauthorized
	})
}

func TestSendAndWatchTellTheEndByTheirExitCode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, quick)
	n := c.serve(t)
	env := []string{"DISPATCHER_URL=" + n.url, "DISPATCHER_KEY=" + n.key}

	sent := run(t, command{env: env, args: []string{
		"send", "--to-push", "fcm:unregistered", "--to-sms", "+14155550100", "--body", "Hello", "--watch",
	}})
	sent.want(t, 0, "push      failed", "fcm-main answered recipient_rejected (UNREGISTERED)", "sms       sent", "=         sent")
	wantPlain(t, sent)
	failed := run(t, command{env: env, args: []string{"send", "--to-email", "bounce@sandbox.test", "--title", "t", "--body", "b", "--watch"}})
	failed.want(t, 1, "email     failed", "recipient_rejected", "=         failed")
	wantPlain(t, failed)
	run(t, command{env: env, args: []string{"send", "--to-sms", "4155550100", "--body", "b"}}).want(t, 1, "the service answered 422", "/to/sms")

	piped := run(t, command{
		env: env, args: []string{"send", "--file", "-", "--json"}, stdin: `{"to":{"sms":"+14155550100"},"content":{"body":"x"}}`,
	})
	piped.want(t, 0)
	var accepted struct{ ID string }
	if err := json.Unmarshal([]byte(piped.stdout), &accepted); err != nil {
		t.Fatalf("send --json prints %s: %v", piped.stdout, err)
	}
	watched := run(t, command{env: env, args: []string{"watch", accepted.ID}})
	watched.want(t, 0, "sms       sent")
	wantPlain(t, watched)
	run(t, command{env: env, args: []string{"watch", "01937f00-0000-7000-8000-00000000dead"}}).want(t, 1, "404")
}

// wantPlain checks that output in a pipe is lines, and that each tells the time.
func wantPlain(t *testing.T, r result) {
	t.Helper()
	line := regexp.MustCompile(`^\d\d:\d\d:\d\d  (push|sms|whatsapp|email|slack|webhook|=) +[a-z_]+`)
	for text := range strings.Lines(r.stdout) {
		if !line.MatchString(text) || strings.ContainsRune(text, '\x1b') {
			t.Errorf("a line in a pipe is %q", text)
		}
	}
}

func TestSandboxAndExampleMakeAClusterByHand(t *testing.T) {
	t.Parallel()
	s := start(t, command{args: []string{"sandbox", "--listen", "127.0.0.1:0", "--smtp-listen", "127.0.0.1:0"}})
	at := s.said(t, &s.stdout, 10*time.Second, `sandbox at (http://\S+)/sandbox/, SMTP at (\S+)`)
	c := &cluster{database: pgtest.URL(t), config: filepath.Join(t.TempDir(), "dispatcher.yaml")}
	run(t, command{args: []string{"config", "example", "--sandbox", at[1], "--smtp", at[2], "--output", c.config}}).want(t, 0)
	run(t, command{args: []string{"config", "check", c.config}, env: c.env()}).want(t, 0, "The configuration is fine.", "twilio-main")
	key := run(t, command{args: []string{"keys", "create"}, env: c.env()})
	key.want(t, 0)
	c.key = strings.TrimSpace(key.stdout)
	n := c.serve(t)
	v := n.finished(t, n.post(t, object{
		"to": object{"email": "ana@example.com"}, "content": object{"title": "Hello", "body": "x"},
	}))
	resp, err := client.Get(at[1] + "/sandbox/messages?provider=smtp")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var received struct{ Items []sandbox.Message }
	if err := json.NewDecoder(resp.Body).Decode(&received); err != nil {
		t.Fatal(err)
	}
	if v.Status != "sent" || len(received.Items) != 1 || received.Items[0].Title != "Hello" {
		t.Errorf("it ended as %+v, and the sandbox received %+v", v, received.Items)
	}
	s.signal(t, syscall.SIGINT)
	if code := s.exit(t, 10*time.Second); code != 0 {
		t.Errorf("the sandbox's exit code is %d", code)
	}
}
