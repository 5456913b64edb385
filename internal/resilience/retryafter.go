// Package resilience holds the state machines that protect a provider and the
// service from each other. It imports only the standard library; time is always
// a parameter.
package resilience

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// RetryAfterCap bounds what a provider can ask for in a Retry-After header.
const RetryAfterCap = time.Hour

// RetryAfter reads the Retry-After fields of an answer (RFC 9110, 10.2.3) and
// returns how long to wait from the instant the answer arrived. ok is false when
// there is none or none that can be understood.
func RetryAfter(h http.Header, received time.Time) (d time.Duration, ok bool) {
	v := strings.Trim(h.Get("Retry-After"), " \t")
	if n, err := strconv.ParseUint(v, 10, 31); err == nil {
		return min(time.Duration(n)*time.Second, RetryAfterCap), true
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(received), 0), RetryAfterCap), true
}
