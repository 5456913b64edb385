package resilience

import "time"

// Unlimited is the room of a scope on which nothing holds calls.
const Unlimited = -1

// afterShut is for how long after a scope was shut what it held comes back at
// spreadRate and no quicker.
const afterShut = 30 * time.Second

// Room returns how many calls of a scope may start in the next interval:
// [Unlimited], none while it is shut, one where a breaker waits for its probe,
// and few while a breaker that has closed lets its calls through again or just
// after a gate has opened, so that its door does not open on a herd.
func (m *Member) Room(scope string, interval time.Duration, now time.Time) int {
	if m.guard.Refuses(scope, now) {
		return 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v := m.scopes[scope]
	if v == nil {
		return Unlimited
	}
	room := Unlimited
	switch d, claim := v.ask(scope, now); {
	case claim:
		return 1
	case d != nil:
		return 0
	}
	if limit := v.ramp(now); limit > 0 {
		room = max(limit-v.inFlight, 0)
	}
	if !v.shutUntil.IsZero() && now.Sub(v.shutUntil) < afterShut {
		few := max(int(spreadRate*interval/time.Second)/m.countNodes(), 1)
		if room == Unlimited || few < room {
			room = few
		}
	}
	return room
}

// SetNodes tells how many processes share the scopes, so that together they let
// no more through than one may. It is called under a lock; one without it.
func (m *Member) SetNodes(count func() int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.nodes = count
}

// Nodes returns how many processes share the scopes, as far as is known; at least
// one.
func (m *Member) Nodes() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.countNodes()
}

func (m *Member) countNodes() int {
	if m.nodes == nil {
		return 1
	}
	return max(m.nodes(), 1)
}

// Refuses reports whether a call of the scope alone would be refused now.
func (g *Guard) Refuses(scope string, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.refuses([]Scope{{Name: scope, Breaker: &BreakerConfig{}}}, now) != nil
}
