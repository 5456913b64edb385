package resilience

import "time"

// Peek returns what [Limiter.Take] of one token would decide now, and takes none.
// It is for limiters without a source: what a source knows it does not ask for.
func (l *Limiter) Peek(key string, limit Limit) Decision {
	l.mu.Lock()
	defer l.mu.Unlock()
	part := limit.shared(l.nodes(), 1)
	var debt time.Duration
	if at := l.keys[key]; at != nil {
		if e := at.Value.(*leased); e.limit == limit {
			debt = e.local.debt(part, time.Now())
		}
	}
	d := Decision{Limit: limit, OK: part.available(debt) > 0, Remaining: part.available(debt), Reset: debt, Local: true}
	if !d.OK {
		d.RetryAfter = part.wait(debt, 1)
	}
	return d
}
