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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/store"
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

// numbered is a batch of lines, made while it is read.
type numbered struct {
	rows, next int
	buf        bytes.Buffer
	read       atomic.Int64
}

func (n *numbered) Read(p []byte) (int, error) {
	for n.buf.Len() == 0 {
		if n.next == n.rows {
			return 0, io.EOF
		}
		fmt.Fprintf(&n.buf, `{"to":{"email":"u%d@example.com"},"content":{"title":"t","body":"%s"}}`+"\n", n.next, strings.Repeat("x", 2000))
		n.next++
	}
	c, err := n.buf.Read(p)
	n.read.Add(int64(c))
	return c, err
}

// Ten thousand rows of 2 kB are 20 MB: they must not be in memory together.
func TestALongBatchIsWorkedThroughInLittleMemory(t *testing.T) {
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
	body := &numbered{rows: 10_000}
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
	if len(got) != 10_000 || len(ids) != 10_000 {
		t.Errorf("%d results with %d ids", len(got), len(ids))
	}
	used := int64(peak.Load()) - int64(before.HeapAlloc)
	t.Logf("10,000 rows in %s, %.1f MiB of heap at most", took.Round(time.Millisecond), float64(used)/(1<<20))
	if used > 20<<20 {
		t.Errorf("%d bytes of heap", used)
	}
}

