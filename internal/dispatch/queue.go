package dispatch

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Times of the queue. The cool-down is short on every client, since River sends
// at most one wake-up per queue and cool-down of the *inserting* client, and a
// lost one costs a whole poll interval.
const (
	fetchCooldown     = 5 * time.Millisecond
	fetchPollInterval = 100 * time.Millisecond
	// completedRetention is short: status lives in our own tables.
	completedRetention = 10 * time.Minute
)

// jobArgs is River's view of an envelope.
type jobArgs struct{ store.Envelope }

// Kind implements [river.JobArgs].
func (jobArgs) Kind() string { return "deliver" }

// queue implements [store.Queue] on River. There is one River queue per channel,
// and River's priorities are ours.
type queue struct {
	client    *river.Client[pgx.Tx]
	reminders *reminders
}

// Insert implements [store.Queue].
func (q *queue) Insert(ctx context.Context, tx pgx.Tx, envelopes []store.Envelope) ([]int64, error) {
	params := make([]river.InsertManyParams, len(envelopes))
	for i, e := range envelopes {
		params[i] = river.InsertManyParams{
			Args:       jobArgs{e},
			InsertOpts: &river.InsertOpts{Queue: string(e.Channel), Priority: int(e.Priority)},
		}
	}
	rows, err := q.client.InsertManyTx(ctx, tx, params)
	if err != nil {
		return nil, err
	}
	now, last := time.Now(), notify.Channel("")
	for _, e := range envelopes {
		if e.Channel != last { // one notification of River's is for all of a queue
			q.reminders.inserted(string(e.Channel), now)
			last = e.Channel
		}
	}
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.Job.ID
	}
	return ids, nil
}

// worker runs envelopes.
type worker struct {
	river.WorkerDefaults[jobArgs]
	d *Dispatcher
}

// Timeout implements [river.Worker]. A job has none: its calls have deadlines of
// their own, and its results must be recorded however long that takes. River
// never rescues such a job; the reaper does when its node is dead.
func (*worker) Timeout(*river.Job[jobArgs]) time.Duration { return -1 }

// NextRetry implements [river.Worker], for jobs that were given back at a stop.
func (*worker) NextRetry(*river.Job[jobArgs]) time.Time { return time.Now().Add(time.Second) }

// Work implements [river.Worker].
func (w *worker) Work(ctx context.Context, job *river.Job[jobArgs]) error {
	w.d.hands.take(job.ID)
	defer w.d.hands.leave(job.ID)
	e := job.Args.Envelope
	if e.Version > store.EnvelopeVersion {
		return fmt.Errorf("job has version %d and this node knows %d", e.Version, store.EnvelopeVersion)
	}
	e.Priority = notify.Priority(job.Priority)
	w.d.shares.fetched(store.Share{Project: e.Project, Channel: e.Channel, Priority: e.Priority}, len(e.Items))
	if w.d.run(ctx, e) {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err // a stop: River gives the job back at once
	}
	// This node may not call now; another can. The worker is kept for a moment, so
	// that the node does not fetch what it can only put back.
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	return river.JobSnooze(0)
}

// newQueue makes the River client on its own driver. With working false it only
// inserts.
func newQueue(own riverdriver.Driver[pgx.Tx], d *Dispatcher, working bool, log *slog.Logger) (*queue, error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{d: d})
	cfg := &river.Config{
		ID:                          d.node.String(),
		Schema:                      store.Schema,
		Logger:                      quiet(log),
		Workers:                     workers,
		FetchCooldown:               fetchCooldown,
		FetchPollInterval:           fetchPollInterval,
		JobTimeout:                  -1,
		CompletedJobRetentionPeriod: completedRetention,
		CancelledJobRetentionPeriod: completedRetention,
		ReindexerSchedule:           river.NeverSchedule(),
		SoftStopTimeout:             d.cfg.SoftStop,
	}
	if working {
		cfg.Queues = map[string]river.QueueConfig{}
		for _, c := range notify.Channels() {
			limit := max(d.registry.Load().Channel(c).MaxInFlight, minWorkers)
			cfg.Queues[string(c)] = river.QueueConfig{MaxWorkers: min(limit, 10_000)}
		}
	}
	client, err := river.NewClient(driver{own}, cfg)
	if err != nil {
		return nil, fmt.Errorf("make queue: %w", err)
	}
	return &queue{client, newReminders(own.GetExecutor())}, nil
}

// minWorkers is the least number of jobs of a channel that run at once; what they
// may call at once is limited apart from that.
const minWorkers = 64
