package store_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/notification-dispatcher/dispatcher/internal/notify"
	"github.com/notification-dispatcher/dispatcher/internal/store"
)

// fallBack starts the step after a push step once all devices have failed.
func fallBack(r store.Record, _ []store.DeliveryID) store.Joined {
	byStep := r.ByStep()
	if len(byStep[1]) > 0 {
		return store.Joined{}
	}
	for _, device := range byStep[0] {
		if !device.Final {
			return store.Joined{}
		}
	}
	return store.Joined{Next: starts(&r.Notification, 1)}
}

func TestTwoRecordersOfSiblingsStartTheNextStepOnce(t *testing.T) {
	t.Parallel()
	a := open(t)
	nodes := []*db{a, openAt(t, a.url)}
	const rounds = 100
	rows := make([]store.Acceptance, rounds)
	for i := range rows {
		rows[i] = row(devices(2))
	}
	siblings := a.accept(rows...)
	failed := store.After{Status: notify.Failed, Final: true, Attempts: 1}
	var claims []store.Claim
	for _, delivery := range siblings {
		claims = append(claims, claimOf(delivery))
	}
	results := make([][]store.Result, 2) // by target, so that each node has one of each pair
	for _, c := range a.tryClaim(claims...) {
		r := outcome(c, notify.RecipientRejected, failed)
		r.Join = true
		results[c.Target] = append(results[c.Target], r)
	}
	for i := 0; i < rounds; {
		size := min(1+rand.IntN(5), rounds-i)
		var wg sync.WaitGroup
		for n, node := range nodes {
			batch := results[n][i : i+size]
			wg.Go(func() {
				fates, err := node.Record(t.Context(), batch, fallBack)
				for _, fate := range fates {
					if fate != store.Written {
						t.Error("a result came late")
					}
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		i += size
	}
	if n := a.count("select count(*) from dispatcher.deliveries where step = 1"); n != rounds {
		t.Errorf("%d second steps were started, want %d", n, rounds)
	}
	if n := a.count("select sum(jsonb_array_length(args -> 'i')) from dispatcher.river_job where queue = 'sms'"); n != rounds {
		t.Errorf("%d second steps are in the queue, want %d", n, rounds)
	}
}

// Flushes that share keys wait for each other, in one order.
func TestFlushesThatShareKeysDoNotBlockEachOther(t *testing.T) {
	t.Parallel()
	first := open(t)
	const flushes, keys, size = 30, 20, 8
	ids := make([]sync.Map, keys) // by key: the notifications that it was answered with
	var wg sync.WaitGroup
	for _, n := range []*db{first, openAt(t, first.url), openAt(t, first.url)} {
		wg.Go(func() {
			for range flushes {
				var rows []store.Acceptance
				picked := rand.Perm(keys)[:size]
				for _, k := range picked {
					rows = append(rows, row(key(strconv.Itoa(k), 1)))
				}
				out, errs, err := n.Accept(t.Context(), rows, now(), time.Hour)
				if err = errors.Join(append(errs, err)...); err != nil {
					t.Error(err)
					return
				}
				for i, k := range picked {
					ids[k].Store(out[i].ID, true)
				}
			}
		})
	}
	wg.Wait()
	for k := range ids {
		answers := 0
		ids[k].Range(func(any, any) bool { answers++; return true })
		if answers > 1 {
			t.Errorf("key %d was answered with %d notifications", k, answers)
		}
	}
	if n := first.count("select count(*) from dispatcher.notifications"); n > keys {
		t.Errorf("%d notifications for %d keys", n, keys)
	}
}

// A reader that goes on from the highest id it has seen must not miss an event
// that was written at the same time.
func TestAReaderOfEventsMissesNothing(t *testing.T) {
	t.Parallel()
	d := open(t)
	writers := []*db{d, openAt(t, d.url)}
	const flushes, each = 60, 4
	ctx, done := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	for w := range each {
		node := writers[w%len(writers)]
		writing.Go(func() {
			for range flushes {
				rows := []store.Acceptance{row(), row()}
				if _, _, err := node.Accept(t.Context(), rows, now(), time.Hour); err != nil {
					t.Error(err)
				}
				if _, err := node.Cancel(t.Context(), "default", rows[0].Notification.ID, now()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	go func() { writing.Wait(); done() }()
	var cursor, seen int64
	for last := false; ; {
		if ctx.Err() != nil {
			last = true // one more look, after everything was committed
		}
		rows, err := d.Pool().Query(t.Context(), "select id from dispatcher.events where id > $1 order by id", cursor)
		if err != nil {
			t.Fatal(err)
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			t.Fatal(err)
		}
		if seen += int64(len(ids)); len(ids) > 0 {
			cursor = ids[len(ids)-1]
		}
		if last {
			break
		}
	}
	if want := d.count("select count(*) from dispatcher.events"); seen != want || want != flushes*each*3 {
		t.Errorf("the reader saw %d of %d events, want %d", seen, want, flushes*each*3)
	}
}

// Whatever a cancel runs into, nothing that may be sent is left when it is done.
func TestACancelMissesNothingThatMovesMeanwhile(t *testing.T) {
	t.Parallel()
	d := open(t)
	rival := openAt(t, d.url)
	chain := func(a *store.Acceptance) {
		a.Notification.Chain = append(a.Notification.Chain, notify.Step{Channel: notify.Email})
	}
	for _, c := range []struct {
		name   string
		result func(store.Acceptance, store.Claimed) store.Result
	}{
		{"into the next step", func(a store.Acceptance, c store.Claimed) store.Result {
			r := outcome(c, notify.RecipientRejected, store.After{Status: notify.Failed, Final: true})
			r.Next = starts(&a.Notification, 1)
			return r
		}},
		{"into a retry", func(_ store.Acceptance, c store.Claimed) store.Result {
			r := outcome(c, notify.ProviderUnavailable, store.After{Status: notify.Waiting})
			r.Wait = waitOf(c.Delivery, notify.WaitBackoff, now())
			return r
		}},
	} {
		for round := range 40 {
			a := row(chain)
			claimed := d.claim(d.accept(a)[0])
			r := c.result(a, claimed)
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := rival.Record(t.Context(), []store.Result{r}, nil); err != nil {
					t.Error(err)
				}
			})
			got, err := d.Cancel(t.Context(), "default", a.Notification.ID, now())
			wg.Wait()
			if err != nil || got != store.TooLate {
				t.Fatalf("%s, round %d: %q, %v", c.name, round, got, err)
			}
			record := d.get(a.Notification.ID)
			for _, delivery := range record.Deliveries {
				if !delivery.Final && delivery.Stop == "" {
					t.Fatalf("%s, round %d: left %+v", c.name, round, delivery)
				}
			}
			if len(record.Waits) > 0 {
				t.Fatalf("%s, round %d: left %+v", c.name, round, record.Waits)
			}
		}
	}
}

// The same with the order forced: the cancel waits for the record's row lock.
func TestACancelStopsTheStepThatARecordIsJustStarting(t *testing.T) {
	t.Parallel()
	d := open(t)
	a := row(func(a *store.Acceptance) {
		a.Notification.Chain = append(a.Notification.Chain, notify.Step{Channel: notify.Email})
	})
	claimed := d.claim(d.accept(a)[0])
	d.exec(`create function dispatcher.pause() returns trigger language plpgsql as $$
		begin perform pg_advisory_xact_lock(4711); return null; end $$`)
	d.exec(`create trigger pause after insert on dispatcher.attempts for each statement execute function dispatcher.pause()`)
	hold, err := d.Pool().Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer hold.Release()
	if _, err := hold.Exec(t.Context(), "select pg_advisory_lock(4711)"); err != nil {
		t.Fatal(err)
	}
	r := outcome(claimed, notify.RecipientRejected, store.After{Status: notify.Failed, Final: true})
	r.Next = starts(&a.Notification, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := d.Record(t.Context(), []store.Result{r}, nil); err != nil {
			t.Error(err)
		}
	})
	waitUntil(d, "the record is in mid-flush", "select exists (select from pg_locks where locktype = 'advisory' and objid = 4711 and not granted and database = (select oid from pg_database where datname = current_database()))")
	var result store.CancelResult
	wg.Go(func() {
		var err error
		if result, err = d.Cancel(t.Context(), "default", a.Notification.ID, now()); err != nil {
			t.Error(err)
		}
	})
	waitUntil(d, "the cancel waits for it", "select exists (select from pg_locks l join pg_stat_activity a using (pid) where a.datname = current_database() and l.locktype = 'transactionid' and not l.granted)")
	if _, err := hold.Exec(t.Context(), "select pg_advisory_unlock(4711)"); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	next := d.delivery(store.DeliveryID{Notification: a.Notification.ID, Step: 1})
	if result != store.TooLate || next.Status != notify.Canceled || !next.Final {
		t.Errorf("cancel says %q and the next step is %s", result, next.Status)
	}
	if got := d.tryClaim(claimOf(next), store.Claim{DeliveryID: next.DeliveryID, ID: uuid.New()}); len(got) != 0 {
		t.Error("the next step could be claimed")
	}
}

// waitUntil evaluates a query until it is true.
func waitUntil(d *db, what, sql string) {
	d.t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !one[bool](d, sql) {
		if time.Now().After(deadline) {
			d.t.Fatalf("not in time: %s", what)
		}
	}
}
