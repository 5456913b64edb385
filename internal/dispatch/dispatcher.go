// Package dispatch is where the pure parts meet the world: it accepts
// notifications in group commits, runs River's jobs, claims each delivery before
// its call, records what came of it, wakes what waits, and takes over what dead
// nodes left.
package dispatch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/panics"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// Config configures a [Dispatcher]. Zero fields take their defaults.
type Config struct {
	// Node names this process; it must be new with every start. Default is a new
	// random one.
	Node     uuid.UUID
	Registry *Registry
	// PublicURL is where the service is reached from outside, for providers' callbacks;
	// empty where it is not.
	PublicURL string
	// Links makes the links in messages; nil for none.
	Links     Links
	Admission Admission
	Metrics   Metrics
	Logger    *slog.Logger
	// Guard is what panics are told to; nil for one that writes to Logger.
	Guard *panics.Guard
	// Work: run jobs; without it the dispatcher only accepts.
	Work bool
	// Hold: with Work, take part in everything but fetch no job, start no call and
	// wake nothing, until Release.
	Hold bool
	// SoftStop is how long calls under way may take at a stop; default 20 s.
	SoftStop time.Duration
	// KeepFinal is how long notifications are kept after their end; default 30
	// days. KeepKeys is how long an idempotency key answers; default 24 h.
	KeepFinal, KeepKeys time.Duration
	// WakeEvery is how often waits are looked at; default 100 ms. SweepEvery is how
	// often every delivery is; default 30 s.
	WakeEvery, SweepEvery time.Duration
	// QueueShare is how many deliveries of one channel and priority a project may have
	// in the job queue at once; default 2000.
	QueueShare int
	// Now is the clock; default time.Now.
	Now func() time.Time
}

// Metrics is what the dispatcher counts.
type Metrics interface {
	Accepted(p notify.Priority, n int)
	Attempt(c notify.Channel, o notify.Outcome, took time.Duration)
	FirstDelivery(c notify.Channel, after time.Duration)
	Fallback(from, to notify.Channel, because string)
	// Failover counts a call through an account other than the one that would have
	// come first.
	Failover(from, to, because string)
	// AccountShare is the part of its channel's new deliveries that an account gets.
	AccountShare(account string, share float64)
	Finished(s notify.Status)
	// Suppressed counts a delivery that was not called since its address is on the
	// list of suppressions, by the reason of the entry there.
	Suppressed(c notify.Channel, reason string)
	// ReceiptApplied counts a receipt, ReceiptsParked sets how many are of messages
	// that nobody knows.
	ReceiptApplied(c notify.Channel, s notify.Status)
	ReceiptsParked(n int)
}

// Dispatcher is one node. It is safe for concurrent use.
type Dispatcher struct {
	cfg      Config
	store    *store.Store
	queue    *queue
	node     uuid.UUID
	registry atomic.Pointer[Registry]
	flights  *flights
	shares   *shares
	counting sync.Mutex // the queue is not counted while the waker moves many into it
	hands    *hands
	lookups  *lookups
	contents *contents
	pauses   atomic.Pointer[map[notify.Channel]bool] // nil until they are known
	alive    *pulse
	skew     skew
	log      *slog.Logger
	guard    *panics.Guard

	accepts  *batcher[store.Acceptance, acceptReply]
	durable  *batcher[store.Claim, claimReply]
	plain    *batcher[store.Claim, claimReply]
	records  *batcher[store.Result, store.Fate]
	locked   *batcher[store.Result, store.Fate] // records what had to wait for a row
	loads    *batcher[store.DeliveryID, *loaded]
	ready    chan struct{}    // closed when Run works
	released chan struct{}    // closed by Release
	heldAt   store.Hold       // where the waker goes on among what is held; its own
	dealt    map[dealt]string // the project that the waker let go last; its own
	swept    uuid.UUID        // where the sweep goes on; of its loop alone
	release  sync.Once

	saidLocked atomic.Pointer[time.Time] // when it was last logged that rows are locked
}

