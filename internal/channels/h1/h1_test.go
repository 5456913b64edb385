package h1

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newClient returns a client that dials without asking, and counts how often.
func newClient(t *testing.T) (*Client, *atomic.Int64) {
	t.Helper()
	dials := new(atomic.Int64)
	c := New(Config{
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
		IdlePerHost: 4, Idle: 8, IdleFor: time.Minute,
	})
	t.Cleanup(c.CloseIdleConnections)
	return c, dials
}

func to(addr string) *Request {
	return &Request{Addr: addr, Authority: addr, Target: "/hook?x=1", Header: http.Header{"X-Mine": {"a"}}, Body: []byte("body")}
}

// within is a context for a call that is to end well before it.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// script answers each connection's requests with the given bytes, one after the
// other, and closes it after the last.
func script(t *testing.T, answers ...string) (addr string, connections *atomic.Int64) {
	t.Helper()
	return serve(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		for _, answer := range answers {
			r, err := http.ReadRequest(in)
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body)
			_, _ = io.WriteString(c, answer)
		}
	})
}

// serve runs handle for each connection.
func serve(t *testing.T, handle func(net.Conn)) (addr string, connections *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	connections = new(atomic.Int64)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connections.Add(1)
			wg.Go(func() {
				defer c.Close() //nolint:errcheck // a test's
				handle(c)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return l.Addr().String(), connections
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestTheRequestIsWhatWasAskedFor(t *testing.T) {
	t.Parallel()
	type seen struct {
		Method, Target, Host, Proto, Body string
		Length                            int64
		Header                            http.Header
	}
	var got seen
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = seen{r.Method, r.RequestURI, r.Host, r.Proto, string(body), r.ContentLength, r.Header}
	}))
	defer srv.Close()
	c, _ := newClient(t)
	r := to(strings.TrimPrefix(srv.URL, "http://"))
	r.Authority = "example.com:8080"
	r.Header = http.Header{"Content-Type": {"text/plain"}, "X-Line": {"a\r\nX-Evil: b"}}
	if x := c.Post(within(t), r); x.Status != 200 || x.Err != nil || !x.Wrote || x.Header.Get("Content-Length") != "0" || x.ReceivedAt.IsZero() {
		t.Errorf("exchange %+v", x)
	}
	want := seen{
		"POST", "/hook?x=1", "example.com:8080", "HTTP/1.1", "body", 4,
		http.Header{"Content-Type": {"text/plain"}, "Content-Length": {"4"}, "X-Line": {"a  X-Evil: b"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestWhatWouldMeanAnotherRequestIsNotSent(t *testing.T) {
	t.Parallel()
	c, dials := newClient(t)
	for _, bad := range []string{"/a b", "/a\r\nHost: evil", "/a\x00", "/\x7f"} {
		r := to("127.0.0.1:1")
		r.Target = bad
		if x := c.Post(within(t), r); !errors.Is(x.Err, errMalformed) || x.Wrote {
			t.Errorf("target %q: %+v", bad, x)
		}
		r = to("127.0.0.1:1")
		r.Authority = bad
		if x := c.Post(within(t), r); !errors.Is(x.Err, errMalformed) || x.Wrote {
			t.Errorf("authority %q: %+v", bad, x)
		}
	}
	if dials.Load() != 0 {
		t.Error("something was dialed")
	}
}

func TestAnswersAndWhetherTheConnectionIsKept(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", maxAnswer)
	for name, tt := range map[string]struct {
		answer string
		status int
		kept   bool
		failed bool
	}{
		"with a length":        {ok, 200, true, false},
		"without a body":       {"HTTP/1.1 204 No Content\r\n\r\n", 204, true, false},
		"in chunks":            {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", 200, true, false},
		"after hints":          {"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + ok, 200, true, false},
		"that ends with close": {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 200, false, false},
		"of HTTP/1.0":          {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, false, false},
		"without a length":     {"HTTP/1.1 200 OK\r\n\r\nok", 200, false, false},
		"with more after it":   {ok + ok, 200, false, false},
		"of another protocol":  {"HTTP/1.1 101 Switching Protocols\r\n\r\n", 101, false, false},
		"too long":             {fmt.Sprintf("HTTP/1.1 500 Oops\r\nContent-Length: %d\r\n\r\n%s", len(long), long), 500, false, true},
		"broken off":           {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok", 200, false, true},
		"after many signs":     {strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 50) + ok, 200, true, false},
		"with endless hints":   {strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 9999), 0, false, true},
		"with a huge header":   {"HTTP/1.1 200 OK\r\nX: " + long + "\r\n\r\n", 0, false, true},
		"that is nonsense":     {"220 smtp.example.com ESMTP\r\n", 0, false, true},
		"that never comes":     {"", 0, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answers := []string{tt.answer}
			if tt.kept {
				answers = append(answers, ok)
			}
			addr, connections := script(t, answers...)
			c, _ := newClient(t)
			x := c.Post(within(t), to(addr))
			if x.Status != tt.status || (x.Err != nil) != tt.failed || !x.Wrote {
				t.Errorf("exchange %+v, want status %d, failed %t", x, tt.status, tt.failed)
			}
			c.Post(within(t), to(addr))
			if kept := connections.Load() == 1; kept != tt.kept {
				t.Errorf("kept %t, want %t", kept, tt.kept)
			}
		})
	}
}

func TestAConnectionThatTheServerClosedMeanwhileIsNotUsed(t *testing.T) {
	t.Parallel()
	addr, connections := script(t, ok)
	c, _ := newClient(t)
	for i := range 3 {
		if x := c.Post(within(t), to(addr)); x.Status != 200 {
			t.Fatalf("call %d: %+v", i, x)
		}
		await(t, func() bool { // the server's farewell
			c.pool.mu.Lock()
			defer c.pool.mu.Unlock()
			of := c.pool.idle[poolKey{addr: addr}]
			return len(of) == 1 && !quiet(of[0].raw)
		})
	}
	if n := connections.Load(); n != 3 {
		t.Errorf("%d connections for three calls", n)
	}
}

func await(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !done(); {
		if time.Now().After(end) {
			t.Fatal("it never came to that")
		}
		time.Sleep(time.Millisecond) //nolint:forbidigo // the kernel's part of it has no virtual time
	}
}

func TestALargeRequestMayBeRefusedUnread(t *testing.T) {
	t.Parallel()
	addr, _ := serve(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
		_, _ = io.Copy(io.Discard, io.LimitReader(c, 1)) // no more than that, until the other side hangs up
		<-t.Context().Done()
	})
	c, _ := newClient(t)
	r := to(addr)
	r.Body = bytes.Repeat([]byte("x"), 16<<20)
	if x := c.Post(within(t), r); x.Status != 413 || x.Err != nil {
		t.Errorf("exchange %+v", x)
	}
}

func TestALargeRequestIsSentWhole(t *testing.T) {
	t.Parallel()
	var got atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		got.Add(n)
	}))
	defer srv.Close()
	c, dials := newClient(t)
	for range 2 {
		r := to(strings.TrimPrefix(srv.URL, "http://"))
		r.Body = bytes.Repeat([]byte("x"), 1<<20)
		if x := c.Post(within(t), r); x.Status != 200 {
			t.Fatalf("exchange %+v", x)
		}
	}
	if got.Load() != 2<<20 {
		t.Errorf("%d bytes arrived", got.Load())
	}
	if dials.Load() > 2 {
		t.Errorf("dialed %d times", dials.Load())
	}
}

