package telemetry

import "github.com/prometheus/client_golang/prometheus"

// limitedClasses are the classes of requests that have a limit.
var limitedClasses = []string{"write", "read", "admin", "unauthenticated"}

// Limits are the counts of what enforces the limits on callers.
type Limits struct {
	Local     int64 // decisions that this process made without the others
	Exchanges int64 // with the database
	Failures  int64 // of them that failed
}

// CollectLimits adds counters that read is asked for when the metrics are
// scraped. It is called once.
func (m *Metrics) CollectLimits(read func() Limits) {
	if m == nil {
		return
	}
	count := func(name, help string, of func(Limits) int64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Namespace: namespace, Name: name, Help: help},
			func() float64 { return float64(of(read())) }))
	}
	count("rate_limit_local_total", "Decisions on callers' limits that this process made alone.", func(l Limits) int64 { return l.Local })
	count("rate_limit_exchanges_total", "Exchanges with the database for callers' limits.", func(l Limits) int64 { return l.Exchanges })
	count("rate_limit_exchange_failures_total", "Exchanges for callers' limits that failed.", func(l Limits) int64 { return l.Failures })
}

func (m *Metrics) countLimits() {
	limited := counter(m.registry, "rate_limited_total", "Requests, and rows of batches, that were refused because a limit was spent.", "class")
	m.limited = map[string]prometheus.Counter{}
	for _, class := range limitedClasses {
		m.limited[class] = limited.WithLabelValues(class)
	}
}

// Limited counts n requests of a class that were refused because a limit was
// spent.
func (m *Metrics) Limited(class string, n int) {
	if m == nil {
		return
	}
	if c, ok := m.limited[class]; ok {
		c.Add(float64(n))
	}
}
