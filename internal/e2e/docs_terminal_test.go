//go:build unix

package e2e_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
)

// terminal is a shell in the folder of a running dev, in which the addresses that
// documents name are those of the test.
type terminal struct {
	t        *testing.T
	folder   string
	cmd      *exec.Cmd
	stdin    io.Writer
	ended    *bufio.Reader     // a line for each script that has ended
	real     map[string]string // by the address in the document
	database string            // what postgres://… stands for, empty until it is asked for
	scripts  int
}

// limit is how long a command of a document may take, also on a busy machine.
const limit = 30 * time.Second

// prelude goes before a document's first command. Every command that fails is
// noted, as if each were looked at. What `make run` prints is what the dev printed
// that runs already.
const prelude = `
set -E -o pipefail
trap : INT
trap '_failed=${_failed:-exit code $? of $BASH_COMMAND}' ERR
make() {
  case "$*" in
    run) command make -n -C "$SOURCE" run | grep 'bin/dispatcher dev' >/dev/null && cat dev.out ;;
    *) command make "$@" ;;
  esac
}
`

func newTerminal(t *testing.T, d *dev, service string) *terminal {
	t.Helper()
	sandbox, smtp := strings.TrimPrefix(d.sandbox, "http://"), d.said(t, &d.stdout, time.Second, `SMTP at ([0-9.:]+)`)[1]
	term := &terminal{t: t, folder: d.folder, real: map[string]string{
		"127.0.0.1:8080": strings.TrimPrefix(service, "http://"), "127.0.0.1:8090": sandbox, "127.0.0.1:8025": smtp,
	}}
	source, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	printed := strings.ReplaceAll(d.stdout.String(), strings.TrimPrefix(d.url, "http://"), term.real["127.0.0.1:8080"])
	if err := os.MkdirAll(filepath.Join(d.folder, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := term.write("dev.out", printed); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"bin/dispatcher": program, "examples": filepath.Join(source, "examples")} {
		if err := os.Symlink(to, filepath.Join(d.folder, name)); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	database, err := os.ReadFile(filepath.Join(d.folder, ".dispatcher", "database"))
	if err != nil {
		t.Fatal(err)
	}
	term.start([]string{
		"PATH=" + filepath.Join(d.folder, "bin") + ":" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "SOURCE=" + source,
		"DISPATCHER_URL=" + service, "DISPATCHER_KEY=" + d.key, "DATABASE_URL=" + strings.TrimSpace(string(database)),
		"DISPATCHER_HTTP_LISTEN=127.0.0.1:0", "LC_ALL=C.UTF-8",
	})
	return term
}

func (term *terminal) start(env []string) {
	term.t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		term.t.Fatal(err)
	}
	cmd := exec.CommandContext(term.t.Context(), "bash", "--norc", "--noprofile")
	cmd.Dir, cmd.Env, cmd.ExtraFiles = term.folder, env, []*os.File{writer}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if term.stdin, err = cmd.StdinPipe(); err != nil {
		term.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		term.t.Fatal(err)
	}
	_ = writer.Close()
	term.cmd, term.ended = cmd, bufio.NewReader(reader)
	term.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with what runs in the background
		_ = cmd.Wait()
		_ = reader.Close()
	})
	if _, err := io.WriteString(term.stdin, prelude); err != nil {
		term.t.Fatal(err)
	}
}

func (term *terminal) write(name, text string) (string, error) {
	path := filepath.Join(term.folder, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// ran is what became of a script.
type ran struct {
	code    int    // of its last command
	failed  string // the first command that failed, empty for none
	printed string
}

var address = regexp.MustCompile(`127\.0\.0\.1:\d{4,5}\b`)

// run runs a script to its end, or interrupts it as soon as what it has printed is
// enough.
func (term *terminal) run(text string, enough func(printed string) error) (ran, error) {
	text, err := term.here(text)
	if err != nil {
		return ran{}, err
	}
	if err := placeholders(text); err != nil {
		return ran{}, err
	}
	term.scripts++
	script, err := term.write(fmt.Sprintf("script-%d", term.scripts), text+"\n")
	if err != nil {
		return ran{}, err
	}
	if _, err := fmt.Fprintf(term.stdin, `_failed=; . %s >%s.out 2>&1 </dev/null; echo "$? $_failed" | tr '\n' ' ' >&3; echo >&3`+"\n", script, script); err != nil {
		return ran{}, err
	}
	ended := make(chan string, 1)
	go func() {
		line, _ := term.ended.ReadString('\n')
		ended <- line
	}()
	printed := func() string {
		b, _ := os.ReadFile(script + ".out")
		return term.there(string(b))
	}
	missing := errors.New("and nothing ends it")
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case line := <-ended:
			code, failed, _ := strings.Cut(strings.TrimSpace(line), " ")
			n, err := strconv.Atoi(code)
			if err != nil {
				return ran{}, fmt.Errorf("the shell ended: %s", printed())
			}
			return ran{code: n, failed: failed, printed: printed()}, nil
		case <-tick.C:
			if enough == nil {
				continue
			}
			if missing = enough(printed()); missing == nil {
				enough, missing = nil, errors.New("although it was interrupted")
				if err := syscall.Kill(-term.cmd.Process.Pid, syscall.SIGINT); err != nil {
					return ran{}, err
				}
			}
		case <-deadline.C:
			return ran{}, fmt.Errorf("%s\nhas not ended within %s, %w; it printed:\n%s", text, limit, missing, printed())
		}
	}
}

// here puts the test's addresses for the document's.
func (term *terminal) here(text string) (string, error) {
	var failed error
	text = address.ReplaceAllStringFunc(text, func(shown string) string {
		if term.real[shown] == "" {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				failed = err
				return shown
			}
			term.real[shown] = l.Addr().String()
			_ = l.Close()
		}
		return term.real[shown]
	})
	const database = "postgres://…"
	if strings.Contains(text, database) {
		if term.database == "" {
			term.database = pgtest.Empty(term.t)
		}
		text = strings.ReplaceAll(text, database, "'"+term.database+"'")
	}
	return text, failed
}

// there puts the document's addresses for the test's.
func (term *terminal) there(text string) string {
	for shown, real := range term.real {
		_, port, err := net.SplitHostPort(real)
		if err != nil {
			continue
		}
		text = strings.ReplaceAll(text, real, shown)
		text = strings.ReplaceAll(text, url.QueryEscape("127.0.0.1:"+port), url.QueryEscape(shown))
	}
	return text
}
