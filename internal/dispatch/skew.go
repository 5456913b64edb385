package dispatch

import (
	"sync/atomic"
	"time"
)

// skew is how far the database's clock is ahead of this node's. The database says
// when a wait is over; a node whose clock is behind would find that it is not,
// and ask again at every look.
type skew struct{ ahead atomic.Int64 }

// measure compares what the database's clock said between two instants of this
// node's. A difference that the way there and back explains is none.
func (s *skew) measure(theirs, sent, received time.Time) {
	trip := received.Sub(sent)
	ahead := theirs.Sub(sent.Add(trip / 2))
	if theirs.IsZero() || ahead.Abs() <= trip {
		ahead = 0
	}
	s.ahead.Store(int64(ahead))
}

// now is the time by the database's clock, as far as this node knows it.
func (d *Dispatcher) now() time.Time { return d.theirs(d.cfg.Now()) }

// theirs is an instant of this node's clock by the database's.
func (d *Dispatcher) theirs(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Add(time.Duration(d.skew.ahead.Load()))
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
