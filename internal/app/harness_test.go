package app_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/notification-dispatcher/dispatcher/internal/app"
	"github.com/notification-dispatcher/dispatcher/internal/config"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

// cluster is two processes on one database: an operator asks one that only
// answers, the calls are the other one's.
type cluster struct {
	t       *testing.T
	sandbox *sandbox.Server
	front   *app.App
	back    *app.App
	key     string
	log     log // of both
}

// log keeps what a process says.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// lines are those that hold a text.
func (l *log) lines(with string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []string
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, with) {
			out = append(out, line)
		}
	}
	return out
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{t: t}
	var err error
	if c.sandbox, err = sandbox.New(sandbox.Config{}); err != nil {
		t.Fatal(err)
	}
	c.sandbox.Start(t.Context())
	t.Cleanup(func() { _ = c.sandbox.Close() })
	env := config.ParseEnv([]string{
		"DATABASE_URL=" + pgtest.URL(t), "DISPATCHER_HTTP_LISTEN=127.0.0.1:0", "DISPATCHER_DATABASE_MAX_CONNECTIONS=8",
	})
	cfg, err := config.Load(c.configure(), env, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.front, c.back = c.start(cfg, app.ModeAPI, &c.log), c.start(cfg, app.ModeWorker, &c.log)
	secret, _, err := c.front.Store().CreateKey(t.Context(), "default", "on call", []string{"send", "read", "admin"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	c.key = secret
	return c
}

// configure writes a configuration whose every account is the sandbox's.
func (c *cluster) configure() string {
	c.t.Helper()
	text, err := config.Example(config.ExampleOptions{Sandbox: c.sandbox.HTTPURL(), SMTP: c.sandbox.SMTPAddr()})
	if err != nil {
		c.t.Fatal(err)
	}
	var file map[string]any
	if err := yaml.Unmarshal(text, &file); err != nil {
		c.t.Fatal(err)
	}
	if text, err = yaml.Marshal(file); err != nil {
		c.t.Fatal(err)
	}
	path := filepath.Join(c.t.TempDir(), "dispatcher.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

func (c *cluster) start(cfg config.Config, mode app.Mode, log io.Writer) *app.App {
	c.t.Helper()
	a, err := app.New(app.Options{Config: cfg, Mode: mode, Version: "test", Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(c.t.Context()))
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	c.t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			c.t.Errorf("run: %v", err)
		}
	})
	return a
}

// at makes a request of a process and returns the answer.
func (c *cluster) at(a *app.App, method, path, body string, status int) []byte {
	c.t.Helper()
	r, err := http.NewRequestWithContext(c.t.Context(), method, "http://"+a.Addr().String()+path, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		c.t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // read to its end
	answer, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		c.t.Fatalf("%s %s: %d %v %s", method, path, resp.StatusCode, err, answer)
	}
	return answer
}

// ask makes a request of the process that only answers.
func (c *cluster) ask(method, path, body string, status int, into any) {
	c.t.Helper()
	answer := c.at(c.front, method, path, body, status)
	if into == nil {
		return
	}
	if err := json.Unmarshal(answer, into); err != nil {
		c.t.Fatalf("%v in %s", err, answer)
	}
}

func (c *cluster) post(path, body string) {
	c.t.Helper()
	c.ask(http.MethodPost, path, body, http.StatusOK, nil)
}

// send accepts a notification and returns its id.
func (c *cluster) send(to string) string {
	c.t.Helper()
	var v struct {
		ID string `json:"id"`
	}
	c.ask(http.MethodPost, "/v1/notifications", to, http.StatusAccepted, &v)
	return v.ID
}

// waits reports whether a notification waits for the reason.
func (c *cluster) waits(id, reason string) bool {
	c.t.Helper()
	var v struct {
		Waiting *struct {
			Reason string `json:"reason"`
		} `json:"waiting"`
	}
	c.ask(http.MethodGet, "/v1/notifications/"+id, "", http.StatusOK, &v)
	return v.Waiting != nil && v.Waiting.Reason == reason
}

// calls are when the providers were called.
func (c *cluster) calls() []time.Time {
	var out []time.Time
	for _, m := range c.sandbox.Messages(sandbox.Filter{}) {
		out = append(out, m.ReceivedAt)
	}
	return out
}

func (c *cluster) eventually(what string, cond func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(60 * time.Second); !cond(); {
		if time.Now().After(deadline) {
			c.t.Fatalf("not in time: %s", what)
		}
		select {
		case <-c.t.Context().Done():
			c.t.Fatal("test ended")
		case <-time.After(20 * time.Millisecond):
		}
	}
}
