package h1

import (
	"container/list"
	"slices"
	"sync"
	"time"
)

// poolKey is what connections must have in common to be used for each other.
type poolKey struct {
	addr string
	tls  bool
}

// idle is what the pool notes about a connection in it.
type idle struct {
	since time.Time
	place *list.Element
}

// pool keeps connections that are not in use.
type pool struct {
	perHost, all int
	keep         time.Duration

	mu     sync.Mutex
	idle   map[poolKey][]*conn // the one used last is at the end
	oldest list.List           // of *conn, the one that was not used for the longest at the front
	timer  *time.Timer         // nil while the pool is empty
}

func newPool(perHost, all int, keep time.Duration) pool {
	return pool{perHost: perHost, all: all, keep: keep, idle: map[poolKey][]*conn{}}
}

// get takes the connection that was used last, which is the least likely to be
// closed by the other side; nil if there is none.
func (p *pool) get(key poolKey) *conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.idle[key]
	if len(of) == 0 {
		return nil
	}
	cn := of[len(of)-1]
	p.remove(cn)
	return cn
}

// put keeps a connection.
func (p *pool) put(cn *conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if of := p.idle[cn.key]; len(of) >= p.perHost {
		p.drop(of[0])
	}
	if p.oldest.Len() >= p.all {
		p.drop(p.oldest.Front().Value.(*conn))
	}
	cn.idle = idle{since: time.Now(), place: p.oldest.PushBack(cn)}
	p.idle[cn.key] = append(p.idle[cn.key], cn)
	if p.timer == nil {
		p.timer = time.AfterFunc(p.keep, p.expire)
	}
}

// remove takes a connection out.
func (p *pool) remove(cn *conn) {
	p.oldest.Remove(cn.idle.place)
	of := p.idle[cn.key]
	at := len(of) - 1
	if of[at] != cn { // which it is but for those that are dropped
		at = slices.Index(of, cn)
	}
	if of = slices.Delete(of, at, at+1); len(of) > 0 {
		p.idle[cn.key] = of
	} else {
		delete(p.idle, cn.key)
	}
}

func (p *pool) drop(cn *conn) {
	p.remove(cn)
	cn.close()
}

// expire closes the connections whose time is over, and comes again for the next.
func (p *pool) expire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = nil
	for first := p.oldest.Front(); first != nil; first = p.oldest.Front() {
		cn := first.Value.(*conn)
		if left := p.keep - time.Since(cn.idle.since); left > 0 {
			p.timer = time.AfterFunc(left, p.expire)
			return
		}
		p.drop(cn)
	}
}

// close closes all that are kept.
func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for first := p.oldest.Front(); first != nil; first = p.oldest.Front() {
		p.drop(first.Value.(*conn))
	}
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}
