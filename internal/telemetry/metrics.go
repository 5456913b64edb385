package telemetry

import (
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/panics"
)

const namespace = "dispatcher"

// Metrics counts what happens. Its methods are cheap enough for every message:
// each label combination that can be known beforehand is resolved when it is
// made, and begins at 0. A nil *Metrics counts nothing.
type Metrics struct {
	registry      *prometheus.Registry
	accepted      map[notify.Priority]prometheus.Counter
	finished      map[notify.Status]prometheus.Counter
	channels      map[notify.Channel]*channelMetrics
	breakers      *prometheus.GaugeVec
	failovers     *prometheus.CounterVec
	shares        *prometheus.GaugeVec
	transitions   *prometheus.CounterVec
	requests      *prometheus.CounterVec
	requestTimes  *prometheus.HistogramVec
	callbacks     *prometheus.CounterVec
	receipts      *prometheus.CounterVec
	consents      *prometheus.CounterVec
	applied       appliedReceipts
	queueFailures prometheus.Counter
	suppressed    map[notify.Channel]map[string]prometheus.Counter // by reason
	suppressions  *prometheus.CounterVec
	panics        map[panics.Part]prometheus.Counter
	limited       map[string]prometheus.Counter // by class of route
}

// channelMetrics are the series of one channel.
type channelMetrics struct {
	attempts  map[notify.Outcome]prometheus.Counter
	duration  prometheus.Observer
	first     prometheus.Observer
	fallbacks map[notify.Channel]map[string]prometheus.Counter // by next channel and reason
}

// New returns metrics in a registry of their own, with those of the Go runtime
// and the process beside them.
func New(version string) *Metrics {
	m := &Metrics{registry: prometheus.NewRegistry()}
	m.registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	gauge(m.registry, "build_info", "Always 1; its labels say what runs.", "version", "go_version").
		WithLabelValues(version, runtime.Version()).Set(1)
	m.countNotifications()
	m.countDeliveries()
	m.countLimits()
	m.applied = countApplied(m.registry)
	m.countReceipts()
	m.countPanics()
	m.countSuppressions()
	m.breakers = gauge(m.registry, "breaker_state", "1 for the state that the breaker of an account is in, 0 for the others.", "account", "state")
	m.transitions = counter(m.registry, "breaker_transitions_total", "Changes of an account's breaker, as this process saw them.", "account", "to")
	m.failovers = counter(m.registry, "account_failovers_total", "Calls through an account other than the one that would have come first.", "from", "to", "reason")
	m.shares = gauge(m.registry, "account_share", "The part of its channel's new deliveries that an account gets from this process.", "account")
	m.requests = counter(m.registry, "http_requests_total", "HTTP requests answered.", "route", "method", "code")
	m.requestTimes = histogram(m.registry, "http_request_duration_seconds", "Time to answer an HTTP request.", quick, "route")
	m.queueFailures = counter(m.registry, "queue_read_failures_total", "Scrapes that could not read the queues' gauges from the database.").WithLabelValues()
	return m
}

func (m *Metrics) countNotifications() {
	m.accepted = map[notify.Priority]prometheus.Counter{}
	accepted := counter(m.registry, "notifications_accepted_total", "Notifications accepted.", "priority")
	for p := notify.Critical; p <= notify.Low; p++ {
		m.accepted[p] = accepted.WithLabelValues(p.String())
	}
	m.finished = map[notify.Status]prometheus.Counter{}
	finished := counter(m.registry, "notifications_finished_total", "Notifications that ended, by how.", "outcome")
	for _, s := range notify.NotificationStatuses() {
		if s != notify.Queued && s != notify.Sending {
			m.finished[s] = finished.WithLabelValues(string(s))
		}
	}
}

func (m *Metrics) countDeliveries() {
	attempts := counter(m.registry, "delivery_attempts_total", "Calls to providers, by outcome.", "channel", "outcome")
	duration := histogram(m.registry, "delivery_attempt_duration_seconds", "Time of one call to a provider.", quick, "channel")
	first := histogram(m.registry, "time_to_first_delivery_seconds",
		"Time from when a notification was due until a provider first accepted it.", slow, "channel")
	fallbacks := counter(m.registry, "fallbacks_total", "Moves to the next step of a chain.", "from", "to", "reason")
	m.channels = map[notify.Channel]*channelMetrics{}
	for _, c := range notify.Channels() {
		of := &channelMetrics{
			attempts:  map[notify.Outcome]prometheus.Counter{},
			duration:  duration.WithLabelValues(string(c)),
			first:     first.WithLabelValues(string(c)),
			fallbacks: map[notify.Channel]map[string]prometheus.Counter{},
		}
		for _, o := range notify.Outcomes() {
			of.attempts[o] = attempts.WithLabelValues(string(c), string(o))
		}
		for _, to := range notify.Channels() {
			of.fallbacks[to] = map[string]prometheus.Counter{}
			for _, reason := range fallbackReasons {
				of.fallbacks[to][reason] = fallbacks.WithLabelValues(string(c), string(to), reason)
			}
		}
		m.channels[c] = of
	}
}

// Accepted counts n notifications that were accepted.
func (m *Metrics) Accepted(p notify.Priority, n int) {
	if m == nil {
		return
	}
	if c, ok := m.accepted[p]; ok {
		c.Add(float64(n))
	}
}

// Finished counts a notification that came to its end with status s.
func (m *Metrics) Finished(s notify.Status) {
	if m == nil {
		return
	}
	if c, ok := m.finished[s]; ok {
		c.Inc()
	}
}

// Attempt counts one call to a provider and how long it took.
func (m *Metrics) Attempt(c notify.Channel, o notify.Outcome, took time.Duration) {
	if m == nil {
		return
	}
	of, ok := m.channels[c]
	if !ok {
		return
	}
	if count, ok := of.attempts[o]; ok {
		count.Inc()
	}
	of.duration.Observe(took.Seconds())
}

// FirstDelivery records that a provider accepted a notification for the first
// time, so long after it was due.
func (m *Metrics) FirstDelivery(c notify.Channel, after time.Duration) {
	if m == nil {
		return
	}
	if of, ok := m.channels[c]; ok {
		of.first.Observe(max(after, 0).Seconds())
	}
}

const otherReason = "other"

// fallbackReasons are the reasons that have series of their own.
var fallbackReasons = []string{
	string(notify.Unknown), string(notify.Throttled), string(notify.ProviderUnavailable),
	string(notify.RecipientUnavailable), string(notify.RecipientRejected), string(notify.MessageRejected),
	string(notify.AccountRejected), string(notify.Suppressed), string(notify.WaitBreakerOpen),
	"overdue", "no_receipt", "undelivered", "no_account", otherReason,
}

// Fallback counts a move from one step of a chain to the next. because is why the
// first one ended; what stands after a colon in it is left out.
func (m *Metrics) Fallback(from, to notify.Channel, because string) {
	if m == nil {
		return
	}
	of, ok := m.channels[from]
	if !ok {
		return
	}
	reason, _, _ := strings.Cut(because, ":")
	if !slices.Contains(fallbackReasons, reason) {
		reason = otherReason
	}
	if c, ok := of.fallbacks[to][reason]; ok {
		c.Inc()
	}
}

// Handler answers a scrape.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Registry is where all of them are, for collectors of other packages.
func (m *Metrics) Registry() *prometheus.Registry { return m.registry }
