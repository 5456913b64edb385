package resilience

import "time"

// searchDepth bounds how many entries are looked at for one to forget.
const searchDepth = 32

// recency is a ring of entries in the order of their last use. Its root is not
// an entry; root.next is the one used last.
type recency struct{ root entry }

func (r *recency) init() { r.root.prev, r.root.next = &r.root, &r.root }

func (r *recency) add(e *entry) {
	e.prev, e.next = &r.root, r.root.next
	e.prev.next, e.next.prev = e, e
}

func (r *recency) remove(e *entry) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
}

func (r *recency) touch(e *entry) {
	r.remove(e)
	r.add(e)
}

// victim returns the entry to forget: of those not used for longest one whose
// loss does no harm, else one whose breaker is closed and gate open, else the
// first. There must be one.
func (r *recency) victim(now time.Time) *entry {
	var closed, oldest *entry
	depth := 0
	for e := r.root.prev; e != &r.root; e = e.prev {
		depth++
		if depth > searchDepth && oldest != nil {
			break
		}
		if e.idle(now) {
			return e
		}
		if oldest == nil {
			oldest = e
		}
		if _, shut := e.gate.Until(now); closed == nil && !shut && e.breaker.current() == Closed {
			closed = e
		}
	}
	if closed != nil {
		return closed
	}
	return oldest
}
