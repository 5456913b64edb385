package telemetry

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// appliedReceipts are the series of receipts that were applied to their deliveries.
type appliedReceipts struct {
	applied map[notify.Channel]map[notify.Status]prometheus.Counter
	parked  prometheus.Gauge
}

func countApplied(r *prometheus.Registry) appliedReceipts {
	applied := counter(r, "receipts_applied_total", "Receipts that were applied to their deliveries, each once.", "channel", "status")
	a := appliedReceipts{
		applied: map[notify.Channel]map[notify.Status]prometheus.Counter{},
		parked:  gauge(r, "receipts_parked", "Receipts of messages that nobody knows, counted up to 10,000.").WithLabelValues(),
	}
	for _, c := range notify.Channels() {
		a.applied[c] = map[notify.Status]prometheus.Counter{}
		for _, s := range []notify.Status{notify.Sent, notify.Delivered, notify.Read, notify.Failed} {
			a.applied[c][s] = applied.WithLabelValues(string(c), string(s))
		}
	}
	return a
}

// ReceiptApplied counts a receipt that was applied to its delivery.
func (m *Metrics) ReceiptApplied(c notify.Channel, s notify.Status) {
	if m == nil {
		return
	}
	if counter, ok := m.applied.applied[c][s]; ok {
		counter.Inc()
	}
}

// ReceiptsParked sets how many receipts are of messages that nobody knows.
func (m *Metrics) ReceiptsParked(n int) {
	if m != nil {
		m.applied.parked.Set(float64(n))
	}
}