func TestWhetherTheRequestWasWritten(t *testing.T) {
	t.Parallel()
	silent, _ := serve(t, func(c net.Conn) { _, _ = io.Copy(io.Discard, c) })
	stuck, _ := serve(t, func(net.Conn) { <-t.Context().Done() })
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := deaf.Addr().String()
	_ = deaf.Close()
	for name, tt := range map[string]struct {
		addr  string
		body  int
		wrote bool
	}{
		"no answer":           {silent, 4, true},
		"large and no answer": {silent, 1 << 20, true},
		"never read":          {stuck, 64 << 20, false},
		"refused":             {closed, 4, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			c, _ := newClient(t)
			r := to(tt.addr)
			r.Body = make([]byte, tt.body)
			x := c.Post(ctx, r)
			if x.Status != 0 || x.Err == nil || x.Wrote != tt.wrote {
				t.Errorf("exchange %+v, want wrote %t", x, tt.wrote)
			}
		})
	}
}

func TestTheEndOfTheContextEndsTheCall(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 1)
	addr, _ := serve(t, func(c net.Conn) {
		if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			arrived <- struct{}{}
		}
		_, _ = io.Copy(io.Discard, c)
	})
	c, _ := newClient(t)
	ctx, cancel := context.WithCancel(within(t))
	go func() { <-arrived; cancel() }()
	if x := c.Post(ctx, to(addr)); !errors.Is(x.Err, context.Canceled) || !x.Wrote {
		t.Errorf("canceled: %+v", x)
	}
	if x := c.Post(ctx, to(addr)); !errors.Is(x.Err, context.Canceled) || x.Wrote {
		t.Errorf("canceled before: %+v", x)
	}
	late, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	x := c.Post(late, to(addr))
	if !errors.Is(x.Err, context.DeadlineExceeded) && !errors.Is(x.Err, os.ErrDeadlineExceeded) || !x.Wrote {
		t.Errorf("timed out: %+v", x)
	}
}

func TestTLSIsOfVersionOneOfHTTPAndVerified(t *testing.T) {
	t.Parallel()
	var protocol atomic.Pointer[string]
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { protocol.Store(&r.Proto) }))
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.StartTLS()
	defer srv.Close()
	addr := strings.TrimPrefix(srv.URL, "https://")
	c, dials := newClient(t)
	r := to(addr)
	r.TLS = true
	var unknown *tls.CertificateVerificationError
	if x := c.Post(within(t), r); !errors.As(x.Err, &unknown) || x.Wrote {
		t.Fatalf("a certificate that nobody vouches for: %+v", x)
	}
	c.tls.RootCAs = x509.NewCertPool()
	c.tls.RootCAs.AddCert(srv.Certificate())
	dials.Store(0)
	for range 3 {
		if x := c.Post(within(t), r); x.Status != 200 {
			t.Fatalf("exchange %+v", x)
		}
	}
	if *protocol.Load() != "HTTP/1.1" || dials.Load() != 1 {
		t.Errorf("by %s over %d connections", *protocol.Load(), dials.Load())
	}
}

func TestCallsDoNotMixTheirAnswers(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Target", r.RequestURI)
		w.WriteHeader(http.StatusAccepted)
	}))
	defer srv.Close()
	c, _ := newClient(t)
	ctx := within(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for j := range 20 {
				r := to(strings.TrimPrefix(srv.URL, "http://"))
				r.Target = fmt.Sprintf("/%d/%d", i, j)
				if x := c.Post(ctx, r); x.Header.Get("X-Target") != r.Target {
					t.Errorf("asked %s, answered %+v", r.Target, x)
				}
			}
		})
	}
	wg.Wait()
}
