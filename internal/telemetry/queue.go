package telemetry

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// Queue is what a channel has ahead of it, over all projects.
type Queue struct {
	Channel notify.Channel
	// Queued counts deliveries that can run now or are running.
	Queued int64
	// Waiting counts deliveries that wait, by reason.
	Waiting map[notify.WaitReason]int64
	// OldestDue is how long ago the oldest due but unmoved one became due; 0 for
	// none.
	OldestDue time.Duration
	// OldestHeld is how long ago the oldest delivery began to wait that a breaker,
	// a gate, a pause or a limit holds, by reason; no entry is 0.
	OldestHeld map[notify.WaitReason]time.Duration
}

// ReadQueues reads the queues, normally from the database.
type ReadQueues func(ctx context.Context) ([]Queue, error)

const (
	// queueTimeout bounds one reading, so that a slow database cannot hold up the
	// other metrics.
	queueTimeout = 2 * time.Second
	// queueAge is how old a reading may be: several scrapers cost one reading.
	queueAge = 5 * time.Second
)

// CollectQueues adds gauges that read is asked for when the metrics are scraped.
// A channel that read leaves out has nothing ahead of it. While reading fails the
// gauges are missing, and dispatcher_queue_read_failures_total grows. It is called
// once.
func (m *Metrics) CollectQueues(read ReadQueues) {
	if m != nil {
		m.registry.MustRegister(&queueCollector{read: read, failures: m.queueFailures})
	}
}

type queueCollector struct {
	read     ReadQueues
	failures prometheus.Counter

	mu     sync.Mutex // held while reading
	readAt time.Time
	queues map[notify.Channel]Queue
}

var (
	queuedDesc = prometheus.NewDesc(namespace+"_queued_deliveries",
		"Deliveries that can run now or are running.", []string{"channel"}, nil)
	waitingDesc = prometheus.NewDesc(namespace+"_waiting_deliveries",
		"Deliveries that wait, by why.", []string{"channel", "reason"}, nil)
	oldestDesc = prometheus.NewDesc(namespace+"_oldest_due_seconds",
		"How long ago the oldest delivery that is due but not moved became due.", []string{"channel"}, nil)
	heldDesc = prometheus.NewDesc(namespace+"_held_oldest_seconds",
		"For how long the oldest delivery has been held by a breaker, a gate, a pause or a limit, by which.", []string{"channel", "reason"}, nil)
)

// holding are the reasons for which a delivery is held until its scope has room.
var holding = []notify.WaitReason{
	notify.WaitThrottled, notify.WaitBreakerOpen, notify.WaitPaused, notify.WaitCapacity, notify.WaitBudget,
}

// Describe implements [prometheus.Collector].
func (c *queueCollector) Describe(out chan<- *prometheus.Desc) {
	out <- queuedDesc
	out <- waitingDesc
	out <- oldestDesc
	out <- heldDesc
}

// Collect implements [prometheus.Collector].
func (c *queueCollector) Collect(out chan<- prometheus.Metric) {
	queues := c.current()
	if queues == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, ch := range notify.Channels() {
		q := queues[ch]
		gauge(queuedDesc, float64(q.Queued), string(ch))
		gauge(oldestDesc, q.OldestDue.Seconds(), string(ch))
		for _, reason := range notify.WaitReasons() {
			gauge(waitingDesc, float64(q.Waiting[reason]), string(ch), string(reason))
		}
		for _, reason := range holding {
			gauge(heldDesc, q.OldestHeld[reason].Seconds(), string(ch), string(reason))
		}
	}
}

// current returns a reading that is fresh enough, nil where there is none.
func (c *queueCollector) current() map[notify.Channel]Queue {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queues != nil && time.Since(c.readAt) < queueAge {
		return c.queues
	}
	ctx, cancel := context.WithTimeout(context.Background(), queueTimeout)
	defer cancel()
	list, err := c.read(ctx)
	if err != nil {
		c.failures.Inc()
		c.queues = nil
		return nil
	}
	c.queues, c.readAt = map[notify.Channel]Queue{}, time.Now()
	for _, q := range list {
		c.queues[q.Channel] = q
	}
	return c.queues
}
