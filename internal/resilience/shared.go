package resilience

import (
	"context"
	"time"
)

// Shared is where processes keep the breakers and gates that they have in
// common. Its clock is its own: instants that it gives and takes are by that
// clock, and each process turns them into instants of its own.
type Shared interface {
	// Update lets change decide about a scope's breaker, under a lock that spans
	// all processes, and keeps what it returns. now is the shared clock, read
	// under the lock. change may be called more than once. The record that holds
	// afterwards is returned with the shared clock's time.
	Update(ctx context.Context, scope string, change Change) (ScopeRecord, time.Time, error)
	// Report keeps what this process saw and returns, for the same scopes, what
	// all processes saw under the same generation.
	Report(ctx context.Context, tallies []ScopeTally) (map[string]Sum, error)
	// Throttle keeps gates shut for so long from now on; they only move later.
	Throttle(ctx context.Context, gates map[string]time.Duration) error
	// Changed returns the breakers and gates that changed since an instant of the
	// shared clock, all that there are for the zero time.
	Changed(ctx context.Context, since time.Time) (Changes, error)
}

// Change decides about a breaker. A transition that did not change is kept too
// if the record did.
type Change func(r BreakerRecord, now time.Time) (BreakerRecord, Transition)

// ScopeRecord is a scope's breaker as it is kept.
type ScopeRecord struct {
	Scope string
	BreakerRecord
}

// ScopeTally is what a process saw of a scope under a generation of its breaker.
type ScopeTally struct {
	Scope      string
	Generation uint64
	Tally
}

// ScopeGate is a gate as it is kept.
type ScopeGate struct {
	Scope string
	Until time.Time
}

// Changes are what changed, and the shared clock's time when that was read.
type Changes struct {
	Breakers []ScopeRecord
	Gates    []ScopeGate
	Now      time.Time
}
