package email

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/textproto"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// What a scripted server does at one point of a session, beside answering with a
// text of its own.
const (
	drop = "<drop>" // close the connection
	hang = "<hang>" // never answer
)

// script says what to do instead of what a server does that likes everything. Its
// keys are banner, the commands (EHLO, MAIL, …), "." for the end of the data and
// body for its first line.
type script map[string]string

// server is an SMTP server that plays a script for each connection in turn; the
// last one goes on for all that follow.
type server struct {
	tb      testing.TB
	addr    *net.TCPAddr
	scripts []script
	onHang  func()

	mu       sync.Mutex
	conns    int
	commands []string // of all connections
	messages []string
	wg       sync.WaitGroup
	open     map[net.Conn]bool
	changed  chan struct{} // closed and made anew with each command
}

func newServer(tb testing.TB, scripts ...script) *server {
	tb.Helper()
	ln, err := (&net.ListenConfig{}).Listen(tb.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	if len(scripts) == 0 {
		scripts = []script{{}}
	}
	addr, ok := ln.Addr().(*net.TCPAddr)
	if !ok {
		tb.Fatal("not a TCP listener")
	}
	s := &server{tb: tb, addr: addr, scripts: scripts, open: map[net.Conn]bool{}, changed: make(chan struct{})}
	s.wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			sc := s.begin(c)
			s.wg.Go(func() { s.serve(c, sc) })
		}
	})
	tb.Cleanup(func() {
		_ = ln.Close()
		s.mu.Lock()
		for c := range s.open {
			_ = c.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	return s
}

func (s *server) begin(c net.Conn) script {
	s.mu.Lock()
	defer s.mu.Unlock()
	sc := s.scripts[min(s.conns, len(s.scripts)-1)]
	s.conns++
	s.open[c] = true
	return sc
}

func (s *server) look(sc script, at string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sc[at]
}

// change makes the first script go on differently.
func (s *server) change(at, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts[0][at] = line
}

// whenHung has f called when the server reaches a hang.
func (s *server) whenHung(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onHang = f
}

func (s *server) hung() {
	s.mu.Lock()
	f := s.onHang
	s.mu.Unlock()
	if f != nil {
		f()
	}
}

// connections returns how many were accepted.
func (s *server) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.conns
}

func (s *server) note(command string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commands = append(s.commands, command)
	close(s.changed)
	s.changed = make(chan struct{})
}

// await returns when the server has seen a command that begins with prefix.
func (s *server) await(prefix string) {
	s.tb.Helper()
	for {
		s.mu.Lock()
		changed := s.changed
		for _, c := range s.commands {
			if strings.HasPrefix(c, prefix) {
				s.mu.Unlock()
				return
			}
		}
		s.mu.Unlock()
		select {
		case <-changed:
		case <-time.After(patience):
			s.tb.Fatalf("the server saw no %s", prefix)
		}
	}
}

func (s *server) count(prefix string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, c := range s.commands {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}

// serve plays sc on c.
func (s *server) serve(c net.Conn, sc script) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.open, c)
		s.mu.Unlock()
	}()
	text := textproto.NewConn(c)
	answer := func(at, usual string) bool {
		line := s.look(sc, at)
		if line == "" {
			line = usual
		}
		switch line {
		case drop:
			return false
		case hang:
			s.hung()
			_, _ = text.ReadLine() // until the client gives up
			return false
		}
		_, _ = fmt.Fprintf(c, "%s\r\n", line)
		return true
	}
	if !answer("banner", "220 mx.example.com ESMTP") {
		return
	}
	for {
		line, err := text.ReadLine()
		if err != nil {
			return
		}
		s.note(line)
		verb, _, _ := strings.Cut(strings.ToUpper(line), " ")
		usual := map[string]string{
			"EHLO": "250-mx.example.com\r\n250-ENHANCEDSTATUSCODES\r\n250 8BITMIME", "DATA": "354 go ahead", "QUIT": "221 bye",
		}[verb]
		if usual == "" {
			usual = "250 2.0.0 ok"
		}
		if !answer(verb, usual) || verb == "QUIT" {
			return
		}
		if verb == "DATA" && s.look(sc, "DATA") == "" && !s.data(text.R, sc, answer) {
			return
		}
	}
}

func (s *server) data(r *bufio.Reader, sc script, answer func(at, usual string) bool) bool {
	if s.look(sc, "body") != "" {
		_, _ = r.ReadString('\n')
		return answer("body", "")
	}
	b, err := textproto.NewReader(r).ReadDotBytes()
	if err != nil {
		return false
	}
	s.mu.Lock()
	s.messages = append(s.messages, strings.ReplaceAll(string(b), "\n", "\r\n"))
	s.mu.Unlock()
	return answer(".", "250 2.0.0 Ok: queued as 4F1D2A0C3B")
}

func (s *server) message(i int) string {
	s.tb.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if i >= len(s.messages) {
		s.tb.Fatalf("%d messages, want more than %d", len(s.messages), i)
	}
	return s.messages[i]
}

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

const testPassword = "hunter2-password"

// config is an account of the server.
func (s *server) config() Config {
	return Config{
		Host: "127.0.0.1", Port: s.addr.Port, TLS: tlsNone, Helo: "client.example.com",
		From: Address{Address: "alerts@example.com", Name: "Alerts"},
	}
}

func newProvider(tb testing.TB, cfg Config) *Provider {
	tb.Helper()
	p, err := New("smtp-main", cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(p.Close)
	return p
}

func testMessage() *channels.Message {
	return &channels.Message{
		Key:     uuid.MustParse("0193b0c0-0000-5000-8000-000000000001"),
		To:      notify.Target{Email: &notify.EmailAddress{Address: "ana@example.org", Name: "Ana"}},
		Content: notify.Content{Title: "Deploy failed", Body: "3 of 5 pods are down"},
	}
}

// expiring is a context that a test ends when it says so, with the error of a
// deadline, so that no test depends on how fast the machine is.
type expiring struct {
	context.Context
	done    chan struct{}
	expired atomic.Bool
}

func newExpiring(parent context.Context) *expiring {
	return &expiring{Context: parent, done: make(chan struct{})}
}

func (e *expiring) expire() {
	if e.expired.CompareAndSwap(false, true) {
		close(e.done)
	}
}

func (e *expiring) Deadline() (time.Time, bool) { return time.Now().Add(2 * patience), true }
func (e *expiring) Done() <-chan struct{}       { return e.done }

func (e *expiring) Err() error {
	if e.expired.Load() {
		return context.DeadlineExceeded
	}
	return nil
}

// lapsing is a context that ends when somebody begins to wait for its end.
type lapsing struct{ *expiring }

func (l lapsing) Done() <-chan struct{} {
	l.expire()
	return l.done
}
