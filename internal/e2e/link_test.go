//go:build unix

package e2e_test

import (
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// link is the way to a PostgreSQL server, which a test can cut. It starts whole.
type link struct {
	url     string // of the database behind it
	network string // where the server is
	address string

	requests, answers valve

	mu     sync.Mutex
	broken bool
	ends   map[net.Conn]struct{} // both ends of every connection
	wg     sync.WaitGroup
}

// newLink makes a way to the server of a database.
func newLink(t *testing.T, database string) *link {
	t.Helper()
	cfg, err := pgconn.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &link{ends: map[net.Conn]struct{}{}}
	l.network, l.address = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	to := url.URL{Scheme: "postgres", User: url.UserPassword(cfg.User, cfg.Password), Host: listener.Addr().String(), Path: "/" + cfg.Database}
	to.RawQuery = url.Values{"sslmode": {"disable"}}.Encode()
	l.url = to.String()
	l.wg.Go(func() { l.serve(t, listener) })
	t.Cleanup(func() {
		_ = listener.Close()
		l.breakOff()
		l.open()
		l.wg.Wait()
	})
	return l
}

// silence lets nothing more through, in either direction, and tells nobody.
func (l *link) silence() {
	l.answers.shut()
	l.requests.shut()
}

// breakOff ends all connections and refuses new ones.
func (l *link) breakOff() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = true
	for end := range l.ends {
		_ = end.Close()
	}
}

// heal makes the way whole: what was held back goes through.
func (l *link) heal() {
	l.mu.Lock()
	l.broken = false
	l.mu.Unlock()
	l.open()
}

func (l *link) open() {
	l.requests.open()
	l.answers.open()
}

func (l *link) serve(t *testing.T, listener net.Listener) {
	t.Helper()
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		l.wg.Go(func() { l.carry(t, client) })
	}
}

// carry joins a connection with one to the server until either end closes.
func (l *link) carry(t *testing.T, client net.Conn) {
	t.Helper()
	defer func() { _ = client.Close() }()
	l.requests.wait()
	var dialer net.Dialer
	server, err := dialer.DialContext(t.Context(), l.network, l.address)
	if err != nil {
		return // as the server is away, so is the way to it
	}
	defer func() { _ = server.Close() }()
	defer l.forget(client, server)
	if !l.keep(client, server) {
		return
	}
	l.wg.Go(func() { pump(client, server, &l.answers) })
	pump(server, client, &l.requests)
}

func (l *link) keep(ends ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range ends {
		l.ends[end] = struct{}{}
	}
	return !l.broken
}

func (l *link) forget(ends ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, end := range ends {
		delete(l.ends, end)
	}
}

// pump passes on what comes from one end, and that it has closed.
func pump(to, from net.Conn, through *valve) {
	defer func() { _ = to.Close() }()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		through.wait()
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// valve holds back what comes to it while it is shut. The zero value is open.
type valve struct {
	mu     sync.Mutex
	closed chan struct{} // nil when open
}

func (v *valve) shut() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed == nil {
		v.closed = make(chan struct{})
	}
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed != nil {
		close(v.closed)
		v.closed = nil
	}
}

func (v *valve) wait() {
	v.mu.Lock()
	closed := v.closed
	v.mu.Unlock()
	if closed != nil {
		<-closed
	}
}
