package store_test

import (
	"net/url"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/pgtest"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// openStarted returns a store on a database that says it was started long ago,
// whatever the server's age: a function of the same name comes first.
func openStarted(t *testing.T) *db {
	t.Helper()
	u, err := url.Parse(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", "fake,pg_catalog")
	u.RawQuery = query.Encode()
	d := openAt(t, u.String())
	d.exec("create schema fake")
	d.started("1 hour")
	return d
}

func (d *db) started(ago string) {
	d.t.Helper()
	d.exec(`create or replace function fake.pg_postmaster_start_time() returns timestamptz language sql as
		$$ select clock_timestamp() - interval '` + ago + `' $$`)
}

// link links a node that beats once.
func (d *db) link(id uuid.UUID) *store.NodeLink {
	d.t.Helper()
	l, err := d.LinkNode(d.t.Context(), id, "test")
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = l.Close(d.t.Context()) })
	if err := l.Beat(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	return l
}

// silent sets a node's last beat back.
func (d *db) silent(id uuid.UUID, since string) {
	d.t.Helper()
	if d.exec("update dispatcher.nodes set beat_at = clock_timestamp() - $2::text::interval where id = $1", id, since) != 1 {
		d.t.Fatal("the node is not registered")
	}
}

func (d *db) dead() []uuid.UUID {
	d.t.Helper()
	dead, err := d.DeadNodes(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return dead
}

// closeLink ends a node's connection and waits until Postgres knows.
func (d *db) closeLink(l *store.NodeLink) {
	d.t.Helper()
	if err := l.Close(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
	waitUntil(d, "the connection is gone", noLink)
}

const noLink = `select not exists (select from pg_stat_activity
	where application_name = 'dispatcher-node' and datname = current_database())`

func TestANodeIsDeadWhenItIsSilentAndItsLockIsFree(t *testing.T) {
	t.Parallel()
	// The lock's key is the id's second half: with and without the sign.
	for name, id := range map[string]uuid.UUID{
		"random": uuid.New(), "positive": {15: 7, 8: 0x7f, 11: 0xff}, "minus one": {8: 255, 255, 255, 255, 255, 255, 255, 255}, "smallest": {8: 0x80, 0: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := openStarted(t)
			link := d.link(id)
			expect := func(what string, want ...uuid.UUID) {
				t.Helper()
				if got := d.dead(); !slices.Equal(got, want) {
					t.Errorf("%s: dead are %v, want %v", what, got, want)
				}
			}
			expect("it beats")
			d.silent(id, "6 seconds")
			expect("silent, and holds its lock")
			if err := link.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
			expect("it beats again")
			d.silent(id, "16 seconds")
			d.started("9 seconds")
			expect("Postgres has just started")
			d.started("11 seconds")
			expect("silent for long, whatever its lock", id)
			waitUntil(d, "its backend is gone", noLink)
			d.silent(id, "4 seconds")
			expect("its lock is free, and it was silent for a moment")
			d.silent(id, "6 seconds")
			expect("its lock is free, and it was silent", id)
			if link.Beat(t.Context()) == nil {
				t.Error("the terminated connection still beats")
			}
		})
	}
}

func TestOnlyTheDeadNodesOwnConnectionIsTerminated(t *testing.T) {
	t.Parallel()
	d := openStarted(t)
	dead, alive := uuid.New(), uuid.New()
	d.link(dead)
	other := openAt(t, d.url).link(alive)
	d.silent(dead, "16 seconds")
	rival, err := d.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer rival.Release()
	if got := d.dead(); !slices.Equal(got, []uuid.UUID{dead}) {
		t.Fatalf("dead are %v", got)
	}
	if err := other.Beat(t.Context()); err != nil {
		t.Errorf("the living node's connection: %v", err)
	}
	waitUntil(d, "the lock is free", "select count(*) = 1 from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())")
	// Another node has the lock for a moment, to the same end.
	if _, err := rival.Exec(t.Context(), "select pg_advisory_lock(lock_key) from dispatcher.nodes where id = $1", dead); err != nil {
		t.Fatal(err)
	}
	if got := d.dead(); !slices.Equal(got, []uuid.UUID{dead}) {
		t.Errorf("dead are %v", got)
	}
	if err := rival.Ping(t.Context()); err != nil {
		t.Errorf("the rival's connection: %v", err)
	}
}

func TestANodeThatIsCutOffTakesItsLockAgain(t *testing.T) {
	t.Parallel()
	d := openStarted(t)
	id := uuid.New()
	old := d.link(id)
	again := openAt(t, d.url).link(id) // while Postgres still believes in the old connection
	if err := old.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitUntil(d, "the old connection is gone", `select count(*) = 1 from pg_stat_activity
		where application_name = 'dispatcher-node' and datname = current_database()`)
	if err := again.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.silent(id, "6 seconds")
	if got := d.dead(); len(got) != 0 {
		t.Errorf("dead are %v: the lock was not taken again", got)
	}
	if n := d.count("select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())"); n != 1 {
		t.Errorf("the lock is held %d times", n)
	}
}

func TestANodeThatHasJustReconnectedJudgesNobody(t *testing.T) {
	t.Parallel()
	d := openStarted(t)
	other := uuid.New()
	link := openAt(t, d.url).link(other)
	d.closeLink(link)
	d.silent(other, "20 seconds")
	d.link(d.node)
	if got := d.dead(); len(got) != 1 {
		t.Errorf("after the first connection dead are %v", got)
	}
	d.link(d.node)
	if got := d.dead(); len(got) != 0 {
		t.Errorf("after a reconnection dead are %v", got)
	}
}

func TestADeadNodesClaimsAreOpenAndTheRestRunsAgainAlone(t *testing.T) {
	t.Parallel()
	d := openStarted(t)
	gone, alive := uuid.New(), uuid.New()
	d.closeLink(d.link(gone))
	d.silent(gone, "6 seconds")
	var rows []store.Acceptance
	for range 5 {
		rows = append(rows, row(func(a *store.Acceptance) { a.Starts = starts(&a.Notification, 0); a.Starts[0].Scopes = []string{"s"} }))
	}
	deliveries := d.accept(rows...)
	foreign := d.accept(row(priority(notify.High)))[0]
	d.run(gone, deliveries[0]) // one job has them all
	d.run(alive, foreign)
	if _, _, err := d.Claim(t.Context(), gone, []store.Claim{claimOf(deliveries[0])}, true); err != nil {
		t.Fatal(err)
	}
	d.record(after0(deliveries[1], store.After{Status: notify.Failed, Final: true}))
	work, err := d.DeadWork(t.Context(), gone)
	if err != nil {
		t.Fatal(err)
	}
	if len(work) != 1 || work[0].DeliveryID != deliveries[0].DeliveryID || work[0].ClaimedBy != gone {
		t.Fatalf("open calls %+v", work)
	}
	r := after0(work[0], store.After{Status: notify.Uncertain, Crashes: 1})
	r.Wait = waitOf(work[0], notify.WaitReconcile, now().Add(time.Minute))
	d.record(r)
	for i, want := range []int{3, 0} { // the second time there is nothing left to do
		if n, err := d.Bury(t.Context(), gone); err != nil || n != want {
			t.Fatalf("burial %d: %d requeued, %v", i, n, err)
		}
	}
	envelopes := d.envelopes()
	if len(envelopes) != 4 {
		t.Fatalf("jobs %+v", envelopes)
	}
	for i, e := range envelopes[1:] {
		delivery := deliveries[i+2]
		want := store.Item{ID: delivery.Notification, Ends: delivery.EndsAt.UnixMilli(), Scopes: []string{"s"}}
		if diff := cmp.Diff([]store.Item{want}, e.Items); diff != "" {
			t.Errorf("job %d (-want +got):\n%s", i, diff)
		}
		if got := d.delivery(delivery.DeliveryID); got.Status != notify.Queued || got.JobID == delivery.JobID || got.Turn != delivery.Turn {
			t.Errorf("delivery %d is %+v", i, got)
		}
	}
	if got := d.delivery(foreign.DeliveryID); got.JobID != foreign.JobID || d.count("select count(*) from dispatcher.river_job where id = $1 and state = 'running'", foreign.JobID) != 1 {
		t.Errorf("the living node's delivery was touched: %+v", got)
	}
	if n := d.count("select count(*) from dispatcher.nodes"); n != 0 {
		t.Errorf("%d nodes are left", n)
	}
}

func TestANodeLeavesOnlyWhenItsWorkIsDone(t *testing.T) {
	t.Parallel()
	d := open(t)
	id := uuid.New()
	link := d.link(id)
	delivery := d.accept(row())[0]
	d.run(id, delivery)
	for _, want := range []int64{1, 0} {
		if err := link.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := d.count("select count(*) from dispatcher.nodes"); n != want {
			t.Errorf("%d nodes, want %d", n, want)
		}
		d.exec("update dispatcher.river_job set state = 'completed', finalized_at = now()")
	}
}
