package resilience

import "time"

// Watched returns how many scopes a member keeps in mind.
func Watched(m *Member) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.scopes)
}

// Probe reports whether the call is the probe of a half-open breaker.
func (t *Ticket) Probe() bool {
	for _, h := range append(t.few[:t.n:t.n], t.more...) {
		if h.permit.Probe() {
			return true
		}
	}
	return false
}

// Take is Wait for a caller that never waits: where the source has to be asked,
// that is begun and the answer is "not yet".
func (p *Pacer) Take(paces []Pace, now time.Time) (ok bool, until time.Time) {
	ok, until, _ = p.limiter.takeAll(paces, now, true)
	return ok, until
}
