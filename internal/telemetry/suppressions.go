package telemetry

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
)

// suppressionReasons are those that have series of their own: the words of people
// and operators, and the outcomes that put an address on the list.
var suppressionReasons = []string{
	"stop", "complaint", "unsubscribe", "manual", "unreachable", string(notify.RecipientRejected), string(notify.Suppressed), otherReason,
}

// Operator is the source of a suppression that an operator made or lifted.
const Operator = "operator"

func (m *Metrics) countSuppressions() {
	barred := counter(m.registry, "suppressed_deliveries_total", "Deliveries that were not called since their address is suppressed, by why it is.", "channel", "reason")
	m.suppressed = map[notify.Channel]map[string]prometheus.Counter{}
	for _, c := range notify.Channels() {
		m.suppressed[c] = map[string]prometheus.Counter{}
		for _, reason := range suppressionReasons {
			m.suppressed[c][reason] = barred.WithLabelValues(string(c), reason)
		}
	}
	m.suppressions = counter(m.registry, "suppression_changes_total", "Addresses that this process suppressed, for longer than before, or let be written to again.",
		"action", "reason", "source")
}

func suppressionReason(reason string) string {
	if slices.Contains(suppressionReasons, reason) {
		return reason
	}
	return otherReason
}

// Suppressed counts a delivery that was not called since its address is suppressed.
func (m *Metrics) Suppressed(c notify.Channel, reason string) {
	if m == nil {
		return
	}
	if counter, ok := m.suppressed[c][suppressionReason(reason)]; ok {
		counter.Inc()
	}
}

// SuppressionChanged counts a change to a list of suppressions. action is added,
// extended or lifted, source a configured account or [Operator].
func (m *Metrics) SuppressionChanged(action, reason, source string) {
	if m != nil {
		m.suppressions.WithLabelValues(action, suppressionReason(reason), source).Inc()
	}
}
