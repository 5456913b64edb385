package telemetry

// The states of a breaker, as labels.
const (
	BreakerClosed   = "closed"
	BreakerOpen     = "open"
	BreakerHalfOpen = "half_open"
)

func breakerStates() []string { return []string{BreakerClosed, BreakerOpen, BreakerHalfOpen} }

// AddAccount begins the series of a configured account, with its breaker closed.
func (m *Metrics) AddAccount(account string) {
	if m == nil {
		return
	}
	for _, s := range breakerStates() {
		m.transitions.WithLabelValues(account, s)
	}
	m.setBreaker(account, BreakerClosed)
	for _, result := range []string{CallbackTaken, CallbackRefused, CallbackFailed} {
		m.callbacks.WithLabelValues(account, result)
	}
}

// Breaker records that the breaker of an account changed to one of the states
// above. Breakers of narrower scopes, such as a webhook's host, have no series:
// there may be a million of them.
func (m *Metrics) Breaker(account, state string) {
	if m == nil {
		return
	}
	m.setBreaker(account, state)
	m.transitions.WithLabelValues(account, state).Inc()
}

func (m *Metrics) setBreaker(account, state string) {
	for _, s := range breakerStates() {
		v := 0.0
		if s == state {
			v = 1
		}
		m.breakers.WithLabelValues(account, s).Set(v)
	}
}

// Failover counts a call that went through account to because from, which would
// have come first, was passed over.
func (m *Metrics) Failover(from, to, because string) {
	if m == nil {
		return
	}
	m.failovers.WithLabelValues(from, to, because).Inc()
}

// AccountShare records which part of its channel's new deliveries an account gets.
func (m *Metrics) AccountShare(account string, share float64) {
	if m == nil {
		return
	}
	m.shares.WithLabelValues(account).Set(share)
}
