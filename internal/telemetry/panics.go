package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/notification-dispatcher/dispatcher/internal/panics"
)

func (m *Metrics) countPanics() {
	caught := counter(m.registry, "panics_total", "Panics that were caught, by what they happened in.", "part")
	m.panics = map[panics.Part]prometheus.Counter{}
	for _, p := range panics.Parts() {
		m.panics[p] = caught.WithLabelValues(string(p))
	}
}

// Panicked counts a panic that was caught.
func (m *Metrics) Panicked(p panics.Part) {
	if m == nil {
		return
	}
	if c, ok := m.panics[p]; ok {
		c.Inc()
	}
}
