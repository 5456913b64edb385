//go:build unix

package e2e_test

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// cluster is what nodes share: a database, the providers' stand-ins, and a
// configuration that points every account at them.
type cluster struct {
	database string
	pool     *pgxpool.Pool
	sandbox  *sandbox.Server
	folder   string
	config   string // the file's path
	key      string // with every scope
}

// account is an account's part of the configuration.
type account = map[string]any

// quick makes an account retry within a test's time.
func quick(a account) {
	a["timeout"] = "2s"
	a["retry"] = account{"base": "20ms", "cap": "200ms", "recipient_base": "20ms", "recipient_cap": "200ms"}
	a["breaker"] = account{"open": "200ms", "max_open": "1s"}
}

// newCluster makes a cluster on a database of its own. tune changes each account.
func newCluster(t *testing.T, tune ...func(account)) *cluster {
	t.Helper()
	return newClusterOn(t, pgtest.URL(t), tune...)
}

// newClusterOn is newCluster on a database that has the schema.
func newClusterOn(t *testing.T, database string, tune ...func(account)) *cluster {
	t.Helper()
	c := &cluster{database: database, folder: t.TempDir()}
	var err error
	if c.pool, err = pgxpool.New(t.Context(), database); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.pool.Close)
	// No receipts unless a test is about them, and no wait for any: sent is the end.
	silence := sandbox.Receipts{Final: sandbox.FinalNone, Repeat: 1}
	if c.sandbox, err = sandbox.New(sandbox.Config{Receipts: &silence}); err != nil {
		t.Fatal(err)
	}
	c.sandbox.Start(t.Context())
	t.Cleanup(func() { _ = c.sandbox.Close() })
	c.config = filepath.Join(c.folder, "dispatcher.yaml")
	c.configure(t, tune...)
	made := run(t, command{args: []string{"keys", "create", "--scopes", "send,read,admin"}, env: c.env()})
	made.want(t, 0)
	c.key = strings.TrimSpace(made.stdout)
	return c
}

