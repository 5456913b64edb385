package resilience_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/notification-dispatcher/dispatcher/internal/resilience"
)

// received is a Monday.
var received = time.Date(2026, 11, 30, 9, 15, 0, 0, time.UTC)

func TestRetryAfterReadsEveryForm(t *testing.T) {
	const most = resilience.RetryAfterCap
	for _, tt := range []struct {
		name   string
		fields []string
		date   string // the answer's Date field
		want   time.Duration
		ok     bool
	}{
		{"seconds", []string{"120"}, "", 2 * time.Minute, true},
		{"seconds with white space around", []string{" \t120 "}, "", 2 * time.Minute, true},
		{"zero", []string{"0"}, "", 0, true},
		{"leading zeros", []string{"007"}, "", 7 * time.Second, true},
		{"just the cap", []string{"3600"}, "", most, true},
		{"over the cap", []string{"3601"}, "", most, true},
		{"more than 31 bits", []string{"4294967297"}, "", most, true},
		{"seconds that overflow a duration", []string{"9223372037"}, "", most, true},
		{"more than 64 bits", []string{"99999999999999999999"}, "", most, true},

		{"no field", nil, "", 0, false},
		{"empty", []string{""}, "", 0, false},
		{"blank", []string{"  "}, "", 0, false},
		{"plus sign", []string{"+120"}, "", 0, false},
		{"negative", []string{"-1"}, "", 0, false},
		{"fraction", []string{"1.5"}, "", 0, false},
		{"exponent", []string{"1e3"}, "", 0, false},
		{"hexadecimal", []string{"0x10"}, "", 0, false},
		{"digits that are not ASCII", []string{"１２０"}, "", 0, false},
		{"a list in one field", []string{"120, 60"}, "", 0, false},
		{"words", []string{"soon"}, "", 0, false},
		{"unit", []string{"120s"}, "", 0, false},

		{"several fields, the longest counts", []string{"5", "120", "60"}, "", 2 * time.Minute, true},
		{"several fields, one valid", []string{"soon", "60"}, "", time.Minute, true},

		{"IMF-fixdate", []string{"Mon, 30 Nov 2026 09:17:00 GMT"}, "", 2 * time.Minute, true},
		{"RFC 850", []string{"Monday, 30-Nov-26 09:17:00 GMT"}, "", 2 * time.Minute, true},
		{"asctime", []string{"Mon Nov 30 09:17:00 2026"}, "", 2 * time.Minute, true},
		{"asctime with a padded day", []string{"Tue Dec  1 09:17:00 2026"}, "", most, true},
		{"date in the past", []string{"Mon, 30 Nov 2026 09:14:59 GMT"}, "", 0, true},
		{"date beyond the cap", []string{"Wed, 30 Nov 2044 09:14:59 GMT"}, "", most, true},
		{"year 9999", []string{"Fri, 31 Dec 9999 23:59:59 GMT"}, "", most, true},
		{"RFC 850 year not 50 years ahead is ahead", []string{"Friday, 30-Nov-70 09:17:00 GMT"}, "", most, true},
		{"RFC 850 year more than 50 years ahead is past", []string{"Tuesday, 30-Nov-99 09:17:00 GMT"}, "", 0, true},

		{"+0000", []string{"Mon, 30 Nov 2026 09:17:00 +0000"}, "", 2 * time.Minute, true},
		{"UTC", []string{"Mon, 30 Nov 2026 09:17:00 UTC"}, "", 2 * time.Minute, true},
		{"RFC 3339", []string{"2026-11-30T09:17:00Z"}, "", 2 * time.Minute, true},
		{"RFC 3339 with an offset", []string{"2026-11-30T10:17:00+01:00"}, "", 2 * time.Minute, true},
		{"ISO 8601 with a short offset", []string{"2026-11-30T10:17:00+0100"}, "", 2 * time.Minute, true},
		{"ISO 8601 without a zone", []string{"2026-11-30T09:17:00"}, "", 0, false},
		{"lower case", []string{"mon, 30 nov 2026 09:17:00 gmt"}, "", 2 * time.Minute, true},
		{"day of one digit", []string{"Tue, 1 Dec 2026 09:17:00 GMT"}, "Tue, 01 Dec 2026 09:15:00 GMT", 2 * time.Minute, true},
		{"leap second", []string{"Mon, 30 Nov 2026 09:16:60 GMT"}, "", 2 * time.Minute, true},
		{"another zone", []string{"Mon, 30 Nov 2026 09:17:00 PST"}, "", 0, false},
		{"RFC 850 in another zone", []string{"Monday, 30-Nov-26 09:17:00 PST"}, "", 0, false},
		{"no zone", []string{"Mon, 30 Nov 2026 09:17:00"}, "", 0, false},
		{"no such day", []string{"Mon, 31 Nov 2026 09:17:00 GMT"}, "", 0, false},

		{"server's clock an hour behind", []string{"Mon, 30 Nov 2026 08:17:00 GMT"}, "Mon, 30 Nov 2026 08:15:00 GMT", 2 * time.Minute, true},
		{"server's clock a year ahead", []string{"Tue, 30 Nov 2027 09:17:00 GMT"}, "Tue, 30 Nov 2027 09:15:00 GMT", 2 * time.Minute, true},
		{"server's date garbled", []string{"Mon, 30 Nov 2026 09:17:00 GMT"}, "yesterday", 2 * time.Minute, true},
		{"seconds take no notice of the date", []string{"120"}, "Tue, 30 Nov 2027 09:15:00 GMT", 2 * time.Minute, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := http.Header{}
			for _, f := range tt.fields {
				h.Add("Retry-After", f)
			}
			if tt.date != "" {
				h.Set("Date", tt.date)
			}
			got, ok := resilience.RetryAfter(h, received)
			if got != tt.want || ok != tt.ok {
				t.Errorf("RetryAfter(%q) = %v, %t; want %v, %t", tt.fields, got, ok, tt.want, tt.ok)
			}
		})
	}
}

func FuzzRetryAfterStaysWithinBounds(f *testing.F) {
	for _, s := range []string{
		"120", "-1", "99999999999999999999", "Mon, 30 Nov 2026 09:17:00 GMT", "Monday, 30-Nov-26 09:17:00 GMT",
		"Mon Nov 30 09:17:00 2026", "2026-11-30T09:17:00Z", "0000-01-01T00:00:60Z",
	} {
		f.Add(s, "", int64(0))
		f.Add(s, s, int64(1<<62))
	}
	f.Fuzz(func(t *testing.T, field, date string, at int64) {
		h := http.Header{"Retry-After": {field}, "Date": {date}}
		d, ok := resilience.RetryAfter(h, time.Unix(0, at))
		if d < 0 || d > resilience.RetryAfterCap || !ok && d != 0 {
			t.Errorf("RetryAfter(%q, Date %q) = %v, %t", field, date, d, ok)
		}
	})
}
