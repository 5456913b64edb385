package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// batchOfRows has rows from one number to below another.
func batchOfRows(from, to int) string {
	return `{"notifications":[` + strings.Join(rowsOf(from, to), ",") + `]}`
}

func rowsOf(from, to int) []string {
	var rows []string
	for i := from; i < to; i++ {
		rows = append(rows, fmt.Sprintf(`{"reference":"r-%d","to":{"sms":"+14155550100"},"content":{"body":"b"}}`, i))
	}
	return rows
}

func TestABatchCostsItsRows(t *testing.T) {
	t.Parallel()
	t.Run("as JSON all or none", func(t *testing.T) {
		t.Parallel()
		s, told := limitedService(t, 10)
		a := s.do(t, "POST", batchPath, batchOfRows(0, 7)).want(200)
		if got := a.Header().Get("X-RateLimit-Remaining"); got != "3" {
			t.Errorf("%s remain, want 3", got)
		}
		a = s.do(t, "POST", batchPath, batchOfRows(7, 11))
		a.problem(429, "rate_limited")
		if got := a.Header().Get("Retry-After"); got != "7200" { // the try cost one, so four lack two
			t.Errorf("Retry-After %s, want 7200", got)
		}
		s.do(t, "POST", batchPath, batchOfRows(7, 9)).want(200)
		s.do(t, "POST", "/v1/notifications", good).problem(429, "rate_limited")
		if len(s.accepted) != 9 {
			t.Errorf("%d accepted, want 9", len(s.accepted))
		}
		if got := told.counts["write of acme"]; got != 2 {
			t.Errorf("told of %d refusals, want 2", got)
		}
	})
	t.Run("and is refused where it never fits", func(t *testing.T) {
		t.Parallel()
		s, _ := limitedService(t, 10)
		p := s.do(t, "POST", batchPath, batchOfRows(0, 11)).problem(413, "batch_over_burst")
		if !strings.Contains(p.Detail, "10 rows") || s.writes != 0 {
			t.Errorf("%d writes, %s", s.writes, p.Detail)
		}
	})
	t.Run("as lines as far as the limit goes", func(t *testing.T) {
		t.Parallel()
		s, told := limitedService(t, 300)
		got := lines(t, s.do(t, "POST", batchPath, strings.Join(rowsOf(0, 600), "\n"), asLines).want(200).Body)
		statuses := map[int]int{}
		for i, r := range got {
			statuses[r.Status]++
			if r.Status != 202 && (i < 300 || r.Error == nil || r.Error.Code != "rate_limited") {
				t.Fatalf("row %d: %+v", i, r)
			}
		}
		if diff := cmp.Diff(map[int]int{202: 300, 429: 300}, statuses); diff != "" {
			t.Errorf("results (-want +got):\n%s", diff)
		}
		if len(s.accepted) != 300 || told.counts["write of acme"] != 300 {
			t.Errorf("%d accepted, told of %v", len(s.accepted), told.counts)
		}
	})
	t.Run("also where a part of it is larger than the burst", func(t *testing.T) {
		t.Parallel()
		s, _ := limitedService(t, 100)
		s.do(t, "POST", batchPath, strings.Join(rowsOf(0, 200), "\n"), asLines).want(200)
		if len(s.accepted) != 100 {
			t.Errorf("%d accepted, want 100", len(s.accepted))
		}
		got := lines(t, s.do(t, "POST", batchPath, strings.Join(rowsOf(0, 200), "\n"), asLines).Body)
		if len(got) != 0 && got[0].Status != 429 {
			t.Errorf("then %+v", got[0])
		}
	})
}
