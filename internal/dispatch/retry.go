package dispatch

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// turnsOfRound is where the turns of a round begin: beyond those of the round
// before, so that no job, wait or attempt of that one can be taken for a new one.
// The job of a delivery that had more turns than this is dropped, and the sweep
// makes another.
const turnsOfRound = 1 << 20

// Retry starts a new round of what failed in a notification that has ended. In
// mode first the chain begins at its first step again, since every step failed;
// in mode all each failed step does. A zero expires means for as long from now
// as the notification could be sent at first.
func (d *Dispatcher) Retry(ctx context.Context, project string, id uuid.UUID, expires time.Time) (store.Retry, error) {
	now := d.now()
	return d.store.Retry(ctx, project, id, expires, now, func(r store.Record) []store.Start {
		const why = "retried"
		n := &r.Notification
		if n.Mode == notify.First {
			return d.starts(n, 0, why, now)
		}
		var out []store.Start
		for i, deliveries := range r.ByStep() {
			if !notify.UntilAccepted.MetBy(notify.StepStatus(deliveries)) {
				out = append(out, d.starts(n, i, why, now)...)
			}
		}
		return out
	})
}
