package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// noon is the instant at which the corpus' requests arrive.
var noon = time.Date(2026, 12, 1, 12, 0, 0, 123456789, time.UTC)

// request is a body that every way in has to judge alike.
type request struct {
	Name     string
	Body     json.RawMessage
	Problems []string // pointer, space, code
}

// requests reads the corpus of package notify, without what only the
// configuration can tell.
func requests(t *testing.T) []request {
	t.Helper()
	text, err := os.ReadFile("../notify/testdata/requests.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []request
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		rows[i].Problems = slices.DeleteFunc(rows[i].Problems, func(p string) bool {
			return strings.HasSuffix(p, " "+notify.CodeUnknownAccount) || strings.HasSuffix(p, " "+notify.CodeUnobservable)
		})
	}
	return rows
}

// judging has the SQL function judge bodies without writing anything: "" for one
// that it takes, else the problem as pointer and code.
const judging = `
create function public.judge(body text, at timestamptz) returns text language plpgsql as $$
declare
  pointer text;
  code text;
begin
  perform dispatcher.enqueue_at(body::jsonb || '{"project":"default"}', at);
  raise exception using errcode = 'ZZ000';
exception
  when sqlstate 'ZZ000' then
    return '';
  when untranslatable_character then -- no jsonb holds U+0000
    return 'NUL';
  when invalid_parameter_value then
    get stacked diagnostics pointer = pg_exception_detail, code = constraint_name;
    return pointer || ' ' || code;
end $$`

