package httpapi_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/httpapi"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

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
