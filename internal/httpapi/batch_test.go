package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
)

type result struct {
	Index       int              `json:"index"`
	Status      int              `json:"status"`
	ID          string           `json:"id"`
	Replayed    bool             `json:"replayed"`
	DuplicateOf *int             `json:"duplicate_of"`
	Error       *httpapi.Problem `json:"error"`
}

// results decodes the answer to a JSON batch.
func (a answer) results() []result {
	a.t.Helper()
	var v struct {
		Results []result `json:"results"`
	}
	a.want(200).into(&v)
	for i, r := range v.Results {
		if r.Index != i {
			a.t.Errorf("result %d has index %d", i, r.Index)
		}
	}
	return v.Results
}

// lines decodes an answer of lines.
func lines(tb testing.TB, body io.Reader) []result {
	tb.Helper()
	var out []result
	scanner := bufio.NewScanner(body)
	for scanner.Scan() {
		var r result
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			tb.Fatalf("%v in %s", err, scanner.Text())
		}
		if r.Index != len(out) {
			tb.Errorf("line %d has index %d", len(out), r.Index)
		}
		out = append(out, r)
	}
	if err := scanner.Err(); err != nil {
		tb.Error(err)
	}
	return out
}

const batchPath = "/v1/notifications/batch"

var asLines = header{"Content-Type", "application/x-ndjson"}

func TestBadRowsOfABatchDoNotSinkGoodOnes(t *testing.T) {
	rows := []string{
		`{"to":{"sms":"+14155550100"}}`,
		`{"to":{"sms":"not a number"}}`,
		`{"to":{"email":"ana@example.com"},"content":{"title":"own","body":"own"}}`,
		`"no object"`,
		`{"to": {"sms" : "+14155550100"} }`, // the first again, spaced otherwise
		`{"to":{"sms":"+14155550100"},"reference":"another"}`,
		`{"to":{"sms":"+14155550100"},"to":{}}`,
		`{"to":{"sms":"+14155550100"},"content":null}`, // null takes a default away
	}
	want := []int{202, 422, 202, 422, 409, 202, 400, 422}
	check := func(t *testing.T, s *service, got []result) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%d results", len(got))
		}
		for i, r := range got {
			if r.Status != want[i] || (r.Status == 202) != (r.ID != "") || (r.Status == 202) == (r.Error != nil) {
				t.Errorf("row %d: %+v, want %d", i, r, want[i])
			}
		}
		if d := got[4].DuplicateOf; d == nil || *d != 0 || got[4].Error.Code != "duplicate_row" {
			t.Errorf("duplicate: %+v", got[4])
		}
		if e := got[1].Error.Errors; len(e) != 1 || e[0].Pointer != "/to/sms" || e[0].Code != "format" {
			t.Errorf("errors %+v", e)
		}
		if len(s.accepted) != 3 {
			t.Fatalf("%d accepted", len(s.accepted))
		}
		for _, a := range s.accepted {
			n := a.Notification
			if own := n.To.Email != nil; n.Priority.String() != "low" || own != (n.Content.Title == "own") {
				t.Errorf("defaults were not taken: %+v", n)
			}
		}
	}
	const defaults = `{"content":{"title":"t","body":"b"},"priority":"low"}`
	t.Run("JSON", func(t *testing.T) {
		s := newService(t)
		check(t, s, s.do(t, "POST", batchPath, `{"defaults":`+defaults+`,"notifications":[`+strings.Join(rows, ",")+`]}`).results())
	})
	t.Run("lines", func(t *testing.T) {
		s := newService(t)
		body := `{"defaults":` + defaults + "}\r\n\n" + strings.Join(rows, "\n")
		a := s.do(t, "POST", batchPath, body, asLines).want(200)
		if got := a.Header().Get("Content-Type"); got != "application/x-ndjson" {
			t.Errorf("Content-Type %q", got)
		}
		check(t, s, lines(t, a.Body))
	})
}

