package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// A fetch marks jobs as running and then tells the node which. Where the answer
// gets lost, with a database that crashes or a connection that breaks, the jobs
// count as running on a node that lives and has never heard of them: neither the
// reaper nor the sweep would move them.
const (
	strayInterval = 5 * time.Second
	// strayAge is longer than River waits for the answer to a fetch.
	strayAge = 15 * time.Second
)

// hands holds the jobs that this node is running.
type hands struct {
	mu   sync.Mutex
	jobs map[int64]struct{}
}

func newHands() *hands { return &hands{jobs: map[int64]struct{}{}} }

func (h *hands) take(job int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.jobs[job] = struct{}{}
}

func (h *hands) leave(job int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.jobs, job)
}

// without returns those of jobs that are not held.
func (h *hands) without(jobs []int64) []int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []int64
	for _, job := range jobs {
		if _, held := h.jobs[job]; !held {
			out = append(out, job)
		}
	}
	return out
}

// returnStrays gives back the jobs that this node was given and does not have.
// One that has just ended and is not yet marked so may be among them: to run it
// once more does nothing, since its deliveries' turns have passed.
func (d *Dispatcher) returnStrays(ctx context.Context) error {
	jobs, err := d.store.JobsOf(ctx, d.node, strayAge)
	if err != nil {
		return err
	}
	strays := d.hands.without(jobs)
	if len(strays) == 0 {
		return nil
	}
	returned, err := d.store.GiveBack(ctx, d.node, strays)
	if err != nil {
		return err
	}
	d.log.WarnContext(ctx, "gave back jobs whose fetch was never answered", slog.Int("jobs", returned))
	return nil
}
