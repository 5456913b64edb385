//go:build unix

package e2e_test

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/localpg"
	"github.com/notification-dispatcher/dispatcher/internal/sandbox"
)

func TestDevGivesEverythingAndKeepsIt(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	d := startDev(t, folder)

	var accepted struct{ ID string }
	d.shell(t, d.said(t, &d.stdout, time.Second, `(?s)\n(curl .*?\}')\n`)[1], &accepted)
	var sent notification
	eventually(t, patience, "all six steps are sent", func() bool {
		sent = d.show(t, accepted.ID)
		return sent.FinishedAt != nil
	})
	d.wantAllChannels(t, sent)
	watched := d.shell(t, d.said(t, &d.stdout, time.Second, `(?s)\n(\S+ send --url .*?)\n\n`)[1], nil)
	for _, line := range []string{"push +failed", "sms +(sent|delivered)", "= +(sent|delivered)"} { // it does not wait for the receipt
		if !regexp.MustCompile(line).MatchString(watched) {
			t.Errorf("the printed send command does not show %q but:\n%s", line, watched)
		}
	}
	eventually(t, patience, "the receipt of its SMS comes back", func() bool {
		var list struct{ Items []notification }
		got, err := d.call(t, http.MethodGet, "/v1/notifications?limit=1", "", nil)
		if err == nil {
			err = json.Unmarshal(got.body, &list)
		}
		return err == nil && len(list.Items) == 1 && list.Items[0].Status == "delivered"
	})
	d.stop(t, folder)

	again := startDev(t, folder)
	if again.key != d.key {
		t.Error("the second run has another key")
	}
	if kept := again.show(t, accepted.ID); kept.Status != "sent" || len(kept.Steps) != 6 {
		t.Errorf("the second run shows the first one's notification as %+v", kept)
	}
	again.stop(t, folder)
}

// dev is a running dispatcher dev.
type dev struct {
	node
	folder, sandbox string
}

func startDev(t *testing.T, folder string) *dev {
	t.Helper()
	if os.Getenv("CI") == "" {
		// Asked as dev asks: Debian's programs are not in PATH.
		cluster, err := localpg.Start(t.Context(), localpg.Config{})
		if errors.Is(err, localpg.ErrNoPrograms) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := cluster.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	p := start(t, command{
		args: []string{"dev", "--listen", "127.0.0.1:0", "--sandbox-listen", "127.0.0.1:0", "--smtp-listen", "127.0.0.1:0"}, dir: folder,
	})
	p.said(t, &p.stdout, patience, "Ctrl-C stops everything") // initdb may take more than 30 s on a busy machine
	key, err := os.ReadFile(filepath.Join(folder, ".dispatcher", "key"))
	if err != nil {
		t.Fatal(err)
	}
	d := &dev{node: node{process: p, key: strings.TrimSpace(string(key))}, folder: folder}
	d.url = p.said(t, &p.stdout, time.Second, `API +(http://\S+)`)[1]
	d.sandbox = p.said(t, &p.stdout, time.Second, `Sandbox +(http://\S+)/sandbox/`)[1]
	if printed := p.said(t, &p.stdout, time.Second, `Key +(\S+)`)[1]; printed != d.key {
		t.Errorf("it prints the key %q, and its file has another", printed)
	}
	return d
}

// shell runs what dev printed, as it stands there, and reads its output as JSON
// where asked.
func (d *dev) shell(t *testing.T, line string, into any) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", line)
	cmd.Dir = d.folder
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+os.Getenv("PATH"))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s\n%v: %s", line, err, out)
	}
	if into == nil {
		return string(out)
	}
	if err := json.Unmarshal(out, into); err != nil {
		t.Fatalf("%s\nprinted %s: %v", line, out, err)
	}
	return string(out)
}

func (d *dev) wantAllChannels(t *testing.T, sent notification) {
	t.Helper()
	for _, s := range sent.Steps {
		if s.Status != "sent" && s.Status != "delivered" {
			t.Errorf("step %s is %s because %s", s.Channel, s.Status, s.Because)
		}
	}
	resp, err := client.Get(d.sandbox + "/sandbox/messages")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var received struct{ Items []sandbox.Message }
	if err := json.NewDecoder(resp.Body).Decode(&received); err != nil {
		t.Fatal(err)
	}
	var channels []string
	for _, m := range received.Items {
		channels = append(channels, m.Channel)
		if !strings.Contains(m.Text, "api: 3 of 5 pods are down") {
			t.Errorf("%s received %q", m.Channel, m.Text)
		}
	}
	slices.Sort(channels)
	if got, want := strings.Join(channels, " "), "email push slack sms webhook whatsapp"; got != want {
		t.Errorf("the sandbox received messages for %q, want %q", got, want)
	}
}

// stop presses Ctrl-C, which reaches the whole process group.
func (d *dev) stop(t *testing.T, folder string) {
	t.Helper()
	pidFile := filepath.Join(folder, ".dispatcher", "pg", "data", "postmaster.pid")
	text, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	postmaster, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(-d.cmd.Process.Pid, syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := d.exit(t, time.Minute); code != 0 {
		t.Errorf("after Ctrl-C the exit code is %d", code)
	}
	if exists(postmaster) {
		t.Error("PostgreSQL still runs")
	}
	if _, err := os.Stat(pidFile); err == nil {
		t.Error("PostgreSQL left its postmaster.pid: it was not shut down cleanly")
	}
}

func TestDevSaysInOneSentenceThatAPortIsBusy(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = busy.Close() })
	for _, flag := range []string{"--listen", "--sandbox-listen", "--smtp-listen"} {
		t.Run(flag, func(t *testing.T) {
			t.Parallel()
			args := []string{"dev"}
			for _, f := range []string{"--listen", "--sandbox-listen", "--smtp-listen"} {
				address := "127.0.0.1:0"
				if f == flag {
					address = busy.Addr().String()
				}
				args = append(args, f, address)
			}
			folder := t.TempDir()
			r := run(t, command{args: args, dir: folder})
			r.want(t, 1, busy.Addr().String(), "another program listens there; "+flag+" chooses another")
			if !regexp.MustCompile(`^dispatcher: [^\n]+\n$`).MatchString(r.stderr) || r.stdout != "" {
				t.Errorf("it printed more than a sentence:\n%s\n%s", r.stdout, r.stderr)
			}
			if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
		})
	}
}

func TestServeOnABusyPortFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	first := c.serve(t)
	r := run(t, command{args: []string{"serve", "--listen", strings.TrimPrefix(first.url, "http://")}, env: c.env()})
	r.want(t, 1, "listen", "address already in use")
	if got, err := first.call(t, http.MethodGet, "/readyz", "", nil); err != nil || got.status != http.StatusOK {
		t.Errorf("the first process then answers %d, %v", got.status, err)
	}
}