func TestBatchesThatAreNone(t *testing.T) {
	row := `{"to":{"sms":"+14155550100"},"content":{"body":"b"}}`
	for name, tt := range map[string]struct {
		body  string
		lines bool
		code  int
		want  string
	}{
		"empty":              {body: ``, code: 400, want: " malformed"},
		"broken":             {body: `{"notifications":[`, code: 400, want: " malformed"},
		"a list":             {body: `[]`, code: 422, want: " type"},
		"nothing in it":      {body: `{}`, code: 422, want: "/notifications required"},
		"no row":             {body: `{"notifications":[]}`, code: 422, want: "/notifications required"},
		"rows that are none": {body: `{"notifications":{}}`, code: 422, want: "/notifications type"},
		"another member":     {body: `{"notifications":[` + row + `],"dry_run":true}`, code: 422, want: " unknown_member"},
		"a member twice":     {body: `{"notifications":[` + row + `],"notifications":[]}`, code: 400, want: " duplicate_member"},
		"a default of none":  {body: `{"defaults":{"nothing":1},"notifications":[` + row + `]}`, code: 422, want: "/defaults unknown_member"},
		"defaults of a list": {body: `{"defaults":[],"notifications":[` + row + `]}`, code: 422, want: "/defaults type"},
		"too many rows":      {body: `{"notifications":[` + strings.Repeat("1,", 1000) + `1]}`, code: 422, want: "/notifications length"},
		"no line":            {body: "\n\n", lines: true, code: 422, want: " required"},
		"wrong defaults":     {body: `{"defaults":{"nothing":1}}` + "\n" + row, lines: true, code: 422, want: "/defaults unknown_member"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			headers := []header{}
			if tt.lines {
				headers = append(headers, asLines)
			}
			code := map[int]string{400: "bad_request", 422: "invalid_request"}[tt.code]
			if got := places(s.do(t, "POST", batchPath, tt.body, headers...).problem(tt.code, code)); len(got) != 1 || got[0] != tt.want {
				t.Errorf("errors %v, want %s", got, tt.want)
			}
			if s.writes != 0 {
				t.Error("the store saw it")
			}
		})
	}
}

func TestJSONBatchesHaveABoundOfTheirOwn(t *testing.T) {
	s := newService(t, func(c *httpapi.Config) { c.MaxBody, c.MaxBatchBody = 100, 1000 })
	body := `{"notifications":[` + good + `]}`
	s.do(t, "POST", batchPath, strings.Replace(body, "{", "{"+strings.Repeat(" ", 1000-len(body)), 1)).want(200)
	s.do(t, "POST", batchPath, strings.Replace(body, "{", "{"+strings.Repeat(" ", 1001-len(body)), 1)).problem(413, "body_too_large")
}

func TestALineThatIsTooLongIsRefusedAlone(t *testing.T) {
	s := newService(t)
	row := func(i int) string { return fmt.Sprintf(`{"to":{"sms":"+1415555%04d"},"content":{"body":"b"}}`, i) }
	body := row(1) + "\n" + `{"metadata":"` + strings.Repeat("x", 1<<20) + `"}` + "\n" + row(2)
	got := lines(t, s.do(t, "POST", batchPath, body, asLines).want(200).Body)
	if len(got) != 3 || got[0].Status != 202 || got[1].Status != 413 || got[2].Status != 202 {
		t.Errorf("results %+v", got)
	}
}

func TestAnOutageEndsABatchThatCanBeRepeated(t *testing.T) {
	s := newService(t)
	s.err = context.DeadlineExceeded
	var body strings.Builder
	for i := range 600 {
		fmt.Fprintf(&body, `{"to":{"sms":"+1415555%04d"},"content":{"body":"b"}}`+"\n", i)
	}
	got := lines(t, s.do(t, "POST", batchPath, body.String(), asLines).want(200).Body)
	if len(got) != 600 {
		t.Fatalf("%d results", len(got))
	}
	for _, r := range got {
		if r.Status != 503 || r.Error.Code != "unavailable" {
			t.Fatalf("result %+v", r)
		}
	}
	if s.writes != 250 {
		t.Errorf("%d writes: what follows a part that failed is not to be tried", s.writes)
	}
}

