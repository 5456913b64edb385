//go:build unix

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// output is what a process has written so far.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// find returns the first match and its groups, nil for none.
func (o *output) find(pattern *regexp.Regexp) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return pattern.FindStringSubmatch(o.text.String())
}

// process is a running program.
type process struct {
	cmd            *exec.Cmd
	stdout, stderr output
	ended          chan struct{} // closed at the end; the exit code is known then
}

// command is what a process is started with.
type command struct {
	args  []string
	env   []string // beside what every program needs
	dir   string
	stdin string
}

// start starts the program. The test's end ends it, and so does the end of the
// tests' own time: a panic over it would leave processes behind.
func start(t *testing.T, c command) *process {
	t.Helper()
	ctx := t.Context()
	if deadline, ok := t.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-2*time.Second))
		t.Cleanup(cancel)
	}
	p := &process{cmd: exec.CommandContext(ctx, program, c.args...), ended: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdin = c.dir, strings.NewReader(c.stdin)
	p.cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.Getenv("HOME")}, c.env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	// A group of its own, as a shell gives it: Ctrl-C reaches all of it.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(p.ended); _ = p.cmd.Wait() }()
	t.Cleanup(func() { p.end(t) })
	return p
}

// end kills what still runs and looks for what no process may ever print.
func (p *process) end(t *testing.T) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // a stopped one would keep its connections
	_ = p.cmd.Process.Kill()
	<-p.ended
	log := p.stderr.String()
	for _, never := range []string{"WARNING: DATA RACE", "panic:", "panicked", "fatal error:", "result lost"} {
		if strings.Contains(log, never) {
			t.Errorf("%s printed %q", p, never)
		}
	}
	if t.Failed() {
		t.Logf("%s wrote:\n%s\n%s", p, tail(p.stdout.String()), tail(log))
	}
}

// String names the process in messages.
func (p *process) String() string {
	return filepath.Base(program) + " " + strings.Join(p.cmd.Args[1:], " ")
}

func tail(text string) string {
	const most = 4000
	if len(text) > most {
		return "…" + text[len(text)-most:]
	}
	return text
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("signal %s: %v", p, err)
	}
}

// running reports whether the process has not ended.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// exit waits for the end and returns the exit code, -1 for a signal's.
func (p *process) exit(t *testing.T, within time.Duration) int {
	t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(onBusy(within)):
		t.Fatalf("%s has not ended within %s", p, onBusy(within))
		return 0
	}
}

// said waits until the pattern is in what the process writes, and returns the
// match and its groups. It fails at once when the process ends without it.
func (p *process) said(t *testing.T, o *output, within time.Duration, pattern string) []string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	eventually(t, within, p.String()+" prints "+pattern, func() bool {
		ended := !p.running()
		found = o.find(re)
		if found == nil && ended {
			t.Fatalf("%s ended before it printed %s", p, pattern)
		}
		return found != nil
	})
	return found
}

// result is what a command that has ended leaves.
type result struct {
	code           int
	stdout, stderr string
}

// run runs the program to its end.
func run(t *testing.T, c command) result {
	t.Helper()
	p := start(t, c)
	code := p.exit(t, time.Minute)
	return result{code: code, stdout: p.stdout.String(), stderr: p.stderr.String()}
}

// want fails unless the exit code is this one and the output has these texts.
func (r result) want(t *testing.T, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d; it wrote:\n%s\n%s", r.code, code, tail(r.stdout), tail(r.stderr))
	}
	for _, text := range texts {
		if !strings.Contains(r.stdout+r.stderr, text) {
			t.Errorf("it did not print %q but:\n%s\n%s", text, tail(r.stdout), tail(r.stderr))
		}
	}
}

// exists reports whether there is a process with that id.
func exists(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }
