package telemetry

import (
	"net/http"
	"strconv"
	"time"
)

// Request counts an HTTP request. route is the pattern that matched, never the
// path itself; empty, or that of the root, where no route did.
func (m *Metrics) Request(route, method string, code int, took time.Duration) {
	if m == nil {
		return
	}
	if route == "" || route == "/" {
		route = "unmatched"
	}
	m.requests.WithLabelValues(route, knownMethod(method), strconv.Itoa(code)).Inc()
	m.requestTimes.WithLabelValues(route).Observe(took.Seconds())
}

// knownMethod keeps what a client makes up out of the labels.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}