// New makes a node on a store, whose job queue it becomes.
func New(s *store.Store, cfg Config) (*Dispatcher, error) {
	if cfg.Registry == nil || cfg.Admission == nil || cfg.Metrics == nil {
		return nil, errors.New("dispatch: registry, admission and metrics must be given")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.SoftStop == 0 {
		cfg.SoftStop = 20 * time.Second
	}
	if cfg.KeepFinal == 0 {
		cfg.KeepFinal = 30 * 24 * time.Hour
	}
	if cfg.KeepKeys == 0 {
		cfg.KeepKeys = 24 * time.Hour
	}
	if cfg.WakeEvery == 0 {
		cfg.WakeEvery = wakeInterval
	}
	if cfg.SweepEvery == 0 {
		cfg.SweepEvery = sweepInterval
	}
	if cfg.QueueShare == 0 {
		cfg.QueueShare = defaultShare
	}
	if cfg.Guard == nil {
		cfg.Guard = panics.New(cfg.Logger, nil)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Node == uuid.Nil {
		cfg.Node = uuid.New()
	}
	d := &Dispatcher{
		cfg: cfg, store: s, node: cfg.Node, log: cfg.Logger, guard: cfg.Guard, shares: newShares(cfg.QueueShare), dealt: map[dealt]string{},
		hands: newHands(), lookups: newLookups(), contents: newContents(), alive: newPulse(),
		ready: make(chan struct{}), released: make(chan struct{}),
	}
	if !cfg.Hold {
		d.Release()
	}
	d.flights = newFlights(d.now)
	d.registry.Store(cfg.Registry)
	var err error
	if d.queue, err = newQueue(riverpgxv5.New(s.Pool()), d, cfg.Work, cfg.Logger); err != nil {
		return nil, err
	}
	s.SetQueue(d.queue)
	d.accepts = newBatcher(batcher[store.Acceptance, acceptReply]{flush: guarded(d, "accept", d.flushAccepts), max: 1000, patience: 5 * time.Second})
	d.durable = newBatcher(batcher[store.Claim, claimReply]{flush: guarded(d, "claim", d.flushClaims(true)), max: 500, same: sameClaim})
	d.plain = newBatcher(batcher[store.Claim, claimReply]{flush: guarded(d, "claim", d.flushClaims(false)), max: 500, linger: time.Millisecond, busy: 16, same: sameClaim})
	d.records = newBatcher(batcher[store.Result, store.Fate]{flush: guarded(d, "record", d.flushRecords), max: 1000, linger: 2 * time.Millisecond, same: sameResult})
	d.locked = newBatcher(batcher[store.Result, store.Fate]{flush: guarded(d, "record", d.flushRecords), max: 100, linger: 10 * time.Millisecond, same: sameResult})
	d.loads = newBatcher(batcher[store.DeliveryID, *loaded]{flush: guarded(d, "load", d.flushLoads), max: 500, patience: 5 * time.Second})
	return d, nil
}

func sameClaim(c store.Claim) any   { return c.DeliveryID }
func sameResult(r store.Result) any { return r.DeliveryID }

// Node is the id under which the node claims deliveries.
func (d *Dispatcher) Node() uuid.UUID { return d.node }

// SetRegistry replaces the configured accounts, for calls that start from now on.
func (d *Dispatcher) SetRegistry(r *Registry) { d.registry.Store(r) }

// Registry returns the configured accounts.
func (d *Dispatcher) Registry() *Registry { return d.registry.Load() }

// Release lets a node that was started on hold begin to work.
func (d *Dispatcher) Release() { d.release.Do(func() { close(d.released) }) }

// Working reports whether the node works: its queue runs, unless it is on hold,
// and its heartbeat is confirmed.
func (d *Dispatcher) Working() bool {
	if d.cfg.Work && !d.alive.beating(d.cfg.Now()) {
		return false
	}
	return closed(d.ready) || d.cfg.Hold && !closed(d.released)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Run works until ctx ends and then stops softly: it fetches nothing more, lets
// calls under way finish within SoftStop, and writes every result before it
// returns. It may be called once.
func (d *Dispatcher) Run(ctx context.Context) error {
	// Batchers and the heartbeat outlive the jobs that need them.
	base, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	// With the database away there is a point at which waiting for it must end.
	defer context.AfterFunc(ctx, func() { time.AfterFunc(d.cfg.SoftStop+lastStand, end) })()
	d.accepts.start(base, 2)
	d.durable.start(base, 1)
	d.plain.start(base, 2)
	d.records.start(base, 1)
	d.locked.start(base, 1)
	d.loads.start(base, 1)

	var background sync.WaitGroup
	err := d.work(ctx, base, &background)
	background.Wait()
	d.lookups.running.Wait()
	end()
	for _, wait := range []func(){d.accepts.wait, d.durable.wait, d.plain.wait, d.records.wait, d.locked.wait, d.loads.wait} {
		wait()
	}
	return err
}

// work runs the queue and the loops beside it until ctx ends and every job is
// done. base is the life of what jobs need.
func (d *Dispatcher) work(ctx, base context.Context, background *sync.WaitGroup) error {
	background.Go(func() { d.every(ctx, countInterval, "count the queue", d.countQueue) })
	background.Go(func() { d.every(ctx, remindInterval, "remind nodes of new jobs", d.remind) })
	if !d.cfg.Work {
		close(d.ready)
		<-ctx.Done()
		return nil
	}
	name, err := os.Hostname()
	if err != nil {
		name = "unknown"
	}
	pulseCtx, stopPulse := context.WithCancel(base)
	defer stopPulse()
	background.Go(func() { d.beat(pulseCtx, name) })
	loops, stopLoops := context.WithCancel(ctx)
	defer stopLoops()
	background.Go(func() { d.every(loops, d.cfg.WakeEvery, "wake", d.wake) })
	background.Go(func() { d.every(loops, d.cfg.WakeEvery, "announce what was enqueued in SQL", d.announce) })
	background.Go(func() { d.every(loops, d.cfg.WakeEvery, "apply cancels", d.applyCancels) })
	background.Go(func() { d.every(loops, d.cfg.WakeEvery, "apply receipts", d.receive) })
	background.Go(func() { d.every(loops, pollInterval, "ask for receipts", d.poll) })
	background.Go(func() { d.every(loops, parkedInterval, "count parked receipts", d.countParked) })
	background.Go(func() { d.every(loops, time.Second, "read pauses", d.readPauses) })
	background.Go(func() {
		d.every(loops, watchInterval, "see which accounts serve", d.watchAccounts(&serving{because: map[string]string{}}))
	})
	background.Go(func() { d.every(loops, time.Second, "take over dead nodes", d.reap) })
	background.Go(func() { d.every(loops, d.cfg.SweepEvery, "sweep", d.sweep) })
	background.Go(func() { d.every(loops, min(strayInterval, d.cfg.SweepEvery), "look for stray jobs", d.returnStrays) })
	background.Go(func() { d.every(loops, expireInterval, "delete what is past retention", d.expire) })
	// What is fetched before this node may call would only have to be put back.
	for _, needed := range []<-chan struct{}{d.alive.first, d.released} {
		select {
		case <-needed:
		case <-ctx.Done():
			return nil
		}
	}
	if err := d.readPauses(ctx); err != nil && ctx.Err() == nil {
		d.log.WarnContext(ctx, "pauses cannot be read yet", slog.Any("error", err))
	}
	if err := d.startQueue(ctx); err != nil {
		return err
	}
	close(d.ready)
	<-d.queue.client.Stopped()
	return nil
}

// startQueue starts River, again and again while the database is away.
func (d *Dispatcher) startQueue(ctx context.Context) error {
	for {
		err := d.queue.client.Start(ctx)
		if err == nil || ctx.Err() != nil {
			return nil //nolint:nilerr // stopped before it began
		}
		if store.Classify(err) != store.Transient {
			return fmt.Errorf("start queue: %w", err)
		}
		d.log.WarnContext(ctx, "the queue cannot start yet", slog.Any("error", err))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
}

// every calls do now and at the interval until ctx ends. A failure is logged when its
// text changes, not at every round.
func (d *Dispatcher) every(ctx context.Context, interval time.Duration, what string, do func(context.Context) error) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for last := ""; ctx.Err() == nil; {
		err := d.guard.Round(ctx, what, do)
		switch {
		case err == nil && last != "":
			d.log.InfoContext(ctx, "works again", slog.String("task", what))
			last = ""
		case err != nil && ctx.Err() == nil && err.Error() != last:
			last = err.Error()
			d.log.WarnContext(ctx, "failed and will be tried again", slog.String("task", what), slog.Any("error", err))
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}