// configure writes the configuration file.
func (c *cluster) configure(t *testing.T, tune ...func(account)) {
	t.Helper()
	text, err := config.Example(config.ExampleOptions{Sandbox: c.sandbox.HTTPURL(), SMTP: c.sandbox.SMTPAddr()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c.edit(t, func(file object) {
		for _, channel := range file["channels"].(object) {
			for _, a := range channel.(object)["accounts"].([]any) {
				a.(account)["receipt_window"] = "1s"
				for _, change := range tune {
					change(a.(account))
				}
			}
		}
	})
}

// edit changes the configuration file.
func (c *cluster) edit(t *testing.T, change func(file object)) {
	t.Helper()
	text, err := os.ReadFile(c.config)
	if err != nil {
		t.Fatal(err)
	}
	var file object
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	change(file)
	if text, err = yaml.Marshal(file); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.config, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// env is the environment of a process of the cluster. The small pools let many
// nodes of many tests share one server.
func (c *cluster) env() []string {
	return []string{
		"DATABASE_URL=" + c.database, "DISPATCHER_CONFIG=" + c.config, "DISPATCHER_HTTP_LISTEN=127.0.0.1:0",
		"DISPATCHER_DATABASE_MAX_CONNECTIONS=8",
	}
}

// node is a running serve.
type node struct {
	*process
	id  string // under which it claims deliveries
	url string
	key string
}

// serve starts a node and waits until it is ready.
func (c *cluster) serve(t *testing.T, args ...string) *node {
	t.Helper()
	n := c.begin(t, args...)
	n.await(t, "/readyz", http.StatusOK)
	return n
}

// begin starts a node and waits until it listens.
func (c *cluster) begin(t *testing.T, args ...string) *node {
	t.Helper()
	p := start(t, command{args: append([]string{"serve"}, args...), env: c.env()})
	found := p.said(t, &p.stderr, 20*time.Second, `"msg":"started","listen":"([^"]+)".*"node":"([^"]+)"`)
	return &node{process: p, id: found[2], url: "http://" + found[1], key: c.key}
}

// await waits until a path answers with a status.
func (n *node) await(t *testing.T, path string, status int) {
	t.Helper()
	eventually(t, 20*time.Second, path+" answers "+http.StatusText(status), func() bool {
		got, err := n.call(t, http.MethodGet, path, "", nil)
		return err == nil && got.status == status
	})
}

// answer is what the API answered.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// decode reads the body.
func (a answer) decode(t *testing.T, into any) {
	t.Helper()
	if err := json.Unmarshal(a.body, into); err != nil {
		t.Fatalf("the answer is %s: %v", a.body, err)
	}
}

// client has no more patience than a test.
var client = &http.Client{Timeout: 15 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: 64}}

// call makes a request. An idempotency key is sent where there is one.
func (n *node) call(t *testing.T, method, path, idempotencyKey string, body []byte) (answer, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, n.url+path, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if n.key != "" {
		req.Header.Set("Authorization", "Bearer "+n.key)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if idempotencyKey != "" {
		req.Header.Set("Idempotency-Key", idempotencyKey)
	}
	resp, err := client.Do(req)
	if err != nil {
		return answer{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return answer{status: resp.StatusCode, header: resp.Header, body: text}, err
}

// object is JSON as a test writes it.
type object = map[string]any

func encode(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// post sends a notification and returns its id.
func (n *node) post(t *testing.T, notification object) string {
	t.Helper()
	got, err := n.call(t, http.MethodPost, "/v1/notifications", "", encode(t, notification))
	if err != nil {
		t.Fatal(err)
	}
	if got.status != http.StatusAccepted {
		t.Fatalf("the API answered %d: %s", got.status, got.body)
	}
	var accepted struct{ ID string }
	got.decode(t, &accepted)
	return accepted.ID
}

// notification is what the API shows.
type notification struct {
	ID             string     `json:"id"`
	Status         string     `json:"status"`
	FinishedAt     *time.Time `json:"finished_at"`
	AcknowledgedAt *time.Time `json:"acknowledged_at"`
	Waiting        *waiting   `json:"waiting"`
	Steps          []step     `json:"steps"`
	Timeline       []entry    `json:"timeline"`
}

type entry struct {
	At    time.Time `json:"at"`
	Type  string    `json:"type"`
	Final bool      `json:"final"`
}

type waiting struct {
	Reason string    `json:"reason"`
	Until  time.Time `json:"until"`
}

type step struct {
	Channel        string    `json:"channel"`
	Status         string    `json:"status"`
	Because        string    `json:"because"`
	StartedBecause string    `json:"started_because"`
	Attempts       []attempt `json:"attempts"`
	Receipts       []object  `json:"receipts"`
}

type attempt struct {
	Account           string    `json:"account"`
	N                 int       `json:"n"`
	StartedAt         time.Time `json:"started_at"`
	Outcome           string    `json:"outcome"`
	HTTPStatus        int       `json:"http_status"`
	RetryAfterMS      int       `json:"retry_after_ms"`
	ProviderCode      string    `json:"provider_code"`
	Detail            string    `json:"detail"`
	PossibleDuplicate bool      `json:"possible_duplicate"`
}

func (n *node) show(t *testing.T, id string) notification {
	t.Helper()
	got, err := n.call(t, http.MethodGet, "/v1/notifications/"+id, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if got.status != http.StatusOK {
		t.Fatalf("the API answered %d: %s", got.status, got.body)
	}
	var v notification
	got.decode(t, &v)
	return v
}

// finished waits until a notification has ended.
func (n *node) finished(t *testing.T, id string) notification {
	t.Helper()
	var v notification
	t.Cleanup(func() {
		if t.Failed() && v.FinishedAt == nil {
			t.Logf("notification %s was last seen as %+v", id, v)
		}
	})
	eventually(t, 20*time.Second, "notification "+id+" ends", func() bool {
		v = n.show(t, id)
		return v.FinishedAt != nil
	})
	return v
}
