package dispatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/riverqueue/river/riverdriver"

	"github.com/notification-dispatcher/dispatcher/internal/store"
)

const (
	// remindInterval is how often it is looked whether nodes have to be reminded.
	remindInterval = 15 * time.Millisecond
	// remindAfter is how long after a job was written nodes are reminded of it. Its
	// transaction has been committed by then, or is so slow that a poll finds it.
	remindAfter = 10 * time.Millisecond
	// insertTopic is what River's clients listen to for new jobs.
	insertTopic = "river_insert"
)

// reminders makes up for notifications of new jobs that River leaves out. A client
// sends none for a queue within the cool-down after the last, taking it that
// nodes will fetch again by then. They do not: what was committed after they
// looked lies there until they poll, ten times as long as all the rest of an
// accepted notification's way to its call.
type reminders struct {
	notify func(ctx context.Context, queues []string) error

	mu   sync.Mutex
	told map[string]time.Time // when River last sent one
	due  map[string]time.Time // since when one is missing
}

// newReminders reminds through River's driver.
func newReminders(own riverdriver.Executor) *reminders {
	return &reminders{told: map[string]time.Time{}, due: map[string]time.Time{}, notify: func(ctx context.Context, queues []string) error {
		p := &riverdriver.NotifyManyParams{Schema: store.Schema, Topic: insertTopic}
		for _, q := range queues {
			p.Payload = append(p.Payload, fmt.Sprintf(`{"queue": %q}`, q))
		}
		return own.NotifyMany(ctx, p)
	}}
}

// inserted takes note of a job that was put into a queue.
func (r *reminders) inserted(queue string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.told[queue]) > fetchCooldown {
		r.told[queue] = now
		return
	}
	if _, ok := r.due[queue]; !ok {
		r.due[queue] = now
	}
}

// take returns the queues that nodes are to be reminded of now.
func (r *reminders) take(now time.Time) (queues []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for q, since := range r.due {
		if now.Sub(since) >= remindAfter {
			queues = append(queues, q)
			delete(r.due, q)
		}
	}
	return queues
}

// remind tells nodes of jobs that nobody was told of. Where that fails they find
// them when they poll.
func (d *Dispatcher) remind(ctx context.Context) error {
	queues := d.queue.reminders.take(time.Now())
	if len(queues) == 0 {
		return nil
	}
	if err := d.queue.reminders.notify(ctx, queues); err != nil {
		return fmt.Errorf("remind nodes of new jobs: %w", err)
	}
	return nil
}