func TestARowThatPanicsIsAProblemWithoutItsText(t *testing.T) {
	s := newService(t)
	s.panics = true
	got := lines(t, s.do(t, "POST", batchPath, `{"to":{"sms":"+14155550100"},"content":{"body":"b"}}`+"\n", asLines).want(200).Body)
	if len(got) != 1 || got[0].Status != 500 || got[0].Error.Code != "internal" {
		t.Errorf("results %+v", got)
	}
	if said := s.log.String(); !strings.Contains(said, `task="accept a row"`) || strings.Contains(said, "secret of") {
		t.Errorf("the log: %s", said)
	}
}

// numbered is a batch of lines, made while it is read.
type numbered struct {
	rows, size, next int
	buf              bytes.Buffer
	read             atomic.Int64
}

func (n *numbered) Read(p []byte) (int, error) {
	for n.buf.Len() == 0 {
		if n.next == n.rows {
			return 0, io.EOF
		}
		fmt.Fprintf(&n.buf, `{"to":{"email":"u%d@example.com"},"content":{"title":"t","body":"%s"}}`+"\n", n.next, strings.Repeat("x", n.size))
		n.next++
	}
	c, err := n.buf.Read(p)
	n.read.Add(int64(c))
	return c, err
}

// Four thousand rows of 5 kB are 20 MB: they must not be in memory together.
func TestALongBatchIsWorkedThroughInLittleMemory(t *testing.T) {
	const rows = 4000
	s, db := overPostgres(t)
	acme := keyFor(t, db, "acme")
	server := httptest.NewServer(s.api)
	defer server.Close()
	var peak atomic.Uint64
	ctx, stop := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	watching.Go(func() {
		for ctx.Err() == nil {
			runtime.GC() // so that what is counted is in use
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			peak.Store(max(peak.Load(), m.HeapAlloc))
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	body := &numbered{rows: rows, size: 5000}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+batchPath, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", acme.value)
	r.Header.Set("Content-Type", "application/x-ndjson")
	started := time.Now()
	resp, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close() //nolint:errcheck // only read
	if early := body.read.Load(); resp.StatusCode != http.StatusOK || early > 15<<20 {
		t.Errorf("status %d after %d bytes: the answer has to begin while the body arrives", resp.StatusCode, early)
	}
	got := lines(t, resp.Body)
	took := time.Since(started)
	stop()
	watching.Wait()
	ids := map[string]bool{}
	for _, r := range got {
		if r.Status != 202 {
			t.Fatalf("result %+v", r)
		}
		ids[r.ID] = true
	}
	if len(got) != rows || len(ids) != rows {
		t.Errorf("%d results with %d ids", len(got), len(ids))
	}
	used := int64(peak.Load()) - int64(before.HeapAlloc)
	t.Logf("%d rows in %s, %.1f MiB of heap at most", rows, took.Round(time.Millisecond), float64(used)/(1<<20))
	if used > 20<<20 {
		t.Errorf("%d bytes of heap", used)
	}
}

func TestABatchOfTooManyLinesIsAnsweredUpToThere(t *testing.T) {
	s := newService(t)
	rows := &numbered{rows: 10_001, size: 1}
	body, err := io.ReadAll(rows)
	if err != nil {
		t.Fatal(err)
	}
	got := lines(t, s.do(t, "POST", batchPath, string(body), asLines).want(200).Body)
	if len(got) != 10_001 || got[9999].Status != 202 || got[10_000].Status != 413 || len(s.accepted) != 10_000 {
		t.Errorf("%d results, the last %+v", len(got), got[len(got)-1])
	}
}

// batchOf is a JSON batch of so many different rows, one of them wrong.
func batchOf(rows int) string {
	var b strings.Builder
	b.WriteString(`{"defaults":{"content":{"body":"b"}},"notifications":[{"to":{"sms":"wrong"}}`)
	for i := range rows {
		fmt.Fprintf(&b, `,{"to":{"sms":"+1415555%04d"}}`, i)
	}
	return b.String() + "]}"
}
