package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// db is a store with River as its queue, and helpers that fail the test.
type db struct {
	*store.Store
	t    testing.TB
	url  string
	node uuid.UUID
}

// open returns a store on a database of its own.
func open(t testing.TB) *db {
	t.Helper()
	return openAt(t, pgtest.URL(t))
}

// openAt returns a store on a database, as another node would.
func openAt(t testing.TB, url string) *db {
	t.Helper()
	s, err := store.Open(t.Context(), url, store.Options{MaxConnections: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	client, err := river.NewClient(riverpgxv5.New(s.Pool()), &river.Config{Schema: store.Schema})
	if err != nil {
		t.Fatal(err)
	}
	s.SetQueue(riverQueue{client})
	return &db{Store: s, t: t, url: url, node: uuid.New()}
}

type riverQueue struct{ client *river.Client[pgx.Tx] }

type jobArgs struct{ store.Envelope }

func (jobArgs) Kind() string { return "deliver" }

func (q riverQueue) Insert(ctx context.Context, tx pgx.Tx, envelopes []store.Envelope) ([]int64, error) {
	params := make([]river.InsertManyParams, len(envelopes))
	for i, e := range envelopes {
		params[i] = river.InsertManyParams{
			Args: jobArgs{e}, InsertOpts: &river.InsertOpts{Queue: string(e.Channel), Priority: int(e.Priority)},
		}
	}
	rows, err := q.client.InsertManyTx(ctx, tx, params)
	if err != nil {
		return nil, err
	}
	ids := make([]int64, len(rows))
	for i, r := range rows {
		ids[i] = r.Job.ID
	}
	return ids, nil
}

// now is the clock with the database's precision.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// row is a notification of one SMS step, to be accepted at once; adapt changes it
// before its deliveries are made.
func row(adapt ...func(*store.Acceptance)) store.Acceptance {
	at := now()
	a := store.Acceptance{Accept: store.Accept{Notification: notify.Notification{
		ID: uuid.Must(uuid.NewV7()), Project: "default", To: notify.To{SMS: "+15005550006", Email: &notify.EmailAddress{Address: "a@example.com"}},
		Chain: []notify.Step{{Channel: notify.SMS}}, Mode: notify.First, Priority: notify.Normal,
		Content: notify.Content{Title: "t", Body: "b"}, CreatedAt: at, SendAt: at, ExpiresAt: at.Add(time.Hour),
	}}}
	for _, f := range adapt {
		f(&a)
	}
	if a.Starts == nil {
		a.Starts = starts(&a.Notification, 0)
	}
	return a
}

// starts makes the deliveries of a step, one a target, due at once.
func starts(n *notify.Notification, step int16) []store.Start {
	channel := n.Chain[step].Channel
	targets := n.To.Targets(channel)
	out := make([]store.Start, len(targets))
	for i, target := range targets {
		out[i].Delivery = store.Delivery{
			DeliveryID: store.DeliveryID{Notification: n.ID, Step: step, Target: int16(i)}, Targets: int16(len(targets)),
			Project: n.Project, Channel: channel, Priority: n.Priority, Address: target.Hash(channel), StartedWhy: "first",
			StartedAt: n.SendAt, EndsAt: n.ExpiresAt, ExpiresAt: n.ExpiresAt,
		}
	}
	return out
}

// devices gives the notification a push step with so many targets.
func devices(count int) func(*store.Acceptance) {
	return func(a *store.Acceptance) {
		for range count {
			a.Notification.To.Push = append(a.Notification.To.Push, notify.Device{Provider: "fcm", Token: uuid.NewString()})
		}
		a.Notification.Chain = []notify.Step{{Channel: notify.Push}, {Channel: notify.SMS}}
	}
}

// waiting makes the notification wait instead of being queued.
func waiting(reason notify.WaitReason, scope string, due time.Time) func(*store.Acceptance) {
	return func(a *store.Acceptance) {
		if a.Starts == nil {
			a.Starts = starts(&a.Notification, 0)
		}
		for i := range a.Starts {
			a.Starts[i].Wait = &store.Wait{Reason: reason, Scope: scope, Due: due, Until: due, Since: a.Notification.CreatedAt}
		}
	}
}

func priority(p notify.Priority) func(*store.Acceptance) {
	return func(a *store.Acceptance) { a.Notification.Priority = p }
}

func project(name string) func(*store.Acceptance) {
	return func(a *store.Acceptance) { a.Notification.Project = name }
}

// key gives the request an idempotency key; body stands for its fingerprint.
func key(name string, body byte) func(*store.Acceptance) {
	return func(a *store.Acceptance) {
		a.Key, a.Route, a.Fingerprint = name, "POST /v1/notifications", [32]byte{body}
		a.Answer = []byte(a.Notification.ID.String())
	}
}

// accept accepts rows and returns the deliveries they started, in order.
func (d *db) accept(rows ...store.Acceptance) []store.Delivery {
	d.t.Helper()
	_, errs, err := d.Accept(d.t.Context(), rows, now(), time.Hour)
	if err != nil {
		d.t.Fatal(err)
	}
	var out []store.Delivery
	for i, r := range rows {
		if errs[i] != nil {
			d.t.Fatal(errs[i])
		}
		out = append(out, d.get(r.Notification.ID).Deliveries...)
	}
	return out
}

// get reads a notification of any project.
func (d *db) get(id uuid.UUID) store.Record {
	d.t.Helper()
	records, err := d.Records(d.t.Context(), []uuid.UUID{id})
	if err != nil {
		d.t.Fatal(err)
	}
	if len(records) != 1 {
		d.t.Fatalf("read %d notifications, want 1", len(records))
	}
	record, err := d.Get(d.t.Context(), records[0].Notification.Project, id)
	if err != nil {
		d.t.Fatal(err)
	}
	return record
}

// delivery reads one delivery.
func (d *db) delivery(id store.DeliveryID) store.Delivery {
	d.t.Helper()
	for _, delivery := range d.get(id.Notification).Deliveries {
		if delivery.DeliveryID == id {
			return delivery
		}
	}
	d.t.Fatalf("delivery %v is not there", id)
	return store.Delivery{}
}

// claim claims a delivery and fails the test if that is refused.
func (d *db) claim(delivery store.Delivery) store.Claimed {
	d.t.Helper()
	got := d.tryClaim(claimOf(delivery))
	if len(got) != 1 {
		d.t.Fatalf("claimed %d deliveries, want 1", len(got))
	}
	return got[0]
}

func (d *db) tryClaim(claims ...store.Claim) []store.Claimed {
	d.t.Helper()
	got, _, err := d.Claim(d.t.Context(), d.node, claims, true)
	if err != nil {
		d.t.Fatal(err)
	}
	return got
}

func claimOf(d store.Delivery) store.Claim {
	return store.Claim{DeliveryID: d.DeliveryID, Turn: d.Turn, Account: "main", ID: uuid.New()}
}

// outcome is the result of a claimed call that ended with o.
func outcome(c store.Claimed, o notify.Outcome, after store.After) store.Result {
	r := after0(c.Delivery, after)
	r.Attempt = &store.Attempt{
		DeliveryID: c.DeliveryID, Turn: c.Turn, ID: c.ClaimID, N: c.Calls, Node: c.ClaimedBy, Account: c.Account,
		StartedAt: now(), Duration: time.Millisecond, Outcome: o,
	}
	return r
}

// after0 is a result without a call.
func after0(d store.Delivery, after store.After) store.Result {
	if after.Final && after.FinishedAt.IsZero() {
		after.FinishedAt = now()
	}
	r := store.Result{DeliveryID: d.DeliveryID, Turn: d.Turn, Project: d.Project, After: after}
	if d.ClaimedBy != uuid.Nil {
		r.Claim = d.ClaimID
	}
	return r
}

// waitOf is a wait that follows a result of d.
func waitOf(d store.Delivery, reason notify.WaitReason, due time.Time) *store.Wait {
	return &store.Wait{
		DeliveryID: d.DeliveryID, Turn: d.Turn + 1, Project: d.Project, Channel: d.Channel, Priority: d.Priority,
		Reason: reason, Due: due, Until: due, Since: now(),
	}
}

// record writes results and returns their fates.
func (d *db) record(results ...store.Result) []store.Fate {
	d.t.Helper()
	fates, err := d.Record(d.t.Context(), results, func(store.Record, []store.DeliveryID) store.Joined { return store.Joined{} })
	if err != nil {
		d.t.Fatal(err)
	}
	return fates
}

// exec runs a statement and returns how many rows it touched.
func (d *db) exec(sql string, args ...any) int64 {
	d.t.Helper()
	tag, err := d.Pool().Exec(d.t.Context(), sql, args...)
	if err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}

// count evaluates a query of one number.
func (d *db) count(sql string, args ...any) int64 {
	d.t.Helper()
	return one[int64](d, sql, args...)
}

func one[T any](d *db, sql string, args ...any) T {
	d.t.Helper()
	var v T
	if err := d.Pool().QueryRow(d.t.Context(), sql, args...).Scan(&v); err != nil {
		d.t.Fatalf("%s: %v", sql, err)
	}
	return v
}

const countJobs = "select count(*) from dispatcher.river_job"

// run marks the jobs of deliveries as running on a node, as River's fetch does.
func (d *db) run(node uuid.UUID, deliveries ...store.Delivery) {
	d.t.Helper()
	for _, delivery := range deliveries {
		d.exec(`update dispatcher.river_job set state = 'running', attempted_at = now(), attempt = 1, attempted_by = array['someone', $2]
			where id = $1`, delivery.JobID, node.String())
	}
}

var sent = store.After{Status: notify.Sent, Final: true, Attempts: 1}