func (d *db) judge(bodies []string) []string {
	d.t.Helper()
	d.exec(judging)
	rows, err := d.Pool().Query(d.t.Context(),
		"select public.judge(body, $2) from unnest($1::text[]) with ordinality as b (body, place) order by place", bodies, noon)
	if err != nil {
		d.t.Fatal(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

// refusal returns what a refusal is about; a failure of any other kind ends the
// test.
func refusal(t *testing.T, err error) string {
	t.Helper()
	var pg *pgconn.PgError
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &pg) || pg.Code != "22023" || pg.Message == "":
		t.Fatalf("failed for another reason: %v", err)
	}
	return pg.Detail + " " + pg.ConstraintName
}

func TestEnqueueJudgesTheCorpusAsTheAPIDoes(t *testing.T) {
	t.Parallel()
	rows := requests(t)
	bodies := make([]string, len(rows))
	for i := range rows {
		bodies[i] = string(rows[i].Body)
	}
	for i, got := range open(t).judge(bodies) {
		t.Run(rows[i].Name, func(t *testing.T) {
			t.Parallel()
			want := rows[i].Problems
			if (got == "") != (len(want) == 0) || got != "" && got != "NUL" && !slices.Contains(want, got) {
				t.Errorf("found %q, want one of %q", got, want)
			}
		})
	}
}

const hello = `{"project":"default","to":{"sms":"+14155550100"},"content":{"body":"hi"},"reference":"order-1"}`

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func enqueue(t *testing.T, q querier, body string) (uuid.UUID, error) {
	t.Helper()
	var id uuid.UUID
	err := q.QueryRow(t.Context(), "select dispatcher.enqueue($1::text::jsonb)", body).Scan(&id)
	return id, err
}

func mustEnqueue(t *testing.T, q querier, body string) uuid.UUID {
	t.Helper()
	id, err := enqueue(t, q, body)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// begin opens a caller's transaction, on a connection of its own.
func begin(t *testing.T, url string) pgx.Tx {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func commit(t *testing.T, tx pgx.Tx) {
	t.Helper()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func withKey(key, body string) string { return `{"idempotency_key":"` + key + `",` + body[1:] }

func TestEnqueueKnowsItsKeysAgain(t *testing.T) {
	t.Parallel()
	d := open(t)
	first := mustEnqueue(t, d.Pool(), withKey("k", hello))
	if again := mustEnqueue(t, d.Pool(), `{"reference": "order-1", `+strings.Replace(withKey("k", hello)[1:], `,"reference":"order-1"`, "", 1)); again != first {
		t.Errorf("the same key and body gave %v, want %v", again, first)
	}
	_, err := enqueue(t, d.Pool(), withKey("k", strings.Replace(hello, "hi", "ho", 1)))
	if got := refusal(t, err); got != "/idempotency_key conflict" {
		t.Errorf("the same key and another body: %q", got)
	}
	if other := mustEnqueue(t, d.Pool(), withKey("k2", hello)); other == first {
		t.Error("another key gave the same notification")
	}
	d.exec("update dispatcher.idempotency_keys set expires_at = now() - interval '1 second'")
	if later := mustEnqueue(t, d.Pool(), withKey("k", strings.Replace(hello, "hi", "ho", 1))); later == first {
		t.Error("a key past its time gave the same notification")
	}
	if n := d.count("select count(*) from dispatcher.notifications"); n != 3 {
		t.Errorf("wrote %d notifications, want 3", n)
	}
}

func TestEnqueueWaitsForARivalWithItsKey(t *testing.T) {
	t.Parallel()
	for _, commits := range []bool{true, false} {
		d := open(t)
		rival := begin(t, d.url)
		theirs := mustEnqueue(t, rival, withKey("k", hello))
		mine := make(chan uuid.UUID, 1)
		go func() {
			id, err := enqueue(t, d.Pool(), withKey("k", hello))
			if err != nil {
				t.Error(err)
			}
			mine <- id
		}()
		d.until("the caller waits for its rival", "select count(*) = 1 from pg_stat_activity where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0")
		if commits {
			commit(t, rival)
		} else if err := rival.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		if id := <-mine; (id == theirs) != commits {
			t.Errorf("rival commits: %t; got %v, the rival %v", commits, id, theirs)
		}
	}
}

// until asks again and again until the answer is yes.
func (d *db) until(what, sql string, args ...any) {
	d.t.Helper()
	for deadline := time.Now().Add(time.Minute); !one[bool](d, sql, args...); {
		if time.Now().After(deadline) {
			d.t.Fatalf("not in time: %s", what)
		}
		select {
		case <-d.t.Context().Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func noScopes(*notify.Notification, *store.Delivery) []string { return nil }

func (d *db) announce() []notify.Priority {
	d.t.Helper()
	announced, err := d.Announce(d.t.Context(), 100, now(), noScopes)
	if err != nil {
		d.t.Fatal(err)
	}
	return announced
}

// wakeDue moves what is due and returns how many that were.
func (d *db) wakeDue() int {
	d.t.Helper()
	woken, err := d.Wake(d.t.Context(), 100, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	return woken.Moved
}

func TestEnqueuedMovesOnlyOnceItIsAnnounced(t *testing.T) {
	t.Parallel()
	d := open(t)
	id := mustEnqueue(t, d.Pool(), strings.Replace(hello, `"reference"`, `"priority":"low","reference"`, 1))
	if moved := d.wakeDue(); moved != 0 {
		t.Errorf("woke %d before the announcement", moved)
	}
	if got := d.announce(); !slices.Equal(got, []notify.Priority{notify.Low}) {
		t.Errorf("announced %v, want one of low priority", got)
	}
	if got := d.announce(); len(got) != 0 {
		t.Errorf("announced again: %v", got)
	}
	if moved := d.wakeDue(); moved != 1 {
		t.Errorf("woke %d after the announcement, want 1", moved)
	}
	if n := d.count("select count(*) from dispatcher.events where notification_id = $1 and type = 'accepted'", id); n != 1 {
		t.Errorf("%d accepted events, want 1", n)
	}
}

func TestAStepsTimeBeginsWhenTheServiceSeesIt(t *testing.T) {
	t.Parallel()
	d := open(t)
	const chained = `{"project":"default","to":{"sms":"+14155550100","whatsapp":"+14155550100"},"content":{"body":"hi"}}`
	enqueued := func(ago string) uuid.UUID {
		return one[uuid.UUID](d, "select dispatcher.enqueue_at($1::text::jsonb, now() - $2::text::interval)", chained, ago)
	}
	late, prompt := enqueued("10 minutes"), enqueued("0")
	d.announce()
	for id, shifted := range map[uuid.UUID]bool{late: true, prompt: false} {
		r := d.get(id)
		got := r.Deliveries[0]
		if got.EndsAt.Sub(got.StartedAt) != 2*time.Minute || got.StartedAt.Equal(r.Notification.SendAt) == shifted || time.Until(got.EndsAt) < time.Minute {
			t.Errorf("sent at %v, but the step runs from %v to %v", r.Notification.SendAt, got.StartedAt, got.EndsAt)
		}
	}
}

func TestCancelForStopsClaimsFromItsCommitOn(t *testing.T) {
	t.Parallel()
	d := open(t)
	mine, theirs := mustEnqueue(t, d.Pool(), hello), mustEnqueue(t, d.Pool(), strings.Replace(hello, "order-1", "order-2", 1))
	d.announce()
	d.wakeDue()
	tx := begin(t, d.url)
	var asked int
	if err := tx.QueryRow(t.Context(), "select dispatcher.cancel_for('order-1', 'default')").Scan(&asked); err != nil || asked != 1 {
		t.Fatalf("asked to cancel %d, want 1: %v", asked, err)
	}
	if n, err := d.ApplyCancelRequests(t.Context(), 10, now()); err != nil || n != 0 {
		t.Errorf("applied %d requests before the commit: %v", n, err)
	}
	commit(t, tx)
	if got := d.tryClaim(claimOf(d.get(mine).Deliveries[0])); len(got) != 0 {
		t.Error("claimed what was to be canceled")
	}
	d.claim(d.get(theirs).Deliveries[0])
	if n, err := d.ApplyCancelRequests(t.Context(), 10, now()); err != nil || n != 1 {
		t.Errorf("applied %d requests, want 1: %v", n, err)
	}
	record := d.get(mine)
	if status, final := record.Overall(); status != notify.Canceled || !final {
		t.Errorf("ended %s, final %t, want canceled", status, final)
	}
	if n := d.count("select count(*) from dispatcher.cancel_requests"); n != 0 {
		t.Errorf("%d requests are left", n)
	}
	if n := one[int64](d, "select dispatcher.cancel_for('order-1', 'default')"); n != 0 {
		t.Errorf("asked to cancel %d that had ended", n)
	}
}

func TestACancelAnnouncesWhatWasEnqueuedFirst(t *testing.T) {
	t.Parallel()
	d := open(t)
	canceled, acknowledged := mustEnqueue(t, d.Pool(), hello), mustEnqueue(t, d.Pool(), hello)
	if result, err := d.Cancel(t.Context(), "default", canceled, now()); err != nil || result != store.Canceled {
		t.Fatalf("%s, %v", result, err)
	}
	if _, err := d.Acknowledge(t.Context(), "default", acknowledged, now()); err != nil {
		t.Fatal(err)
	}
	d.announce()
	for id, want := range map[uuid.UUID]string{canceled: "accepted canceled", acknowledged: "accepted acknowledged finished"} {
		if got := one[string](d, "select string_agg(type, ' ' order by id) from dispatcher.events where notification_id = $1", id); got != want {
			t.Errorf("events %q, want %q", got, want)
		}
	}
}
