package dispatch

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river/riverdriver"
)

// driver is River's own, but for one thing. What a listener says of a lost
// connection ends in "conn closed", and a River client that starts takes those
// words for its own stop: it reports success, and a queue whose connection was
// lost just then is never fetched again by this node, or the node never stands
// for leader. Said otherwise, the start fails and is tried again.
type driver struct{ riverdriver.Driver[pgx.Tx] }

// GetListener implements [riverdriver.Driver].
func (d driver) GetListener(p *riverdriver.GetListenenerParams) riverdriver.Listener {
	return listener{d.Driver.GetListener(p)}
}

type listener struct{ riverdriver.Listener }

// Listen implements [riverdriver.Listener].
func (l listener) Listen(ctx context.Context, topic string) error {
	err := l.Listener.Listen(ctx, topic)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("connection of the queue's listener: %w (it is made anew)", err)
	}
	return err
}
