package dispatch

import "context"

// Announce takes over what was enqueued, on a node that does not work.
func (d *Dispatcher) Announce(ctx context.Context) error { return d.announce(ctx) }
