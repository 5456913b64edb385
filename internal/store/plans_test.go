package store_test

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// tracer collects the statements that a store sends, with their arguments.
type tracer struct {
	mu   sync.Mutex
	seen map[string][]any
}

func (tr *tracer) note(sql string, args []any) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.seen[sql] = args
}

func (tr *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	tr.note(data.SQL, data.Args)
	return ctx
}
func (tr *tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (tr *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (tr *tracer) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	tr.note(data.SQL, data.Args)
}
func (tr *tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// filled returns a store on a database that has been in use for a while: most
// notifications have ended, some wait, and a few are in the queue.
func filled(t *testing.T, notifications int) (plain, traced *db, tr *tracer) {
	t.Helper()
	d := open(t)
	tr = &tracer{seen: map[string][]any{}}
	cfg, err := pgxpool.ParseConfig(d.url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ConnConfig.Tracer = tr
	cfg.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	traced = &db{Store: store.New(pool), t: t, url: d.url, node: d.node}
	t.Cleanup(traced.Close)
	traced.SetQueue(insertedQueue{})
	d.exec(`insert into dispatcher.notifications (id, project, priority, mode, chain, recipient, content, reference, created_at, send_at, expires_at)
		select (lpad(to_hex((extract(epoch from at) * 1000)::bigint), 12, '0') || '7' || substr(md5(i::text), 1, 3) || '8' || substr(md5(i::text), 4, 15))::uuid,
			'project-' || i % 20, 1 + i % 4, 'first', '[{"channel":"sms"}]', '{"sms":"+1"}', '{"body":"b"}', 'ref-' || i / 3, at, at, at + interval '1 day'
		from (select i, now() - interval '40 days' + i * interval '40 days' / $1 as at from generate_series(1, $1) i) s`, notifications)
	d.exec(`insert into dispatcher.deliveries (notification_id, step, target, targets, priority, final, started_at, ends_at, expires_at, finished_at,
			address, project, channel, status, started_because)
		select id, 0, 0, 1, priority, n % 4 > 0, created_at, expires_at, expires_at, case when n % 4 > 0 then created_at end,
			decode(md5((n / 10)::text), 'hex'), project, 'sms', case when n % 4 > 0 then 'sent' else 'waiting' end, 'first'
		from (select *, row_number() over () as n from dispatcher.notifications) s`)
	d.exec(`insert into dispatcher.waits (notification_id, step, target, turn, priority, held, due, until, since, project, channel, reason)
		select notification_id, step, target, turn, priority, false, due, due, now(), project, channel, 'scheduled'
		from (select *, now() + case when random() < 0.01 then 0 else random() end * interval '1 day' as due
			from dispatcher.deliveries where status = 'waiting') s`)
	d.exec(`insert into dispatcher.attempts (notification_id, step, target, turn, n, duration_us, started_at, id, node, account, outcome)
		select notification_id, step, target, turn, 1, 1, started_at, gen_random_uuid(), gen_random_uuid(), 'a', 'accepted' from dispatcher.deliveries where final`)
	d.exec(`insert into dispatcher.events (at, notification_id, project, type) select created_at, id, project, 'accepted' from dispatcher.notifications`)
	d.exec(`insert into dispatcher.idempotency_keys select project, 'r', id::text, decode(md5('a') || md5('b'), 'hex'), id, '', created_at + interval '41 days'
		from dispatcher.notifications`)
	d.exec(`insert into dispatcher.api_keys select gen_random_uuid(), 'p' || i, '', decode(md5(i::text) || md5('x'), 'hex'), '', array['read'], now() from generate_series(1, 20000) i`)
	d.exec(`insert into dispatcher.marks select id, now() from dispatcher.notifications limit 5000`)
	d.exec(`insert into dispatcher.suppressions select 'project-' || i % 20, 'sms', decode(md5('s' || i), 'hex'), '', '', now() from generate_series(1, 20000) i`)
	d.exec(`insert into dispatcher.suppression_events (at, project, channel, address, action, reason, source)
		select now(), project, channel, address, 'added', reason, source from dispatcher.suppressions`)
	d.exec(`insert into dispatcher.address_strikes (first_at, last_at, strikes, project, channel, address)
		select now(), now(), 1, project, channel, address from dispatcher.suppressions`)
	d.exec(`update dispatcher.attempts set provider_message_id = 'SM' || md5(notification_id::text)`)
	d.exec(`insert into dispatcher.receipts (id, notification_id, step, target, attempt, account, subject, message_id, status, received_at, look_at, applied_at)
		select gen_random_uuid(), notification_id, step, target, id, account, provider_message_id, provider_message_id, 'delivered', started_at, started_at, started_at
		from dispatcher.attempts`)
	d.exec(`insert into dispatcher.river_job (args, kind, queue, max_attempts, state, finalized_at)
		select '{"v":1,"p":"p","c":"sms","i":[]}', 'deliver', 'sms', 25, 'completed', now() from generate_series(1, 20000)`)
	d.exec(`analyze`)
	// The planner takes a table for as much larger as it is thought to be denser.
	d.exec(`update pg_class set reltuples = reltuples * 100 where relnamespace = 'dispatcher'::regnamespace and reltuples > 0`)
	return d, traced, tr
}

// insertedQueue is a queue whose own statements are not looked at.
type insertedQueue struct{}

func (insertedQueue) Insert(_ context.Context, _ pgx.Tx, e []store.Envelope) ([]int64, error) {
	return make([]int64, len(e)), nil
}

// big are the tables that grow with what was sent. A statement that reads one of
// them from end to end takes the longer the longer the service runs.
var big = []string{
	"notifications", "deliveries", "waits", "attempts", "events", "suppressions", "idempotency_keys", "api_keys", "river_job", "marks",
	"receipts", "suppression_events", "address_strikes",
}

var seqScan = regexp.MustCompile(`Seq Scan on (?:dispatcher\.)?(\w+)`)

func TestNoStatementReadsABigTableFromEndToEnd(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("fills a database first")
	}
	plain, d, tr := filled(t, 20_000)
	ids := one[[]uuid.UUID](plain, "select array_agg(notification_id) from (select notification_id from dispatcher.waits limit 540) s")
	first := plain.get(ids[0]).Deliveries[0]
	joined := after0(first, store.After{Status: notify.Waiting})
	joined.Join, joined.Wait, joined.Waited = true, waitOf(first, notify.WaitBackoff, now()), true
	joined.Suppress = &store.Suppression{Project: "p", Channel: notify.SMS, Address: first.Address, At: now()}
	joined.Strike = &store.Strike{Project: "p", Channel: notify.SMS, Address: first.Address, Account: "main", At: now()}
	joined.Attempt = &store.Attempt{ID: uuid.New(), N: 1, StartedAt: now(), Account: "a", Outcome: notify.Throttled}
	late := joined
	attempt := *joined.Attempt
	attempt.ID, late.Attempt = uuid.New(), &attempt
	other := plain.get(ids[1]).Deliveries[0]
	ended := after0(other, store.After{Status: notify.Failed, Final: true})
	ended.Waited = true
	claimed := plain.get(ids[2]).Deliveries[0]
	var manyClaims []store.Claim
	var manyResults []store.Result
	for _, id := range ids[40:540] { // more than a flush has whose plan is kept
		other := plain.get(id).Deliveries[0]
		result := after0(other, store.After{Status: notify.Failed, Final: true})
		result.Waited = true
		manyClaims, manyResults = append(manyClaims, claimOf(other)), append(manyResults, result)
	}
	page := store.Filter{Project: "project-3", Limit: 50}
	lists := []func(*store.Filter){
		func(*store.Filter) {},
		func(f *store.Filter) { f.Cursor = ids[0] },
		func(f *store.Filter) { f.Reference = "ref-7" },
		func(f *store.Filter) { f.Channel = notify.SMS },
		func(f *store.Filter) { f.Addresses = [][16]byte{first.Address} },
		func(f *store.Filter) { f.After = now().Add(-time.Hour) },
		func(f *store.Filter) { f.Before = now().Add(-39 * day) },
		func(f *store.Filter) { f.Status = notify.Failed },
	}
	secret, key, err := d.CreateKey(t.Context(), "p", "", []string{"read"}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	link := d.link(d.node)
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for round := range 16 { // beyond the first executions, whose plans are made for their arguments
		if round == 8 {
			d.BeWary()
		}
		_, _, err := d.Claim(t.Context(), d.node, []store.Claim{claimOf(claimed)}, false)
		must(nil, err)
		must(d.Record(t.Context(), []store.Result{joined, ended}, func(store.Record, []store.DeliveryID) store.Joined { return store.Joined{} }))
		must(d.Record(t.Context(), []store.Result{late}, nil))
		_, _, err = d.Claim(t.Context(), d.node, manyClaims, false)
		must(nil, err)
		must(d.Record(t.Context(), manyResults, nil))
		must(d.Wake(t.Context(), 500, nil))
		must(d.Holds(t.Context(), store.Hold{}, 100))
		must(d.OldestHeld(t.Context(), time.Minute, 100))
		must(d.CountHeld(t.Context(), "main", 100))
		must(d.CountRooms(t.Context(), []store.Room{{Hold: store.Hold{Scope: "main", Priority: notify.Normal, Project: "p"}, N: 10}}))
		must(d.WakeHeld(t.Context(), []store.Room{{Hold: store.Hold{Scope: "main", Priority: notify.Normal, Project: "p"}, N: 10}}))
		must(d.Sweep(t.Context(), ids[0], 100, now()))
		stop := store.Consent{
			Account: "main", Channel: notify.SMS, Address: first.Address, Delivery: first.DeliveryID, Stop: true, Reason: store.ReasonStop, At: now(),
		}
		start := stop
		start.Stop = false
		must(nil, d.AddConsents(t.Context(), []store.Consent{stop, start}))
		for _, adapt := range []func(*store.SuppressionFilter){
			func(*store.SuppressionFilter) {},
			func(f *store.SuppressionFilter) { f.Addresses = [][16]byte{first.Address} },
			func(f *store.SuppressionFilter) { f.Channel, f.Addresses = notify.SMS, [][16]byte{first.Address} },
			func(f *store.SuppressionFilter) { f.Before = &store.Suppression{At: now(), Channel: notify.SMS} },
		} {
			f := store.SuppressionFilter{Project: "project-3", Limit: 50}
			adapt(&f)
			must(d.Suppressions(t.Context(), f))
			must(d.SuppressionHistory(t.Context(), f, 0))
			must(d.SuppressionHistory(t.Context(), f, 1000))
		}
		address := store.Address{Channel: notify.SMS, Hash: first.Address}
		must(d.Suppressed(t.Context(), "p", []store.Address{address}))
		must(nil, d.Suppress(t.Context(), []store.Suppression{{Project: "p", Channel: notify.SMS, Address: first.Address, At: now()}}))
		must(nil, d.Lift(t.Context(), "p", address, "ana", "why", now()))
		must(d.DeadNodes(t.Context()))
		must(d.DeadWork(t.Context(), uuid.New()))
		must(d.Bury(t.Context(), d.node))
		must(nil, link.Beat(t.Context()))
		must(d.Cancel(t.Context(), other.Project, other.Notification, now()))
		must(d.Correct(t.Context(), store.Correction{DeliveryID: other.DeliveryID, Status: notify.Delivered, Supersedes: true, Receipts: ids[:1]}, now()))
		must(d.AddReceipts(t.Context(), []store.Receipt{receipt(first.DeliveryID, notify.Delivered), receipt(store.DeliveryID{}, notify.Sent)}))
		must(d.TakeReceipts(t.Context(), 100))
		must(nil, d.Applied(t.Context(), ids[:2], nil))
		must(d.ParkedReceipts(t.Context(), 100))
		must(d.TakePolls(t.Context(), 16))
		must(nil, d.Polled(t.Context(), store.Poll{DeliveryID: first.DeliveryID}, now()))
		must(d.Authenticate(t.Context(), secret))
		must(d.ListKeys(t.Context(), "p"))
		must(d.Get(t.Context(), first.Project, first.Notification))
		_, err = d.Expire(t.Context(), now().Add(-39*day), now(), 10)
		must(nil, err)
		_, _, err = d.Accept(t.Context(), []store.Acceptance{row(keyed(uuid.NewString())), row(keyed("again"))}, now(), time.Hour)
		must(nil, err)
		for _, adapt := range lists {
			f := page
			adapt(&f)
			must(d.List(t.Context(), f))
		}
	}
	must(nil, d.RevokeKey(t.Context(), "p", key.ID))
	if len(tr.seen) < 40 {
		t.Errorf("only %d statements were seen", len(tr.seen))
	}
	young, grown := open(t), open(t)
	for _, d := range []*db{young, grown} {
		d.ended(time.Minute, time.Minute)
		d.ended(time.Minute, time.Minute)
		d.exec("analyze")
	}
	for range 20 {
		many := make([]store.Acceptance, 100)
		for i := range many {
			many[i] = row()
		}
		grown.accept(many...)
	}
	small := 0
	for sql, args := range tr.seen {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			plain.explain(sql, args, mode)
		}
		// What is planned while next to nothing is there stays when there is much.
		if kept.MatchString(sql) {
			small++
			plan := young.plan(sql, args, "force_generic_plan", "enable_seqscan")
			if reads := walked(plan); len(reads) > 0 {
				t.Errorf("planned in a young database, it reads all of %v:\n%s\n%s", reads, sql, plan)
			}
			continue
		}
		// The statistics may be of the time when there was next to nothing. To read all
		// once for a large flush may do, but not once for each of its rows.
		if plan := grown.plan(sql, args, "force_custom_plan"); compared.MatchString(plan) {
			t.Errorf("it compares each row with all:\n%s\n%s", sql, plan)
		}
	}
	if small < 3 {
		t.Errorf("%d statements of small flushes were seen", small)
	}
}

// walked are the tables of notifications and deliveries that a plan reads from end
// to end.
func walked(plan string) (tables []string) {
	for _, match := range slices.Concat(unbounded.FindAllStringSubmatch(plan, -1), seqScan.FindAllStringSubmatch(plan, -1)) {
		if match[1] == "notifications" || match[1] == "deliveries" {
			tables = append(tables, match[1])
		}
	}
	return tables
}

func keyed(k string) func(*store.Acceptance) { return key(k, 1) }

// whole are parts of the statements that may look at all rows: the backlog counts
// the waits, and all keys are listed for whoever sees all projects.
var whole = []string{"count(*), min(due)", "where $1 = '' or project = $1"}

// overdue finds a walk along an index that reads what is not due yet too, since no
// index is bounded by clock_timestamp().
var overdue = regexp.MustCompile(`Filter: .*\b(due|ask_at|look_at|tat|minute|expires_at)\)* <=? \(*clock_timestamp\(\)`)

// kept finds the statements of small flushes, whose plan is kept.
var kept = regexp.MustCompile(`notification_id = any\(\$1\)( and|$)`)

// compared finds joins with deliveries that go by no index and no hash.
var compared = regexp.MustCompile(`Join Filter: .*(d\.notification_id = [kr]\.id|[kr]\.id = d\.notification_id)`)

// unbounded finds walks along the whole of an index.
var unbounded = regexp.MustCompile(`Index (?:Only )?Scan(?: Backward)? using \w+ on (\w+)[^\n]*\n *(?:->|Filter|$)`)

// explain fails the test if the plan of a statement reads a big table from end
// to end, or what is not due.
func (d *db) explain(sql string, args []any, mode string) {
	d.t.Helper()
	plan := d.plan(sql, args, mode)
	for _, match := range seqScan.FindAllStringSubmatch(plan, -1) {
		all := slices.ContainsFunc(whole, func(part string) bool { return strings.Contains(sql, part) })
		if slices.Contains(big, match[1]) && !all {
			d.t.Errorf("%s reads all of %s:\n%s\n%s", mode, match[1], sql, plan)
		}
	}
	if overdue.MatchString(plan) {
		d.t.Errorf("%s reads what is not due:\n%s\n%s", mode, sql, plan)
	}
}

// verbs begin the statements that have a plan.
var verbs = regexp.MustCompile(`(?i)^\s*(select|with|insert|update|delete)\s`)

// plan returns the plan of a statement, if it has one: for its arguments, or for
// any. off are settings to be turned off first.
func (d *db) plan(sql string, args []any, mode string, off ...string) string {
	d.t.Helper()
	if !verbs.MatchString(sql) {
		return ""
	}
	var plan []string
	err := pgx.BeginFunc(d.t.Context(), d.Pool(), func(tx pgx.Tx) error {
		for _, name := range off {
			if _, err := tx.Exec(d.t.Context(), "select set_config($1, 'off', true)", name); err != nil {
				return err
			}
		}
		explain := "explain (costs off) " + sql
		if mode == "force_generic_plan" {
			nulls := ""
			if len(args) > 0 {
				nulls = "(" + strings.Repeat("null, ", len(args)-1) + "null)"
			}
			if _, err := tx.Exec(d.t.Context(), "set local plan_cache_mode = "+mode); err != nil {
				return err
			}
			if _, err := tx.Conn().PgConn().Exec(d.t.Context(), "prepare explained as "+sql).ReadAll(); err != nil {
				return err
			}
			defer tx.Exec(d.t.Context(), "deallocate explained") //nolint:errcheck // the connection is not used for it again
			explain, args = "explain (costs off) execute explained"+nulls, nil
		}
		rows, err := tx.Query(d.t.Context(), explain, args...)
		if err != nil {
			return err
		}
		plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		d.t.Errorf("%s: %v", sql, err)
	}
	for i := range plan {
		plan[i] = plan[i][:min(len(plan[i]), 150)] // ids of a whole batch
	}
	return strings.Join(plan, "\n")
}
