package resilience

import "time"

// Gate holds calls to a scope until an instant that its provider named. It only
// ever moves later, so that answers may be read in any order; the zero value is
// open. It is not safe for concurrent use.
type Gate struct {
	notBefore time.Time
}

// Shut keeps the gate shut until the instant given, and reports whether that
// moved it.
func (g *Gate) Shut(until time.Time) bool {
	if !until.After(g.notBefore) {
		return false
	}
	g.notBefore = until
	return true
}

// Until returns the instant before which no call may start, and whether it is
// still ahead of now. At the instant itself the gate is open.
func (g *Gate) Until(now time.Time) (until time.Time, shut bool) {
	return g.notBefore, now.Before(g.notBefore)
}

// Reset opens the gate, for an operator who knows better than the provider.
func (g *Gate) Reset() { g.notBefore = time.Time{} }
