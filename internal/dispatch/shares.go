package dispatch

import (
	"context"
	"sync"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// defaultShare is how many deliveries of a channel and priority a project may have
// in the job queue. The queue serves its jobs in order, so whoever comes after a
// flood of another project waits for so many of its deliveries at most; the rest
// of the flood is held and let in as its share has room.
const defaultShare = 2000

// countInterval is how often what is in the queue is counted, while there is
// anything.
const countInterval = 100 * time.Millisecond

// unseen is for how long at least a count may miss what was put into the queue
// before it: that is not committed yet.
const unseen = 50 * time.Millisecond

// shares counts what each project has in the job queue: as last read, with what
// this node has put there and taken from there since. Nodes do not know of each
// other's latest, so a share may be overdrawn by as much as they accept within an
// interval.
type shares struct {
	most int // of one share

	mu     sync.Mutex
	queued map[store.Share]int
	// recent is what was put there within the last while and the one before it, of
	// which each began so long after the other as a count may miss what was put there.
	recent [2]map[store.Share]int
	turned time.Time
	dirty  bool
	// over are the shares for which something is held that could not be let in; as
	// of an instant.
	over   map[store.Share]bool
	overAt time.Time
}

func newShares(most int) *shares {
	return &shares{most: most, queued: map[store.Share]int{}, recent: [2]map[store.Share]int{{}, {}}}
}

// take reports whether one more delivery fits, and counts it. It does not get ahead
// of what is held already.
func (s *shares) take(k store.Share, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queued[k] >= s.most || s.over[k] && now.Sub(s.overAt) < behindTrust {
		return false
	}
	s.count(k, 1, now)
	return true
}

// room is how many more deliveries fit.
func (s *shares) room(k store.Share) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(s.most-s.queued[k], 0)
}

// add counts deliveries that were let in.
func (s *shares) add(k store.Share, n int, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count(k, n, now)
}

func (s *shares) count(k store.Share, n int, now time.Time) {
	s.turn(now)
	s.queued[k] += n
	s.recent[0][k] += n
	s.dirty = true
}

// fetched takes note of deliveries that this node has taken from the queue. They
// were committed, so that the next count does not miss them either: where a node
// sends as fast as it accepts, what it accepts within an interval is not in the queue.
func (s *shares) fetched(k store.Share, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lower(s.queued, k, n)
	left := n - s.recent[1][k]
	lower(s.recent[1], k, n)
	lower(s.recent[0], k, max(left, 0))
	s.dirty = true
}

func lower(counts map[store.Share]int, k store.Share, by int) {
	if n, ok := counts[k]; ok {
		counts[k] = max(n-by, 0)
	}
}

// turn forgets what every count has seen.
func (s *shares) turn(now time.Time) {
	switch past := now.Sub(s.turned); {
	case past >= 2*unseen:
		s.recent = [2]map[store.Share]int{{}, {}}
	case past >= unseen:
		s.recent = [2]map[store.Share]int{{}, s.recent[0]}
	default:
		return
	}
	s.turned = now
}

// look takes over what the waker has seen.
func (s *shares) look(over map[store.Share]bool, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over, s.overAt = over, now
}

// stale reports whether what is known may be wrong.
func (s *shares) stale() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dirty
}

// set takes over what was counted at an instant.
func (s *shares) set(counted map[store.Share]int, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn(at)
	for _, recent := range s.recent {
		for k, n := range recent {
			counted[k] += n
		}
	}
	s.queued, s.dirty = counted, len(counted) > 0
}

// countQueue reads what is in the queue.
func (d *Dispatcher) countQueue(ctx context.Context) error {
	if !d.shares.stale() {
		return nil
	}
	d.counting.Lock()
	defer d.counting.Unlock()
	at := d.cfg.Now()
	counted, err := d.store.Shares(ctx)
	if err != nil {
		return err
	}
	d.shares.set(counted, at)
	return nil
}

// shareScope is the scope of what waits for its project's share of a channel's
// queue. Which project and priority it is stands on the wait.
func shareScope(c notify.Channel) string { return sharePrefix + string(c) }

const sharePrefix = "queue:"

// keepBack returns the wait of a delivery that is due and may not enter the job
// queue yet, nil if it may: where the like of it is held for places already, it
// would only take up a worker there, and a project may have no more than its share.
// Every delivery that is new in the queue is asked about here once. What is overdue
// may always enter, to be ended.
func (d *Dispatcher) keepBack(of *store.Delivery) *store.Wait {
	local := d.cfg.Now()
	now := d.theirs(local)
	if !of.EndsAt.After(now) {
		return nil
	}
	scope := d.overtakes(of)
	if scope == "" {
		if d.shares.take(store.Share{Project: of.Project, Channel: of.Channel, Priority: of.Priority}, local) {
			return nil
		}
		scope = shareScope(of.Channel)
	}
	return &store.Wait{
		Reason: notify.WaitCapacity, Scope: scope, Held: true, Since: now, Until: now.Add(capacityWait), Due: of.EndsAt,
	}
}

// overtakes returns the scope for whose places something is held that a delivery
// must not get ahead of; empty if there is none.
func (d *Dispatcher) overtakes(of *store.Delivery) string {
	if d.paused()[of.Channel] {
		return "" // it is refused for that
	}
	registry := d.registry.Load()
	by := bounds{{scope: channelScope(of.Channel)}}
	var room [usual]*Account
	key := keyOf(of.Notification, of.Step, of.Target)
	if all := registry.candidates(room[:0], of.Channel, of.Project, of.Pinned, of.Provider, key); len(all) > 0 {
		// While all is well it goes through the first one.
		by = boundsOf(registry.Channel(of.Channel), all[0], scopesFor(all[0].Provider.Info().Provider, of.Scopes))
	}
	return d.flights.overtakes(by, of.Priority)
}

// shareRoom is how many waits of a group may enter the queue, for groups that wait
// for their project's share.
func (d *Dispatcher) shareRoom(h store.Hold) int { return d.shares.room(shareOf(h)) }
