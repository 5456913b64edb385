package email

import (
	"context"
	"sync"
	"time"
)

const (
	// maxPerConnection is how many messages one connection carries. Servers have
	// limits of their own and answer 421 beyond them.
	maxPerConnection = 100
	// parting is how long a server has to answer QUIT.
	parting = 2 * time.Second
)

// pool bounds the sessions with a server and keeps those that are idle.
type pool struct {
	slots chan struct{} // one for each session in use
	idle  time.Duration // how long a session is kept; not positive for not at all

	mu      sync.Mutex
	waiting []*session // the youngest last
	closed  bool
}

func newPool(size int, idle time.Duration) *pool {
	return &pool{slots: make(chan struct{}, size), idle: idle}
}

// enter waits for a slot. leave gives it back.
func (p *pool) enter(ctx context.Context) error {
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pool) leave() { <-p.slots }

// take returns the idle session that was used last, or nil.
func (p *pool) take() *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.waiting) > 0 {
		s := p.waiting[len(p.waiting)-1]
		p.waiting = p.waiting[:len(p.waiting)-1]
		if s.expiry.Stop() { // otherwise it is being closed
			return s
		}
	}
	return nil
}

// put keeps s for the next message, or ends it.
func (p *pool) put(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || p.idle <= 0 || s.sent >= maxPerConnection {
		go s.quit()
		return
	}
	s.expiry = time.AfterFunc(p.idle, func() {
		p.forget(s)
		s.quit()
	})
	p.waiting = append(p.waiting, s)
}

func (p *pool) forget(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, w := range p.waiting {
		if w == s {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			return
		}
	}
}

// close ends the idle sessions and keeps no more.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	waiting := p.waiting
	p.waiting = nil
	p.mu.Unlock()
	for _, s := range waiting {
		if s.expiry.Stop() {
			go s.quit()
		}
	}
}
