// Package h1 posts over HTTP/1.1, for adapters that make many small calls to
// servers of which nothing but the status and the header of an answer is wanted.
//
// net/http keeps two goroutines for each connection, hands every request from
// one to the other, and speaks HTTP/2 where the server does. For a POST that must
// go out once at most, over a connection that is used by one call at a time, none
// of this is needed: the caller's goroutine writes the request and reads the
// answer, at a fraction of the cost. Parsing is left to net/http.
package h1

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/channels"
)

const (
	// maxAnswer is how much of an answer is read, its header and the answers of the
	// 1xx kind before it included, in bytes. A connection on which more comes is
	// closed.
	maxAnswer = 64 << 10
	// handshakeLimit bounds the TLS handshake.
	handshakeLimit = 10 * time.Second
	// inlineWrite is the size up to which a request is written before the answer is
	// read: so much goes into the socket's buffer at once, whether or not the
	// server reads it. A larger one is written while the answer is awaited, since a
	// server may refuse it without reading it.
	inlineWrite = 16 << 10
	// keptBuffer is the size up to which a connection keeps its buffer for requests.
	keptBuffer = 64 << 10
)

// Config says how a [Client] connects. All fields must be set.
type Config struct {
	// Dial connects to addr, a host and a port.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// IdlePerHost and Idle are how many unused connections are kept to one address
	// and in all. Beyond that the one that was not used for the longest is closed.
	IdlePerHost, Idle int
	// IdleFor is for how long.
	IdleFor time.Duration
}

// Client makes POST requests. It may be used by many goroutines at once. It
// follows no redirect, knows no proxy, keeps no cookies, and never sends a
// request again.
type Client struct {
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
	tls  *tls.Config
	pool pool
}

// New returns a client.
func New(cfg Config) *Client {
	return &Client{
		dial: cfg.Dial,
		tls: &tls.Config{
			NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12, ClientSessionCache: tls.NewLRUClientSessionCache(256),
		},
		pool: newPool(cfg.IdlePerHost, cfg.Idle, cfg.IdleFor),
	}
}

// CloseIdleConnections closes the connections that are not in use.
func (c *Client) CloseIdleConnections() { c.pool.close() }

// Request is one POST.
type Request struct {
	TLS       bool
	Addr      string // what is dialed: host and port
	Authority string // what the header Host says
	Target    string // path and query
	Header    http.Header
	Body      []byte
}

// errMalformed says that a request cannot be written without meaning another one.
var errMalformed = errors.New("request target or host holds a space or a control character")

// Post makes the call, which ends with ctx. It never returns an error of its own:
// what went wrong is in the exchange. The answer's body is read and dropped.
func (c *Client) Post(ctx context.Context, r *Request) (x channels.Exchange) {
	defer func() {
		if x.Err == nil {
			return
		}
		if x.ReceivedAt.IsZero() {
			x.ReceivedAt = time.Now()
		}
		// The connection's deadline is how a context's end reaches a call.
		if err := ctx.Err(); err != nil && isTimeout(x.Err) {
			x.Err = err
		}
	}()
	if !printable(r.Target) || !printable(r.Authority) {
		x.Err = errMalformed
		return x
	}
	cn, err := c.connect(ctx, r)
	if err != nil {
		x.Err = err
		return x
	}
	stop := context.AfterFunc(ctx, cn.abort)
	x, reuse := cn.exchange(r)
	if !stop() || !reuse {
		cn.close()
		return x
	}
	c.pool.put(cn)
	return x
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// printable reports whether s has neither spaces nor control characters, one of
// which would end a line or a part of it early.
func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) < 0
}

// connect returns a connection that nobody else uses, with the deadline of ctx.
func (c *Client) connect(ctx context.Context, r *Request) (*conn, error) {
	if err := ctx.Err(); err != nil { // nothing would stop a request on a kept connection in time
		return nil, err
	}
	deadline, _ := ctx.Deadline() // the zero time is none
	key := poolKey{r.Addr, r.TLS}
	for cn := c.pool.get(key); cn != nil; cn = c.pool.get(key) {
		if cn.drained() && cn.setDeadline(deadline) == nil && quiet(cn.raw) {
			return cn, nil
		}
		cn.close()
	}
	raw, err := c.dial(ctx, "tcp", r.Addr)
	if err != nil {
		return nil, err
	}
	cn := &conn{key: key, raw: raw, stream: raw}
	if r.TLS {
		secured, err := c.secure(ctx, raw, r.Addr)
		if err != nil {
			_ = raw.Close()
			return nil, err
		}
		cn.stream = secured
	}
	cn.limit = io.LimitedReader{R: cn.stream}
	cn.in = bufio.NewReader(&cn.limit)
	if err := cn.setDeadline(deadline); err != nil {
		cn.close()
		return nil, err
	}
	return cn, nil
}

