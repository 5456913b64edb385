package telemetry

import "github.com/notification-dispatcher/dispatcher/internal/notify"

// What became of a callback.
const (
	CallbackTaken   = "taken"   // it was the provider's, and is kept
	CallbackRefused = "refused" // it was not proven, or could not be read
	CallbackFailed  = "failed"  // it could not be checked or kept; the provider sends it again
)

// noAccount is the label of callbacks for an account that is not configured.
const noAccount = "none"

func (m *Metrics) countReceipts() {
	m.callbacks = counter(m.registry, "provider_callbacks_total", "Callbacks of providers, by what became of them.", "account", "result")
	m.receipts = counter(m.registry, "receipts_reported_total", "Statuses of messages that providers reported, repeats included.", "account", "status")
	m.consents = counter(m.registry, "consents_reported_total", "Stops, starts and complaints of people that providers reported.", "account", "reason")
}

// Callback counts a callback by what became of it, one of the constants above.
// account is a configured one, or empty.
func (m *Metrics) Callback(account, result string) {
	if m == nil {
		return
	}
	if account == "" {
		account = noAccount
	}
	m.callbacks.WithLabelValues(account, result).Inc()
}

// Receipt counts a status that a provider reported.
func (m *Metrics) Receipt(account string, status notify.Status) {
	if m != nil {
		m.receipts.WithLabelValues(account, string(status)).Inc()
	}
}

// Consent counts a stop, a start or a complaint. reason is one of a few words.
func (m *Metrics) Consent(account, reason string) {
	if m != nil {
		m.consents.WithLabelValues(account, reason).Inc()
	}
}
