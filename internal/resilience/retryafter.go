// Package resilience holds the state machines that protect a provider and the
// service from each other. It imports only the standard library; time is always
// a parameter.
package resilience

import (
	"net/http"
	"strings"
	"time"
)

// RetryAfterCap bounds what a provider can ask for in a Retry-After header.
const RetryAfterCap = time.Hour

// RetryAfter reads the Retry-After fields of an answer (RFC 9110, 10.2.3) and
// returns how long to wait from received, the instant the answer arrived: at
// least 0, at most [RetryAfterCap]. ok is false when there is no field, or none
// that can be understood; of several the longest counts.
//
// A field is a number of seconds in ASCII digits, or a date in one of the three
// forms of RFC 9110, 5.6.7. Read leniently are a date's letter case, a day of
// one digit, the second 60, UTC or +0000 for GMT, and RFC 3339. A date is
// measured against the answer's own Date field where there is one, so that it
// does not matter whether the two clocks agree. A floor and jitter are the
// caller's to add.
func RetryAfter(h http.Header, received time.Time) (d time.Duration, ok bool) {
	fields := h["Retry-After"]
	if len(fields) == 0 {
		return 0, false
	}
	base := received
	if date, found := parseDate(h.Get("Date"), received); found {
		base = date
	}
	for _, field := range fields {
		field = strings.Trim(field, " \t")
		v, valid := parseSeconds(field)
		if !valid {
			var at time.Time
			if at, valid = parseDate(field, received); valid {
				v = min(max(at.Sub(base), 0), RetryAfterCap)
			}
		}
		if valid {
			d, ok = max(d, v), true
		}
	}
	return d, ok
}

// parseSeconds reads 1*DIGIT, however long, and clamps it to the cap. [strconv]
// would take a sign and fail on what overflows.
func parseSeconds(s string) (time.Duration, bool) {
	if s == "" {
		return 0, false
	}
	const most = int64(RetryAfterCap / time.Second)
	var n int64
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = min(n*10+int64(s[i]-'0'), most)
	}
	return time.Duration(n) * time.Second, true
}

// maxDate is longer than any date in one of the forms below.
const maxDate = 64

// parseDate reads an HTTP date. near resolves the two-digit year of RFC 850.
func parseDate(s string, near time.Time) (time.Time, bool) {
	s = strings.ToUpper(strings.Trim(s, " \t"))
	if s == "" || len(s) > maxDate {
		return time.Time{}, false
	}
	// The leap second, which package time does not know.
	var leap time.Duration
	if before, after, found := strings.Cut(s, ":60"); found {
		s, leap = before+":59"+after, time.Second
	}
	t, ok := parseZoned(s, near)
	return t.Add(leap), ok
}

func parseZoned(s string, near time.Time) (time.Time, bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05Z0700"} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, true
		}
	}
	if t, err := time.Parse(time.ANSIC, s); err == nil {
		return t, true
	}
	// Any other zone is refused: package time would read "PST" as if it were UTC.
	for _, zone := range []string{" GMT", " UTC", " +0000", " -0000"} {
		local, found := strings.CutSuffix(s, zone)
		if !found {
			continue
		}
		if t, err := time.Parse("Mon, 2 Jan 2006 15:04:05", local); err == nil {
			return t, true
		}
		if t, err := time.Parse("Monday, 2-Jan-06 15:04:05", local); err == nil {
			return nearest(t, near), true
		}
	}
	return time.Time{}, false
}

// nearest moves a date with a two-digit year into the latest century that is not
// more than 50 years ahead of near (RFC 9110, 5.6.7).
func nearest(t, near time.Time) time.Time {
	century := near.Year() - near.Year()%100 + 100
	limit := near.AddDate(50, 0, 0)
	for {
		moved := t.AddDate(century+t.Year()%100-t.Year(), 0, 0)
		if !moved.After(limit) {
			return moved
		}
		century -= 100
	}
}