func TestABatchOfTooManyLinesIsAnsweredUpToThere(t *testing.T) {
	s := newService(t)
	rows := &numbered{rows: 10_001}
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

func counted(t *testing.T, db *store.Store) (n int) {
	t.Helper()
	if err := db.Pool().QueryRow(t.Context(), "select count(*) from dispatcher.notifications").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOfManyRivalsOneRunsTheBatch(t *testing.T) {
	s, db := overPostgres(t)
	acme := keyFor(t, db, "acme")
	key, body := header{"Idempotency-Key", "import"}, batchOf(600)
	const rivals = 20
	answers := make([]answer, rivals)
	var racing sync.WaitGroup
	for i := range rivals {
		racing.Go(func() { answers[i] = s.do(t, "POST", batchPath, body, acme, key) })
	}
	racing.Wait()
	ran, whole := 0, ""
	for _, a := range answers {
		switch a.Code {
		case 200:
			if a.Header().Get("Idempotent-Replayed") == "" {
				ran++
			}
			if whole == "" {
				whole = a.Body.String()
			} else if a.Body.String() != whole {
				t.Error("two answers differ")
			}
		case 409:
			after, err := strconv.Atoi(a.Header().Get("Retry-After"))
			if a.problem(409, "batch_running"); err != nil || after < 1 || after > 60 {
				t.Errorf("Retry-After %q", a.Header().Get("Retry-After"))
			}
		default:
			t.Errorf("status %d: %s", a.Code, a.Body)
		}
	}
	if ran != 1 || counted(t, db) != 600 {
		t.Errorf("%d ran it and there are %d notifications", ran, counted(t, db))
	}
	again := s.do(t, "POST", batchPath, " "+body, acme, key)
	if got := again.results(); len(got) != 601 || again.Header().Get("Idempotent-Replayed") != "true" || again.Body.String() != whole {
		t.Errorf("repeated: %d results, header %v", len(got), again.Header())
	}
	s.do(t, "POST", batchPath, batchOf(601), acme, key).problem(422, "idempotency_key_mismatch")
	s.do(t, "POST", batchPath, body, keyFor(t, db, "other"), key).want(200)
	if n := counted(t, db); n != 1200 {
		t.Errorf("%d notifications", n)
	}
}

// failing lets so many rows through, then the database is away.
type failing struct {
	httpapi.Acceptor
	left atomic.Int64
}

func (f *failing) Accept(ctx context.Context, a store.Accept) (store.Accepted, error) {
	if f.left.Add(-1) < 0 {
		return store.Accepted{}, context.DeadlineExceeded
	}
	return f.Acceptor.Accept(ctx, a)
}

func TestAnInterruptedBatchIsCompletedByRepeatingIt(t *testing.T) {
	// Of lines the first part's results were kept, so 51 rows of the second are made
	// again and found to be there; JSON is all one part.
	for kind, again := range map[string]int{"JSON": 300, "lines": 51} {
		t.Run(kind, func(t *testing.T) {
			flaky := &failing{}
			s, db := overPostgres(t, func(c *httpapi.Config) { flaky.Acceptor, c.Accept = c.Accept, flaky })
			acme, key := keyFor(t, db, "acme"), header{"Idempotency-Key", "import"}
			send := func() []result {
				if kind == "JSON" {
					return s.do(t, "POST", batchPath, batchOf(700), acme, key).results()
				}
				var body strings.Builder
				body.WriteString(`{"to":{"sms":"wrong"},"content":{"body":"b"}}` + "\n")
				for i := range 700 {
					fmt.Fprintf(&body, `{"to":{"sms":"+1415555%04d"},"content":{"body":"b"}}`+"\n", i)
				}
				return lines(t, s.do(t, "POST", batchPath, body.String(), acme, key, asLines).want(200).Body)
			}
			flaky.left.Store(300)
			first := send()
			if n := counted(t, db); n != 300 || len(first) != 701 {
				t.Fatalf("%d notifications, %d results", n, len(first))
			}
			flaky.left.Store(1 << 30)
			second := send()
			if n := counted(t, db); n != 700 || len(second) != 701 {
				t.Fatalf("%d notifications, %d results", n, len(second))
			}
			replayed := 0
			for i, r := range second {
				switch {
				case i == 0 && r.Status == 422:
				case r.Status != 202:
					t.Fatalf("row %d: %+v", i, r)
				case first[i].Status == 202 && first[i].ID != r.ID:
					t.Errorf("row %d was %s and is %s", i, first[i].ID, r.ID)
				}
				if r.Replayed {
					replayed++
				}
			}
			if replayed != again {
				t.Errorf("%d rows were replayed, want %d", replayed, again)
			}
			third := send()
			for i := range third {
				if third[i].ID != second[i].ID || third[i].Status != second[i].Status {
					t.Fatalf("row %d: %+v and %+v", i, second[i], third[i])
				}
			}
			if n := counted(t, db); n != 700 {
				t.Errorf("%d notifications", n)
			}
		})
	}
}

// A process that dies keeps its lease until that runs out.
func TestABatchWhoseRunnerDiedIsTakenOverAfterItsLease(t *testing.T) {
	s, db := overPostgres(t)
	acme, key := keyFor(t, db, "acme"), header{"Idempotency-Key", "import"}
	body := `{"notifications":[` + good + `]}`
	s.do(t, "POST", batchPath, body, acme, key).want(200)
	_, err := db.Pool().Exec(t.Context(), `update dispatcher.batches set results = null, lease_until = now() + interval '40 seconds', holder = $1`, uuid.New())
	if err != nil {
		t.Fatal(err)
	}
	s.do(t, "POST", batchPath, body, acme, key).problem(409, "batch_running")
	if _, err := db.Pool().Exec(t.Context(), "update dispatcher.batches set lease_until = now()"); err != nil {
		t.Fatal(err)
	}
	s.do(t, "POST", batchPath, body, acme, key).want(200)
	if n := counted(t, db); n != 1 {
		t.Errorf("%d notifications", n)
	}
}

func TestAStreamedBatchWithOtherLinesIsToldOfThem(t *testing.T) {
	s, db := overPostgres(t)
	acme, key := keyFor(t, db, "acme"), header{"Idempotency-Key", "import"}
	row := func(n int) string { return fmt.Sprintf(`{"to":{"sms":"+1415555%04d"},"content":{"body":"b"}}`+"\n", n) }
	s.do(t, "POST", batchPath, row(1)+row(2), acme, key, asLines).want(200)
	for name, body := range map[string]string{"another row": row(1) + row(3), "one more": row(1) + row(2) + row(3), "one less": row(1)} {
		for _, r := range lines(t, s.do(t, "POST", batchPath, body, acme, key, asLines).want(200).Body) {
			if r.Status != 422 || r.Error.Code != "idempotency_key_mismatch" {
				t.Errorf("%s: %+v", name, r)
			}
		}
	}
	if n := counted(t, db); n != 2 {
		t.Errorf("%d notifications", n)
	}
}
