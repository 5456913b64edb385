// Package sink is what the benchmarks deliver to: an HTTP receiver of webhooks
// that is a stand-in for Twilio too, and an SMTP server. It does as little as it
// can, since whatever it costs is taken from what is measured, so it counts and
// remembers which messages came, and parses nothing beyond that. For development
// and tests there is package sandbox, which knows what providers answer.
package sink

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Stats is what a sink received since it was last reset.
type Stats struct {
	Calls    int64 `json:"calls"`    // requests and mails that were answered well
	Distinct int64 `json:"distinct"` // of them, by their ids
	Refused  int64 `json:"refused"`  // what was no message, or none that this package reads
}

// Arrival is one call to a numbered path.
type Arrival struct {
	Number int64 `json:"n"`
	At     int64 `json:"at"` // Unix nanoseconds, when its headers had been read
}

// Sink listens on loopback addresses. The caller must close it.
type Sink struct {
	hosts     []string
	smtp      string
	listeners []net.Listener
	serving   sync.WaitGroup
	closed    chan struct{}

	mu    sync.Mutex
	conns map[net.Conn]bool // nil once closed

	calls, refused atomic.Int64
	shards         [shards]shard
	arrivals       arrivals
}

const shards = 64

// shard is a part of the ids that were seen.
type shard struct {
	mu   sync.Mutex
	seen map[id]struct{}
}

// id names a message: its webhook-id or Message-ID, a hash of one that is no UUID,
// or a number.
type id [16]byte

type arrivals struct {
	kept atomic.Bool
	mu   sync.Mutex
	list []Arrival
}

// Open listens on so many HTTP addresses, from 1 to 101, each a destination of its
// own to whoever calls it, and on one SMTP address.
func Open(hosts int) (_ *Sink, err error) {
	s := &Sink{conns: map[net.Conn]bool{}, closed: make(chan struct{})}
	s.Reset(false)
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	for range min(max(hosts, 1), 101) {
		l, err := s.listen()
		if err != nil {
			return nil, err
		}
		s.hosts = append(s.hosts, l.Addr().String())
		s.serving.Go(func() { s.accept(l, s.serveHTTP) })
	}
	l, err := s.listen()
	if err != nil {
		return nil, err
	}
	s.smtp = l.Addr().String()
	s.serving.Go(func() { s.accept(l, s.serveSMTP) })
	return s, nil
}

func (s *Sink) listen() (net.Listener, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	s.listeners = append(s.listeners, l)
	return l, nil
}

// Hosts are the HTTP addresses, host:port.
func (s *Sink) Hosts() []string { return s.hosts }

// SMTP is the SMTP address, host:port.
func (s *Sink) SMTP() string { return s.smtp }

// Reset forgets what was received. With arrivals, when each numbered call came is
// kept from now on.
func (s *Sink) Reset(arrivals bool) {
	for i := range s.shards {
		s.shards[i].mu.Lock()
		s.shards[i].seen = map[id]struct{}{}
		s.shards[i].mu.Unlock()
	}
	s.arrivals.mu.Lock()
	s.arrivals.list = nil
	s.arrivals.mu.Unlock()
	s.arrivals.kept.Store(arrivals)
	s.calls.Store(0)
	s.refused.Store(0)
}

// Stats returns what was received.
func (s *Sink) Stats() Stats {
	out := Stats{Calls: s.calls.Load(), Refused: s.refused.Load()}
	for i := range s.shards {
		s.shards[i].mu.Lock()
		out.Distinct += int64(len(s.shards[i].seen))
		s.shards[i].mu.Unlock()
	}
	return out
}

// Calls is how many messages were received; it costs nothing to ask.
func (s *Sink) Calls() int64 { return s.calls.Load() }

// Arrivals returns the numbered calls that came since the reset, in the order of
// their coming.
func (s *Sink) Arrivals() []Arrival {
	s.arrivals.mu.Lock()
	defer s.arrivals.mu.Unlock()
	return append([]Arrival{}, s.arrivals.list...)
}

// Close ends all connections and returns when nothing runs any more. It may be
// called once.
func (s *Sink) Close() error {
	var errs []error
	for _, l := range s.listeners {
		errs = append(errs, l.Close())
	}
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	close(s.closed)
	s.serving.Wait()
	return errors.Join(errs...)
}

// accept serves each connection in a goroutine of its own, until the listener is
// closed.
func (s *Sink) accept(l net.Listener, serve func(net.Conn, *bufio.Reader) error) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		open := s.conns != nil
		if open {
			s.conns[c] = true
		}
		s.mu.Unlock()
		if !open {
			_ = c.Close()
			return
		}
		s.serving.Go(func() {
			if err := serve(c, bufio.NewReaderSize(c, 4<<10)); errors.Is(err, errRequest) || errors.Is(err, errMail) {
				s.refused.Add(1)
			}
			_ = c.Close()
			s.mu.Lock()
			delete(s.conns, c) // of nil too
			s.mu.Unlock()
		})
	}
}

// received notes a message.
func (s *Sink) received(i id) {
	h := &s.shards[(i[15]^i[14]^i[7])%shards]
	h.mu.Lock()
	h.seen[i] = struct{}{}
	h.mu.Unlock()
	s.calls.Add(1)
}

// arrived notes when a numbered call came.
func (s *Sink) arrived(n int64) {
	if !s.arrivals.kept.Load() {
		return
	}
	now := time.Now().UnixNano()
	s.arrivals.mu.Lock()
	s.arrivals.list = append(s.arrivals.list, Arrival{n, now})
	s.arrivals.mu.Unlock()
}
