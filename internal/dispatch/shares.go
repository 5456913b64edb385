package dispatch

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// queueShare is how many deliveries of a channel and priority a project may have
// in the job queue. The queue serves its jobs in order, so whoever comes after a
// flood of another project waits for so many of its deliveries at most; the rest
// of the flood is held and let in as its share has room.
const queueShare = 2000

// countInterval is how often what is in the queue is counted, while there is
// anything.
const countInterval = 200 * time.Millisecond

// shares counts what each project has in the job queue: as last read, and what
// this node has put there since. Nodes do not know of each other's latest, so a
// share may be overdrawn by as much as they accept within an interval.
type shares struct {
	mu     sync.Mutex
	queued map[store.Share]int
	dirty  bool
}

func newShares() *shares { return &shares{queued: map[store.Share]int{}} }

// take reports whether one more delivery fits, and counts it.
func (s *shares) take(k store.Share) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued[k] >= queueShare {
		return false
	}
	s.queued[k]++
	s.dirty = true
	return true
}

// room is how many more deliveries fit.
func (s *shares) room(k store.Share) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(queueShare-s.queued[k], 0)
}

// add counts deliveries that were let in.
func (s *shares) add(k store.Share, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued[k] += n
	s.dirty = true
}

// stale reports whether what is known may be wrong.
func (s *shares) stale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dirty
}

// set takes over what was counted.
func (s *shares) set(counted map[store.Share]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queued, s.dirty = counted, len(counted) > 0
}

// countQueue reads what is in the queue.
func (d *Dispatcher) countQueue(ctx context.Context) error {
	if !d.shares.stale() {
		return nil
	}
	counted, err := d.store.Shares(ctx)
	if err != nil {
		return err
	}
	d.shares.set(counted)
	return nil
}

// shareScope is the scope of what waits for its project's share of a channel's
// queue. Which project and priority it is stands on the wait.
func shareScope(c notify.Channel) string { return sharePrefix + string(c) }

const sharePrefix = "queue:"

// holdOver makes those of starts wait that exceed their project's share.
func (d *Dispatcher) holdOver(starts []store.Start, now time.Time) {
	for i := range starts {
		s := &starts[i]
		if s.Wait != nil || d.shares.take(store.Share{Project: s.Project, Channel: s.Channel, Priority: s.Priority}) {
			continue
		}
		s.Because = string(notify.WaitCapacity)
		s.Wait = &store.Wait{
			Reason: notify.WaitCapacity, Scope: shareScope(s.Channel), Held: true, Since: now, Until: now, Due: s.EndsAt,
		}
	}
}

// shareRoom is how many waits of a group may enter the queue, for groups that
// wait for their project's share; ok is false for others.
func (d *Dispatcher) shareRoom(h store.Hold) (n int, ok bool) {
	if !strings.HasPrefix(h.Scope, sharePrefix) {
		return 0, false
	}
	if d.paused()[h.Channel] {
		return 0, true
	}
	return min(d.shares.room(store.Share{Project: h.Project, Channel: h.Channel, Priority: h.Priority}), wakeLimit), true
}