func (c *Client) secure(ctx context.Context, raw net.Conn, addr string) (net.Conn, error) {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("address to dial: %w", err)
	}
	cfg := c.tls.Clone()
	cfg.ServerName = strings.TrimSuffix(host, ".")
	ctx, cancel := context.WithTimeout(ctx, handshakeLimit)
	defer cancel()
	secured := tls.Client(raw, cfg)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	return secured, nil
}

// conn is a connection with its buffers, used by one call at a time.
type conn struct {
	key    poolKey
	raw    net.Conn // the socket
	stream net.Conn // the same, or TLS over it
	limit  io.LimitedReader
	in     *bufio.Reader
	out    bytes.Buffer
	idle   idle
}

func (cn *conn) setDeadline(t time.Time) error { return cn.stream.SetDeadline(t) }

// abort ends what is going on.
func (cn *conn) abort() { _ = cn.raw.SetDeadline(time.Unix(1, 0)) }

// drained reports whether TLS holds nothing that it has read beyond the last
// answer, such as the server's farewell: that is not in the socket any more, where
// [quiet] looks. A read that may not touch the socket ends with no time left.
func (cn *conn) drained() bool {
	if cn.stream == cn.raw {
		return true
	}
	cn.abort()
	n, err := cn.stream.Read(make([]byte, 1))
	return n == 0 && isTimeout(err)
}

// close does not wait for the other side, as the farewell of TLS would.
func (cn *conn) close() { _ = cn.raw.Close() }

// exchange writes a request and reads its answer, and reports whether the
// connection can be used again.
func (cn *conn) exchange(r *Request) (x channels.Exchange, reuse bool) {
	cn.compose(r)
	var writing chan error
	if cn.out.Len() <= inlineWrite {
		if _, err := cn.stream.Write(cn.out.Bytes()); err != nil {
			return cn.unwritten(err), false
		}
	} else {
		writing = make(chan error, 1)
		// It ends when the request is written, or the connection closed.
		go func() {
			_, err := cn.stream.Write(cn.out.Bytes())
			writing <- err
		}()
	}
	x, reuse = cn.answer()
	x.Wrote = true
	if writing == nil {
		return x, reuse
	}
	if reuse {
		select {
		case err := <-writing:
			cn.shrink()
			return x, err == nil
		default: // the server answered before it had read the whole
			return x, false
		}
	}
	if x.Status == 0 {
		cn.close()
		x.Wrote = <-writing == nil
	}
	return x, false
}

// unwritten looks, on a connection that took only a part of the request, for an
// answer that came before it broke: a server may refuse a request at sight of its
// header and hang up, and one that accepted it so must not get it again.
func (cn *conn) unwritten(err error) channels.Exchange {
	x, _ := cn.answer()
	if x.Status == 0 {
		return channels.Exchange{Err: err}
	}
	x.Wrote = true
	return x
}

// compose puts the request into the buffer.
func (cn *conn) compose(r *Request) {
	b := &cn.out
	b.Reset()
	b.WriteString("POST ")
	b.WriteString(r.Target)
	b.WriteString(" HTTP/1.1\r\nHost: ")
	b.WriteString(r.Authority)
	b.WriteString("\r\nContent-Length: ")
	b.Write(strconv.AppendInt(b.AvailableBuffer(), int64(len(r.Body)), 10))
	b.WriteString("\r\n")
	_ = r.Header.Write(b) // which lets no value begin a line; a buffer takes everything
	b.WriteString("\r\n")
	b.Write(r.Body)
}

// shrink gives a buffer back that one large request has grown.
func (cn *conn) shrink() {
	if cn.out.Cap() > keptBuffer {
		cn.out = bytes.Buffer{}
	}
}

// answer reads the answer, and reports whether another may follow it.
func (cn *conn) answer() (x channels.Exchange, reuse bool) {
	cn.limit.N = maxAnswer
	var resp *http.Response
	for resp == nil || resp.StatusCode/100 == 1 && resp.StatusCode != http.StatusSwitchingProtocols {
		var err error
		if resp, err = http.ReadResponse(cn.in, nil); err != nil { //nolint:bodyclose // read to its end below, or closed with the connection
			x.Err = err
			return x, false
		}
	}
	x.Status, x.Header, x.ReceivedAt = resp.StatusCode, resp.Header, time.Now()
	if resp.StatusCode < 200 {
		return x, false
	}
	_, x.Err = io.Copy(io.Discard, resp.Body)
	return x, x.Err == nil && !resp.Close && cn.in.Buffered() == 0
}
